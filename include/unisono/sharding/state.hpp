#pragma once

/// \file
/// Each rank updates its slices of the parameters.

#include "unisono/core/standard.hpp"
#include "unisono/sharding/sharding.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// ZeRO's first stage: each rank owns an equal slice of each bucket, cut at cache lines. It
/// receives the sum of its slice, runs the optimizer on it and publishes the parameters, which are
/// equal on all ranks after each update.
///
/// An update moves as many bytes as with all_reduce, but each rank runs the optimizer on 1/p of the
/// elements, and holds 1/p of its state. It is faster if the exchange costs less than the optimizer
/// (ranks that map each other's memory), and always saves memory. For small models the cost of
/// synchronising the ranks two more times dominates.
///
/// Over mapped memory, with NativeReducer and a model in one allocation of the group's memory, an
/// owner sums, updates and publishes one chunk at a time, directly from and to the peers' memory.
/// Otherwise (other reducers, clipping by norm, compression) the three are separate passes over the
/// memory.
///
/// Bits: those of `Replicated` with a reducer that sums a slice in the same order as the whole.
/// `NativeReducer` does over mapped memory, on any number of ranks; sums of two ranks have one
/// order with any reducer.
///
/// `trainer.state().optimizer_state()` is only the state of `trainer.state().owned()`: a checkpoint
/// needs that of all ranks.
/// Source: Rajbhandari et al., "ZeRO" (SC'20), section 5.1.
struct StateSharding {
    static constexpr std::string_view name = "state sharding";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const StateSharding&, const StateSharding&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const {
        return Owners::equal(facts.count, facts.world, std::max<std::size_t>(1, 64 / facts.element_bytes));
    }
};
UNISONO_CERTIFY(sharding_policy<StateSharding>);

UNISONO_NAMESPACE_END
