#pragma once

/// \file
/// Arrays multiplied or divided by one number: weights of replicas, and the mean over replicas.
/// Gradient accumulation: weighted micro-batch gradients, the first one stored and the others
/// added.

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

namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

template <class To, class T>
struct AddWeighted {
    accumulator_t<To> weight;
    UNISONO_INLINE void operator()(To& y, const T& x) const {
        const accumulator_t<To> more = product(weight, static_cast<accumulator_t<To>>(widen(x)));
        y = canonical(static_cast<To>(widen(y) + more));
    }
};

template <class To, class T>
struct Add {
    UNISONO_INLINE void operator()(To& y, const T& x) const {
        y = canonical(static_cast<To>(widen(y) + static_cast<accumulator_t<To>>(widen(x))));
    }
};

template <class To, class T>
struct StoreWeighted {
    accumulator_t<To> weight;
    UNISONO_INLINE void operator()(To& y, const T& x) const {
        y = canonical(static_cast<To>(product(weight, static_cast<accumulator_t<To>>(widen(x)))));
    }
};

UNISONO_NO_CONTRACTION_END

} // namespace detail

/// y[i] += weight * x[i], with two roundings: of the product and of the sum, in y's accumulator
/// type (float for 16-bit floats). y may be wider than x: a float accumulator of bf16 gradients.
/// The weight is first rounded to the accumulator type; a weight of 1 is exact.
template <floating_element To, class T>
    requires floating_element<std::remove_const_t<T>>
void accumulate(std::span<To> y, std::span<T> x, double weight = 1.0) {
    detail::check_sizes("accumulate", x.size(), y.size());
    using From = std::remove_const_t<T>;
    const auto rounded = static_cast<accumulator_t<To>>(weight);
    if (rounded == 1) apply(detail::Add<To, From>{}, y, std::span<const From>(x));
    else apply(detail::AddWeighted<To, From>{rounded}, y, std::span<const From>(x));
}

/// y[i] = weight * x[i]: the first micro-batch of a window, which saves zeroing y. The same bits as
/// `accumulate` into +0, except that a product of -0 stays -0.
template <floating_element To, class T>
    requires floating_element<std::remove_const_t<T>>
void accumulate_first(std::span<To> y, std::span<T> x, double weight = 1.0) {
    using From = std::remove_const_t<T>;
    if constexpr (std::same_as<To, From>) {
        scale(y, x, weight);
    } else {
        detail::check_sizes("accumulate_first", x.size(), y.size());
        apply(detail::StoreWeighted<To, From>{static_cast<accumulator_t<To>>(weight)}, y, std::span<const From>(x));
    }
}

UNISONO_NAMESPACE_END
