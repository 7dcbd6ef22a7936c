#pragma once

/// \file
/// Weights of replicas, and the mean over replicas: arrays multiplied or divided by one number.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/arithmetic.hpp"

#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct Multiply {
    accumulator_t<T> factor;
    UNISONO_INLINE void operator()(T& y, const T& x) const { y = canonical(static_cast<T>(product(factor, widen(x)))); }
};

template <class T>
struct Divide {
    accumulator_t<T> divisor;
    UNISONO_INLINE void operator()(T& y, const T& x) const {
        y = canonical(static_cast<T>(quotient(widen(x), divisor)));
    }
};

/// Rounds three times: each product, and their sum.
template <class T>
struct Mix {
    accumulator_t<T> own, other;
    UNISONO_INLINE void operator()(T& y, const T& x) const {
        UNISONO_NO_CONTRACTION_HERE
        y = canonical(static_cast<T>(product(own, widen(y)) + product(other, widen(x))));
    }
};

UNISONO_NO_CONTRACTION_END

/// y[i] = share * y[i] + (1 - share) * x[i]; both factors are first rounded as in `scale`.
template <floating_element T>
void mix(std::span<T> y, std::type_identity_t<std::span<const T>> x, double share) {
    using W = accumulator_t<T>;
    apply(Mix<T>{static_cast<W>(share), static_cast<W>(1 - share)}, y, x);
}

} // namespace detail

/// out[i] = factor * x[i]; the factor is first rounded to float for float and 16-bit elements. out
/// may be x. A factor of exactly 1 copies.
template <floating_element T>
void scale(std::span<T> out, std::type_identity_t<std::span<const T>> x, double factor) {
    detail::check_sizes("scale", x.size(), out.size());
    const auto rounded = static_cast<accumulator_t<T>>(factor);
    if (rounded == 1) {
        if (out.data() != x.data() && !x.empty()) __builtin_memcpy(out.data(), x.data(), x.size_bytes());
        return;
    }
    apply(detail::Multiply<T>{rounded}, out, x);
}

/// x[i] *= factor.
template <floating_element T>
void scale(std::span<T> x, double factor) {
    scale(x, x, factor);
}

namespace detail {

/// A rank's contribution to a weighted mean: weight * x; a weight of 0 gives zeros for any x.
template <floating_element T>
void weigh(std::span<T> out, std::type_identity_t<std::span<const T>> x, double weight) {
    if (weight != 0.0) return scale(out, x, weight);
    if (!out.empty()) __builtin_memset(out.data(), 0, out.size_bytes());
}

} // namespace detail

/// x[i] /= divisor, with one rounding (a mean over ranks; multiplying by the reciprocal would round
/// twice). A divisor of exactly 1 leaves x unchanged. Division by zero gives infinities and NaN:
/// refuse a sum of weights that is 0 first.
template <floating_element T>
void divide(std::span<T> x, double divisor) {
    const auto rounded = static_cast<accumulator_t<T>>(divisor);
    if (rounded == 1) return;
    apply(detail::Divide<T>{rounded}, x, std::span<const T>(x));
}

UNISONO_NAMESPACE_END
