#pragma once

/// \file
/// Bounds the elements of gradients.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/clipping.hpp"

UNISONO_NAMESPACE_BEGIN

/// Clamps each element of the gradient to [-limit, limit], as PyTorch's clip_grad_value_. A NaN
/// stays NaN; an infinity that no guard stops becomes the limit. The limit is rounded to the
/// gradients' type.
struct ClipByValue {
    double limit = 1; ///< above 0, finite

    static constexpr std::string_view name = "clip by value";
    static constexpr Family family = Family::clipping;
    static constexpr bool measures_norm = false;
    static constexpr bool changes_elements = true;
    friend bool operator==(const ClipByValue&, const ClipByValue&) = default;

    void check() const;
    [[nodiscard]] double factor(double) const { return 1; }
    /// gradients[i] = clipped(scale * gradients[i]).
    template <floating_element T>
    void clip(std::span<T> gradients, double scale) const {
        unisono::apply(element<T>(scale), gradients);
    }

    template <class T>
    struct Clamp;
    /// The functor of `clip`, for code that fuses it with another one.
    template <floating_element T>
    [[nodiscard]] Clamp<T> element(double scale) const {
        return {static_cast<T>(scale), static_cast<T>(limit)};
    }
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct ClipByValue::Clamp {
    T scale, limit;
    UNISONO_INLINE void operator()(T& g) const {
        UNISONO_NO_CONTRACTION_HERE
        const T scaled = detail::product(g, scale);
        const T below = scaled > limit ? limit : scaled; // comparisons with NaN are false: it stays
        g = below < -limit ? -limit : below;
    }
};

UNISONO_NO_CONTRACTION_END

UNISONO_CERTIFY(clipping_policy<ClipByValue>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void ClipByValue::check() const {
    if (!(limit > 0) || !detail::is_finite(limit))
        refuse_input({"ClipByValue.limit is ", limit, "; expected a finite number above 0"});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
