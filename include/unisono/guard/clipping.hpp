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

#include "unisono/core/element.hpp"
#include "unisono/core/policy.hpp"
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

UNISONO_NAMESPACE_END
