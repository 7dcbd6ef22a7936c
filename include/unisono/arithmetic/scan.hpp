#pragma once

/// \file
/// The measurements of guards: the position of the first value that is not finite, or too large,
/// and the sum of squares.

#include "unisono/arithmetic/values.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/core/math.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The result of `first_non_finite` if all values are finite, and of `first_at_least` if all are
/// smaller.
inline constexpr std::size_t npos = static_cast<std::size_t>(-1);

namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// The bits of a floating type, and the mask of its exponent: the exponent's bits are all set in
/// infinities and NaN, and only there.
template <class T>
struct Exponent;
template <>
struct Exponent<float> {
    using Bits = std::uint32_t;
    static constexpr Bits mask = 0x7f800000u;
};
template <>
struct Exponent<double> {
    using Bits = std::uint64_t;
    static constexpr Bits mask = 0x7ff0000000000000u;
};
template <>
struct Exponent<bfloat16> {
    using Bits = std::uint16_t;
    static constexpr Bits mask = 0x7f80u;
};
template <>
struct Exponent<float16> {
    using Bits = std::uint16_t;
    static constexpr Bits mask = 0x7c00u;
};

/// The exponent's bits of 2^exponent, or of infinity if T has no such number.
template <class T>
constexpr typename Exponent<T>::Bits exponent_bits(int exponent) {
    using Bits = typename Exponent<T>::Bits;
    constexpr Bits mask = Exponent<T>::mask;
    constexpr int digits = std::countr_zero(mask);
    constexpr int most = mask >> digits;
    const int biased = exponent + most / 2;
    return static_cast<Bits>(static_cast<Bits>(biased < 1 ? 1 : biased > most ? most : biased) << digits);
}

/// Finds the first element whose exponent's bits are at least these. They are compared as signed
/// numbers, since most instruction sets have no other comparison.
template <class T>
struct FindExponent {
    using Bits = typename Exponent<T>::Bits;
    using Signed = std::make_signed_t<Bits>;
    static constexpr Bits mask = Exponent<T>::mask;
    const std::byte* data;
    std::size_t count;
    std::size_t* found;
    Bits least;

    UNISONO_INLINE void operator()() const {
        constexpr std::size_t block = 8192 / sizeof(T); // usually none is found: one test per block
        const auto below = static_cast<Signed>(least - 1);
        for (std::size_t begin = 0; begin < count; begin += block) {
            const std::size_t elements = count - begin < block ? count - begin : block;
            const std::byte* at = data + begin * sizeof(T);
            Bits any = 0;
            for (std::size_t i = 0; i < elements; ++i)
                any = static_cast<Bits>(any | (static_cast<Signed>(load<Bits>(at, i) & mask) > below ? 1u : 0u));
            if (any == 0) continue;
            std::size_t i = 0;
            while (static_cast<Signed>(load<Bits>(at, i) & mask) <= below) ++i;
            *found = begin + i;
            return;
        }
    }
};

template <class T>
struct SumSquares {
    static constexpr std::size_t lanes = 16;
    const std::byte* data;
    std::size_t count;
    double* sum;

    template <class Wide>
    UNISONO_INLINE static void add(double* lane, const std::byte* at, std::size_t elements) {
        for (std::size_t j = 0; j < elements; ++j) {
            const auto x = static_cast<double>(load<Wide>(at, j));
            const double square = x * x;
            lane[j] = lane[j] + square;
        }
    }

    UNISONO_INLINE void operator()() const {
        using Wide = accumulator_t<T>;
        constexpr std::size_t block = 512;
        double lane[lanes] = {};
        [[maybe_unused]] alignas(64) std::byte widened[block * sizeof(Wide)];
        for (std::size_t begin = 0; begin < count; begin += block) {
            const std::size_t elements = count - begin < block ? count - begin : block;
            const std::byte* at = data + begin * sizeof(T);
            if constexpr (!std::is_same_v<T, Wide>) { // in a loop of its own, which is vectorised
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < elements; ++i) store<Wide>(widened, i, widen(load<T>(at, i)));
                at = widened;
            }
            std::size_t i = 0;
            for (; i + lanes <= elements; i += lanes) add<Wide>(lane, at + i * sizeof(Wide), lanes);
            add<Wide>(lane, at + i * sizeof(Wide), elements - i);
        }
        for (std::size_t width = lanes / 2; width > 0; width /= 2)
            for (std::size_t j = 0; j < width; ++j) lane[j] = lane[j] + lane[j + width];
        *sum = canonical(lane[0]);
    }
};

UNISONO_NO_CONTRACTION_END

template <class T>
std::size_t first_at_least_on(InstructionSet set, std::span<const T> x, typename Exponent<T>::Bits least) {
    std::size_t found = npos;
    vectorised(set, FindExponent<T>{reinterpret_cast<const std::byte*>(x.data()), x.size(), &found, least});
    return found;
}
template <class T>
std::size_t first_non_finite_on(InstructionSet set, std::span<const T> x) {
    return first_at_least_on(set, x, Exponent<T>::mask);
}

template <class T>
double sum_of_squares_on(InstructionSet set, std::span<const T> x) {
    double sum = 0;
    vectorised(set, SumSquares<T>{reinterpret_cast<const std::byte*>(x.data()), x.size(), &sum});
    return sum;
}

} // namespace detail

/// The index of the first infinity or NaN in x, or npos. Reads the exponents' bits, which no
/// compiler flag can optimise away. Cost: one pass through memory.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::size_t first_non_finite(std::span<T> x) {
    return detail::first_non_finite_on<std::remove_const_t<T>>(best_instruction_set(), x);
}

/// The index of the first element of x whose magnitude is at least 2^exponent, or that is infinite
/// or NaN; or npos. Cost: as first_non_finite.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::size_t first_at_least(std::span<T> x, int exponent) {
    using E = std::remove_const_t<T>;
    return detail::first_at_least_on<E>(best_instruction_set(), x, detail::exponent_bits<E>(exponent));
}

/// The sum of x[i]^2 in double: 0 for an empty span, infinite or NaN if x is. Each square is
/// rounded once to double (exact for float and 16-bit elements), and added in an order that depends
/// only on positions in the span: 16 interleaved sums, then pairwise. So the last bits of a sum
/// over slices depend on the cuts.
template <class T>
    requires floating_element<std::remove_const_t<T>>
double sum_of_squares(std::span<T> x) {
    return detail::sum_of_squares_on<std::remove_const_t<T>>(best_instruction_set(), x);
}

UNISONO_NAMESPACE_END
