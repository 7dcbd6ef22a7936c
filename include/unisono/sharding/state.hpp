#pragma once

/// \file
/// Each rank updates its part of the parameters.

#include "unisono/core/standard.hpp"
#include "unisono/sharding/sharding.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// ZeRO's first stage: each rank owns an equal slice of each bucket, cut at cache lines. It
/// receives the sum of its slice, runs the optimizer on it and publishes the parameters, which are
/// equal on all ranks after each update.
///
/// An update moves as many bytes as one by all_reduce, but each rank runs the optimizer on 1/p of
/// the elements, and holds 1/p of its state. It is faster where the exchange costs less than the
/// optimizer (ranks that map each other's memory), and saves memory everywhere. For small models
/// the cost of synchronising the ranks two more times dominates.
///
/// Over mapped memory, with NativeReducer and a model in one piece of the group's memory, an owner
/// sums, updates and publishes a chunk at a time, straight from and to the memory of the peers.
/// Without that (other reducers, clipping by norm, compression) the three are passes over the
/// memory.
///
/// Bits: those of `Replicated` with a reducer that sums a slice in the same order as the whole.
/// `NativeReducer` does where memory is mapped, on any number of ranks; sums of two ranks have one
/// order with any reducer.
///
/// `trainer.optimizer_state()` is the state of `trainer.owned()` alone: a checkpoint needs that of
/// all ranks.
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
