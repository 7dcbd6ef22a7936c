#pragma once

/// \file
/// Each rank keeps its slices of parameters, gradients and optimizer state.

#include "unisono/sharding/sharding.hpp"

UNISONO_NAMESPACE_BEGIN

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
