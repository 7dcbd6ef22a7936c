#pragma once

/// \file
/// Gradient accumulation: weighted micro-batch gradients, the first one stored and the others
/// added.

#include "unisono/arithmetic/scale.hpp"

#include <span>

UNISONO_NAMESPACE_BEGIN

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
