#pragma once

/// \file
/// Policy: the weight of each micro-batch. An update's gradient is a weighted sum over its
/// micro-batches,
///
///     sum_i multiplier_i * g_i / sum_i divisor_i,
///
/// with the weights exact (double, never in a lossy wire format). Uneven shards, padding, variable
/// tokens, empty ranks and a short last window are right by construction: a rank without data adds
/// nothing to either sum. The loss is reported by the same formula.
///
/// Multiplier / divisor of each policy:
///
/// | policy | gradient is a mean | gradient is a sum | the update is the gradient of |
/// | --- | --- | --- | --- |
/// | `ReplicasAlike` | 1 / 1 | 1 / 1 | the mean of the replicas' losses, as PyTorch's DDP |
/// | `BySamples` | samples / samples | 1 / samples | the mean over all samples |
/// | `ByTokens` | tokens / tokens | 1 / tokens | the mean over all tokens |
///
/// Deliberately absent: dividing by the number of accumulation steps, which is wrong as soon as a
/// window is short.

#include "unisono/core/policy.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/model.hpp"

#include <concepts>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The facts of a micro-batch that a weighing policy gets.
struct MicroBatchFacts {
    double samples = 1;
    double tokens = 0; ///< tokens that the model counted by `pass.count_tokens`
    GradientKind kind = GradientKind::mean;
};

/// The weight of a micro-batch: its gradient is multiplied by `multiplier`, and the sum of all
/// gradients is divided by the sum of all `divisor`s. A gradient and a loss whose multiplier is 0
/// count nothing, even if they are 0 / 0; guards do not look at them.
struct Share {
    double multiplier = 1;
    double divisor = 1;
};

/// Laws: a pure function of the facts; multiplier and divisor are finite and not negative.
/// `needs_samples`, `needs_tokens`: the facts that must be known (the trainer refuses a batch that
/// does not provide them).
template <class W>
concept weighing = policy_of<W, Family::weighing> && requires(const W& w, const MicroBatchFacts& facts) {
    { w.share(facts) } -> std::same_as<Share>;
    { W::needs_samples } -> detail::converts_to<bool>;
    { W::needs_tokens } -> detail::converts_to<bool>;
};

/// Every micro-batch has the same weight, whatever its size: the update has the mean of the
/// replicas' gradients.
struct ReplicasAlike {
    static constexpr std::string_view name = "replicas alike";
    static constexpr Family family = Family::weighing;
    static constexpr bool needs_samples = false;
    static constexpr bool needs_tokens = false;
    friend bool operator==(const ReplicasAlike&, const ReplicasAlike&) = default;

    [[nodiscard]] constexpr Share share(const MicroBatchFacts&) const { return {}; }
};
UNISONO_CERTIFY(weighing<ReplicasAlike>);

/// Every sample has the same weight: right for uneven batches.
struct BySamples {
    static constexpr std::string_view name = "by samples";
    static constexpr Family family = Family::weighing;
    static constexpr bool needs_samples = true;
    static constexpr bool needs_tokens = false;
    friend bool operator==(const BySamples&, const BySamples&) = default;

    [[nodiscard]] constexpr Share share(const MicroBatchFacts& facts) const {
        return {facts.kind == GradientKind::sum ? 1 : facts.samples, facts.samples};
    }
};
UNISONO_CERTIFY(weighing<BySamples>);

/// Every token has the same weight: right for sequences of different lengths. The model calls
/// `pass.count_tokens`.
struct ByTokens {
    static constexpr std::string_view name = "by tokens";
    static constexpr Family family = Family::weighing;
    static constexpr bool needs_samples = false;
    static constexpr bool needs_tokens = true;
    friend bool operator==(const ByTokens&, const ByTokens&) = default;

    [[nodiscard]] constexpr Share share(const MicroBatchFacts& facts) const {
        return {facts.kind == GradientKind::sum ? 1 : facts.tokens, facts.tokens};
    }
};
UNISONO_CERTIFY(weighing<ByTokens>);

UNISONO_NAMESPACE_END
