#pragma once

/// \file
/// Each rank keeps the summed gradients of its own slices only.

#include "unisono/sharding/sharding.hpp"

UNISONO_NAMESPACE_BEGIN

/// ZeRO's second stage: parameters are complete on every rank; gradients and optimizer state are
/// held in slices. A unit's gradient is summed over the ranks as soon as it is complete, each slice
/// to its owner, and its memory is reused for the next unit.
///
/// Requires a model in units (extensions/sharded/unit_pass.hpp): a model with gradients of its own
/// always holds all of them. Memory beside the parameters: 1/p of gradients and state, and the
/// gradients of two units. Bytes: those of replicated training without accumulation; with k
/// micro-batches per update (k + 1) / 2 times as many, since no rank could keep the gradients of
/// all slices until the last micro-batch.
///
/// Bits: with `Reproducible` those of `Replicated`. With plain sums the same holds if each rank has
/// one micro-batch and slices are summed in the order of the whole (see StateSharding). With
/// several micro-batches, sums over ranks come before those over micro-batches. On one rank, with
/// weights other than 1, the last bit may differ: `Replicated` multiplies a gradient by its weight
/// and divides by the sum of weights in one step.
/// Source: Rajbhandari et al., "ZeRO" (SC'20), section 5.2.
struct GradientSharding {
    static constexpr std::string_view name = "gradient sharding";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    static constexpr bool shards_gradients = true;
    static constexpr bool needs_agreement = true; ///< all ranks form the sums during the pass
    friend bool operator==(const GradientSharding&, const GradientSharding&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const { return StateSharding{}.owners(facts); }
};
static_assert(sharding_policy<GradientSharding>);

UNISONO_NAMESPACE_END
