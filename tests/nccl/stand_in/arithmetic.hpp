// The stand-in's arithmetic for a Trainer: the host's kernels, in the stream's turn. (Not Thrust's: its headers bring in CUDA's own where they
// find them. tests/thrust has those bit by bit beside the host's.)
#pragma once

#include "stand_in.hpp"

#include <unisono/arithmetic/grid.hpp>
#include <unisono/arithmetic/host_arithmetic.hpp>
#include <unisono/arithmetic/square_sum.hpp>
#include <unisono/arithmetic/stream_arithmetic.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

template <>
struct StreamArithmetic<cudaStream_t> {
    explicit StreamArithmetic(cudaStream_t given) : stream(given) {}

    template <class Functor, class... T>
    void apply(const Functor& functor, std::span<T>... x) const {
        run([functor, ... at = seen(x)] { unisono::apply(functor, at...); });
    }
    template <class T>
    void fill(std::span<T> x, std::type_identity_t<T> value) const {
        run([=, at = seen(x)] { std::fill(at.begin(), at.end(), value); });
    }
    template <class T>
    void zero(std::span<T> x) const {
        run([at = seen(x)] { HostArithmetic::zero(at); });
    }
    template <class T>
    void copy(std::span<T> out, std::type_identity_t<std::span<const T>> x) const {
        run([to = seen(out), at = seen(x)] { HostArithmetic::copy(to, at); });
    }
    template <class T>
    void scale(std::span<T> x, double factor) const {
        run([=, at = seen(x)] { unisono::scale(at, factor); });
    }
    template <class To, class T>
    void accumulate(std::span<To> y, std::span<T> x, double weight) const {
        run([=, to = seen(y), at = seen(x)] { unisono::accumulate(to, at, weight); });
    }
    template <class To, class T>
    void accumulate_first(std::span<To> y, std::span<T> x, double weight) const {
        run([=, to = seen(y), at = seen(x)] { unisono::accumulate_first(to, at, weight); });
    }
    template <class T>
    void note_non_finite(std::span<T> x, std::uint64_t first, std::uint64_t* least) const {
        run([=, at = seen(x), to = seen(std::span(least, 1))] {
            const std::size_t found = first_non_finite(at);
            if (found != npos) to[0] = std::min<std::uint64_t>(to[0], first + found);
        });
    }
    template <class T>
    [[nodiscard]] double sum_of_squares(std::span<T> x) const {
        cudaStreamSynchronize(stream);
        return unisono::sum_of_squares(seen(x));
    }
    template <class T>
    void add_squares(SquareSum& sum, std::span<T> x) const {
        cudaStreamSynchronize(stream);
        sum.add(seen(x));
    }
    template <bool Add, class I, class T>
    void note_images(std::span<I> image, std::span<T> x, double weight, const Grid& grid,
                     std::uint64_t* largest) const {
        using E = std::remove_const_t<T>;
        run([=, to = seen(image), at = seen(x), most = seen(std::span(largest, 1))] {
            const double found = detail::image_on<E, Add>(best_instruction_set(), to.data(), at.data(), at.size(),
                                                          weight, grid.exponent);
            most[0] = std::max<std::uint64_t>(most[0], std::bit_cast<std::uint64_t>(found));
        });
    }
    template <class T>
    [[nodiscard]] static std::int32_t needed_by_bits(std::uint64_t largest, double weight) {
        return detail::needed_by(std::bit_cast<double>(largest), weight);
    }
    template <class T, class I>
    void numbers_of(std::span<T> out, std::span<const I> image, const Grid& grid) const {
        run([=, to = seen(out), at = seen(image)] {
            detail::from_image_on<T>(best_instruction_set(), to.data(), at.data(), at.size(), grid.exponent);
        });
    }

    cudaStream_t stream;

private:
    template <class T>
    static std::span<T> seen(std::span<T> of_device) {
        return {reinterpret_cast<T*>(stand_in::seen_by_host(of_device.data())), of_device.size()};
    }
    template <class Work>
    void run(const Work& work) const {
        stand_in::launch(stream, work);
    }
};

UNISONO_NAMESPACE_END
