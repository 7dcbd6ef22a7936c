#pragma once

/// \file
/// Each rank keeps its slices of everything.

#include "unisono/sharding/state.hpp"

UNISONO_NAMESPACE_BEGIN

/// ZeRO's third stage: parameters, gradients and state are held in slices. A unit's parameters are gathered before the model uses
/// them, in the forward and in the backward pass, while the one before is in use, and let go after it; gradients as in
/// GradientSharding.
///
/// Asks for a model in units (model/unit_pass.hpp). Memory: 1/p of everything, and of two units the parameters and gradients.
/// Bytes: 1.5 times those of replicated without accumulation, and that for each micro-batch with it. Waiting drives what is
/// under way: how much of the gathering hides behind computing depends on the transport.
///
/// Bits: as GradientSharding. Source: Rajbhandari et al., "ZeRO" (SC'20), section 5.3.
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
