// Kernels of the host that run in the order of a stand-in's stream, on data at device addresses.
#pragma once

#include "stand_in.hpp"

#include <unisono/arithmetic/grid.hpp>
#include <unisono/arithmetic/square_sum.hpp>
#include <unisono/arithmetic/stream_kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace stand_in {

/// The interface of unisono::StreamArithmetic, on `Kernels` with the same functions for memory of
/// the host.
template <class Kernels>
struct OnStream {
    explicit OnStream(cudaStream_t given) : stream(given) {}

    template <class Functor, class... T>
    void apply(const Functor& functor, std::span<T>... x) const {
        run([functor, ... at = seen(x)] { Kernels{}.apply(functor, at...); });
    }
    template <class T>
    void fill(std::span<T> x, std::type_identity_t<T> value) const {
        run([=, at = seen(x)] { Kernels{}.fill(at, value); });
    }
    template <class T>
    void zero(std::span<T> x) const {
        run([at = seen(x)] { Kernels{}.zero(at); });
    }
    template <class T>
    void copy(std::span<T> out, std::type_identity_t<std::span<const T>> x) const {
        run([to = seen(out), at = seen(x)] { Kernels{}.copy(to, at); });
    }
    template <class T>
    void scale(std::span<T> x, double factor) const {
        run([=, at = seen(x)] { Kernels{}.scale(at, factor); });
    }
    template <class T>
    void divide(std::span<T> x, double divisor) const {
        run([=, at = seen(x)] { Kernels{}.divide(at, divisor); });
    }
    template <class To, class T>
    void accumulate(std::span<To> y, std::span<T> x, double weight) const {
        run([=, to = seen(y), at = seen(x)] { Kernels{}.accumulate(to, at, weight); });
    }
    template <class To, class T>
    void accumulate_first(std::span<To> y, std::span<T> x, double weight) const {
        run([=, to = seen(y), at = seen(x)] { Kernels{}.accumulate_first(to, at, weight); });
    }
    template <class T>
    void note_magnitudes(std::span<T> x, std::uint64_t first, int exponent, std::uint64_t* noted) const {
        run([=, at = seen(x), to = seen(noted)] { Kernels{}.note_magnitudes(at, first, exponent, to); });
    }
    template <class T>
    void note_squares(std::span<T> x, std::uint64_t* noted, std::int32_t exponent) const {
        run([=, at = seen(x), to = seen(noted)] { Kernels{}.note_squares(at, to, exponent); });
    }
    template <class T>
    void note_squares(std::span<T> x, std::uint64_t* noted) const {
        run([=, at = seen(x), to = seen(noted)] { Kernels{}.note_squares(at, to); });
    }
    template <bool Add, class I, class T>
    void note_images(std::span<I> image, std::span<T> x, double weight, const unisono::Grid& grid,
                     std::uint64_t* largest) const {
        run([=, to = seen(image), at = seen(x), most = seen(largest)] {
            Kernels{}.template note_images<Add>(to, at, weight, grid, most);
        });
    }
    template <class T>
    [[nodiscard]] static std::int32_t needed_by_bits(std::uint64_t largest, double weight) {
        return Kernels::template needed_by_bits<T>(largest, weight);
    }
    template <class T, class I>
    void numbers_of(std::span<T> out, std::span<const I> image, const unisono::Grid& grid) const {
        run([=, to = seen(out), at = seen(image)] { Kernels{}.numbers_of(to, at, grid); });
    }

    template <class To, class T>
    void cast(std::span<To> y, std::span<T> x) const {
        run([to = seen(y), at = seen(x)] { Kernels{}.cast(to, at); });
    }
    template <class T>
    void scale(std::span<T> out, std::type_identity_t<std::span<const T>> x, double factor) const {
        run([=, to = seen(out), at = seen(x)] { Kernels{}.scale(to, at, factor); });
    }
    template <class Op, class T>
    void combine(const Op& op, std::span<const T* const> sources, std::span<T* const> targets,
                 std::size_t count) const {
        run([=, from = all_seen(sources), to = all_seen(targets)] {
            Kernels{}.template combine<T>(op, std::span<const T* const>(from), std::span<T* const>(to), count);
        });
    }
    template <class T>
    void combine_on_grid(std::span<const T* const> sources, std::span<T* const> targets, std::size_t count,
                         double weight, const unisono::Grid& grid) const {
        run([=, from = all_seen(sources), to = all_seen(targets)] {
            Kernels{}.template combine_on_grid<T>(std::span<const T* const>(from), std::span<T* const>(to), count,
                                                  weight, grid);
        });
    }

    template <class T>
    void note_largest(std::span<T> x, std::uint64_t* largest) const {
        run([at = seen(x), to = seen(largest)] { Kernels{}.note_largest(at, to); });
    }
    template <bool Add, class I, class T, class G>
    void to_grid_noting(std::span<I> image, std::span<T> x, double weight, const G& grid,
                        std::uint64_t* largest) const {
        run([=, to = seen(image), at = seen(x), most = seen(largest)] {
            Kernels{}.template to_grid_noting<Add>(to, at, weight, grid, most);
        });
    }
    template <class T, class I, class G>
    void from_grid_noting(std::span<T> out, std::span<const I> image, const G& grid, std::uint64_t* first) const {
        run([=, to = seen(out), at = seen(image), least = seen(first)] {
            Kernels{}.from_grid_noting(to, at, grid, least);
        });
    }

    cudaStream_t stream;

private:
    template <class T>
    static T* seen(T* of_device) {
        return reinterpret_cast<T*>(seen_by_host(of_device));
    }
    template <class T>
    static std::span<T> seen(std::span<T> of_device) {
        return {seen(of_device.data()), of_device.size()};
    }
    template <class T>
    static std::vector<T*> all_seen(std::span<T* const> of_device) {
        std::vector<T*> all;
        for (T* const one : of_device) all.push_back(seen(one));
        return all;
    }
    template <class Work>
    void run(const Work& work) const {
        launch(stream, work);
    }
};

} // namespace stand_in
