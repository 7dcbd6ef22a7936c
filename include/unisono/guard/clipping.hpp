#pragma once

/// \file
/// Policy: bounds the size of a gradient. It acts on the gradient that has passed the guard: that
/// of the whole update, the weighted sum over all micro-batches of all ranks, divided by the
/// weights; never on one rank's contribution.
///
/// Menu:
/// - `NoClipping` changes nothing.
/// - `ClipByNorm` bounds the gradient's length. Cost: one read of the gradients; if ranks own
///   slices, one all-reduce of 8 bytes (32 with sums on a grid).
/// - `ClipByValue` bounds each element. Cost: one pass in the first-level cache, within the
///   optimizer's.
///
/// Laws: `factor` and `clip` are pure functions; `clip` treats each element independently, so that
/// any cut into slices gives the same bits; neither allocates. Declared properties: `measures_norm`
/// (the trainer calls `factor(norm)` once per update, with the same norm on all ranks),
/// `changes_elements` (the trainer calls `clip(gradients, scale)` for the slices that this rank
/// owns, each element once), `needs_agreement` (as for guards). Deliberately absent: clipping each
/// micro-batch's gradient before it is added (the result is the gradient of no loss, and depends on
/// the number of ranks), and norms other than the Euclidean.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Policies that bound gradients, by their norm or element by element. \see ClipByNorm
template <class C>
concept clipping_policy =
    policy_of<C, Family::clipping> && requires(const C& policy, std::span<float> single, std::span<double> twice) {
        policy.check(); ///< refuses bad parameters with bad_input that names the parameter
        { policy.factor(1.0) } -> std::same_as<double>; ///< the factor for all gradients
        policy.clip(single, 1.0);                       ///< x = clipped(scale * x)
        policy.clip(twice, 1.0);
        { C::measures_norm } -> detail::converts_to<bool>;
        { C::changes_elements } -> detail::converts_to<bool>;
    };

/// Gradients are not changed.
struct NoClipping {
    static constexpr std::string_view name = "none";
    static constexpr Family family = Family::clipping;
    static constexpr bool measures_norm = false;
    static constexpr bool changes_elements = false;
    friend bool operator==(const NoClipping&, const NoClipping&) = default;

    void check() const {}
    [[nodiscard]] double factor(double) const { return 1; }
    template <floating_element T>
    void clip(std::span<T>, double) const {}
};
UNISONO_CERTIFY(clipping_policy<NoClipping>);

/// Multiplies the whole gradient g, of all parameters together, by min(1, max_norm / (|g| + 1e-6)),
/// where |g| is the Euclidean norm; as PyTorch's clip_grad_norm_. The norm is computed in double,
/// and every update's report has it (`gradient_norm`), so an infinite limit only observes it.
/// Source: Pascanu, Mikolov and Bengio, ICML 2013.
///
/// A norm that is NaN or infinite clips nothing: if the guard skips, all ranks discard the update;
/// otherwise all throw the error not_finite. (A guard that inspects gradients finds most of these
/// before they are summed, and names the rank. Finite gradients may still have a sum that is not
/// finite.)
///
/// Determinism: all ranks use the same bits of the norm. With `Reproducible` they do not depend on
/// ranks, slices and buckets; with plain sums, if ranks own slices, the last bits of the double do.
struct ClipByNorm {
    double max_norm = 1; ///< above 0; infinity: the norm is reported and nothing is clipped

    static constexpr std::string_view name = "clip by norm";
    static constexpr Family family = Family::clipping;
    static constexpr bool measures_norm = true;
    static constexpr bool changes_elements = false;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const ClipByNorm&, const ClipByNorm&) = default;

    void check() const {
        if (!(max_norm > 0)) refuse_input({"ClipByNorm.max_norm is ", max_norm, "; expected more than 0"});
    }
    [[nodiscard]] double factor(double norm) const {
        const double wanted = max_norm / (norm + 1e-6);
        return wanted < 1 ? wanted : 1;
    }
    template <floating_element T>
    void clip(std::span<T>, double) const {}
};
UNISONO_CERTIFY(clipping_policy<ClipByNorm>);

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
