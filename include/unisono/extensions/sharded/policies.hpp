#pragma once

/// \file
/// The policies by which ranks hold slices of gradients, and of parameters.

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

/// ZeRO's third stage: parameters, gradients and state are held in slices. In the forward and in
/// the backward pass, a unit's parameters are gathered while the model uses the previous unit, and
/// released after their use. Gradients are treated as in GradientSharding.
///
/// Requires a model in units (extensions/sharded/unit_pass.hpp).
/// Memory: 1/p of everything, and the parameters and gradients of two units. Bytes: 1.5 times those
/// of replicated training without accumulation, for each micro-batch. A waiting rank advances
/// operations in flight: the transport determines how much of the gathering overlaps computation.
///
/// Bits: as GradientSharding.
/// Source: Rajbhandari et al., "ZeRO" (SC'20), section 5.3.
struct ParameterSharding {
    static constexpr std::string_view name = "parameter sharding";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    static constexpr bool shards_gradients = true;
    static constexpr bool shards_parameters = true;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const ParameterSharding&, const ParameterSharding&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const { return StateSharding{}.owners(facts); }
};
static_assert(sharding_policy<ParameterSharding>);

UNISONO_NAMESPACE_END
