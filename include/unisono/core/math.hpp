#pragma once

/// \file
/// The functions of `<cmath>` that the library's templates need. The header also defines the
/// special functions of physics, and takes a compiler 60 ms. These are the same functions, so the
/// bits are equal.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

[[nodiscard]] inline bool finite_value(double x) { return __builtin_isfinite(x); }
/// Holds for -0 and for a NaN as well.
[[nodiscard]] inline bool has_sign(double x) { return __builtin_signbit(x) != 0; }
[[nodiscard]] inline double root_of(double x) { return __builtin_sqrt(x); }
[[nodiscard]] inline double power_of(double base, double exponent) { return __builtin_pow(base, exponent); }
[[nodiscard]] inline double rounded_down(double x) { return __builtin_floor(x); }
/// Rounds to the nearest whole number, ties to even.
[[nodiscard]] inline double rounded_to_even(double x) { return __builtin_nearbyint(x); }
[[nodiscard]] inline double absolute(double x) { return __builtin_fabs(x); }
/// x times 2 to the power of `exponent`.
[[nodiscard]] inline double scaled_by_bits(double x, int exponent) { return __builtin_ldexp(x, exponent); }

} // namespace detail
UNISONO_NAMESPACE_END
