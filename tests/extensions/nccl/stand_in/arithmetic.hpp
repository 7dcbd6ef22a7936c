// The stand-in's arithmetic for a Trainer: kernels on the host, in the order of the stream. They
// are those of the host's own arithmetic. thrust_arithmetic.hpp, which may be included instead, has
// Thrust's.
#pragma once

#include "on_stream.hpp"

#include <unisono/arithmetic/grid.hpp>
#include <unisono/arithmetic/host_arithmetic.hpp>
#include <unisono/arithmetic/square_sum.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The host's kernels under the names of ThrustArithmetic.
struct StandInKernels : HostArithmetic {
    template <class T>
    static void fill(std::span<T> x, std::type_identity_t<T> value) {
        std::fill(x.begin(), x.end(), value);
    }
    template <class T>
    static void note_magnitudes(std::span<T> x, std::uint64_t first, int exponent, std::uint64_t* noted) {
        const std::size_t found[2] = {first_non_finite(x), first_at_least(x, exponent)};
        for (const int i : {0, 1})
            if (found[i] != npos) noted[i] = std::min<std::uint64_t>(noted[i], first + found[i]);
    }
    template <class T>
    static void note_squares(std::span<T> x, std::uint64_t* noted, std::int32_t exponent) {
        using E = std::remove_const_t<T>;
        using Bits = GridBits<E>;
        Bits largest = 0;
        for (const E& one : x)
            largest = std::max(largest, static_cast<Bits>(std::bit_cast<Bits>(one) & FindLargest<E>::magnitude));
        noted[0] = std::max<std::uint64_t>(noted[0], largest);
        SquareSum sum(exponent);
        sum.add(x);
        std::int64_t words[SquareSum::words];
        sum.save(words);
        for (std::size_t i = 0; i < 3; ++i) noted[i + 1] += static_cast<std::uint64_t>(words[i]);
    }
    template <class T>
    static void note_squares(std::span<T> x, std::uint64_t* noted) {
        note_squares(x, noted, needed_exponent(x));
    }
    template <bool Add, class I, class T>
    static void note_images(std::span<I> image, std::span<T> x, double weight, const Grid& grid,
                            std::uint64_t* largest) {
        using E = std::remove_const_t<T>;
        const double found =
            image_on<E, Add>(best_instruction_set(), image.data(), x.data(), x.size(), weight, grid.exponent);
        *largest = std::max<std::uint64_t>(*largest, std::bit_cast<std::uint64_t>(found));
    }
    template <class T>
    [[nodiscard]] static std::int32_t needed_by_bits(std::uint64_t largest, double weight) {
        return needed_by(std::bit_cast<double>(largest), weight);
    }
    template <class T, class I>
    static void numbers_of(std::span<T> out, std::span<const I> image, const Grid& grid) {
        from_image_on<T>(best_instruction_set(), out.data(), image.data(), image.size(), grid.exponent);
    }
};

} // namespace detail

template <>
struct StreamArithmetic<cudaStream_t> : stand_in::OnStream<detail::StandInKernels> {
    using OnStream::OnStream;
};

UNISONO_NAMESPACE_END
