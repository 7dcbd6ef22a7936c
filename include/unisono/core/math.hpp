#pragma once

/// \file
/// The functions of `<cmath>` that the library's templates need. The header also defines the
/// special functions of physics, and takes a compiler 60 ms. These are the same functions, so the
/// bits are equal.
///
/// Infinities, NaN and signs are found by their bits: a compiler may fold a comparison or a builtin
/// under its options (-ffinite-math-only, -fno-signed-zeros). No header uses others
/// (tests/compiling/include_graph).

#include "unisono/core/config.hpp"

#include <bit>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// True for any number but the infinities and NaN.
[[nodiscard]] UNISONO_INLINE constexpr bool is_finite(float x) {
    return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}
[[nodiscard]] UNISONO_INLINE constexpr bool is_finite(double x) {
    return (std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}
[[nodiscard]] UNISONO_INLINE constexpr bool is_nan(double x) {
    return (std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}
/// Holds for -0 and for a NaN as well.
[[nodiscard]] UNISONO_INLINE constexpr bool has_sign(double x) { return std::bit_cast<std::uint64_t>(x) >> 63 != 0; }
[[nodiscard]] inline double root_of(double x) { return __builtin_sqrt(x); }
[[nodiscard]] inline double power_of(double base, double exponent) { return __builtin_pow(base, exponent); }
[[nodiscard]] inline double rounded_down(double x) { return __builtin_floor(x); }
/// Rounds to the nearest whole number, ties to even.
[[nodiscard]] inline double rounded_to_even(double x) { return __builtin_nearbyint(x); }
[[nodiscard]] inline double cosine_of(double x) { return __builtin_cos(x); }
/// Rounds to the nearest whole number, halves away from 0.
[[nodiscard]] inline long long rounded(double x) { return __builtin_llround(x); }
[[nodiscard]] inline double absolute(double x) { return __builtin_fabs(x); }
/// x times 2 to the power of `exponent`.
[[nodiscard]] inline double scaled_by_bits(double x, int exponent) { return __builtin_ldexp(x, exponent); }

} // namespace detail
UNISONO_NAMESPACE_END
