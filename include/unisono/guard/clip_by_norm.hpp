#pragma once

/// \file
/// Bounds the length of gradients.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/clipping.hpp"

UNISONO_NAMESPACE_BEGIN

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

UNISONO_NAMESPACE_END
