#pragma once

/// \file
/// The owner of each slice. It holds the slice's optimizer state, receives the sum of its
/// gradients, runs the optimizer on it and publishes its parameters.
///
/// Laws: `owners(facts)` is a pure function of the facts, so that all ranks agree without
/// communication; the slices cover each bucket exactly once (class Owners ensures it).
///
/// Declared property `gives_owners`: each slice has exactly one owner. A reducer may give owners as
/// well (a parameter server does); the trainer refuses two policies that both do.
/// `may_give_owners`: each slice has one owner, or all ranks own it, as the policy's values say.
///
/// Menu (parameters / gradients / optimizer state):
/// - `Replicated`: all ranks / all ranks / the ranks that update. All ranks run the optimizer,
///   unless the reducer gives owners.
/// - `StateSharding`: all ranks / summed at owners / owners. Each rank runs the optimizer on its
///   slices.
/// - `GradientSharding`: all ranks / owners / owners.
/// - `ParameterSharding`: owners / owners / owners.
///
/// The last two declare `shards_gradients` and `shards_parameters`. They require a model in units
/// (extensions/sharded/unit_pass.hpp). Each unit is cut like a bucket, into one slice per rank in
/// rank order. They come with unisono/sharded.hpp. docs/sharding.md tells when to use which.

#include "unisono/core/policy.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/value.hpp"
#include "unisono/layout/owners.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// Policies that say which rank keeps which part of the optimizer's state, gradients, parameters.
template <class S>
concept sharding_policy = policy_of<S, Family::sharding> && names_owners<S> && requires {
    { S::gives_owners } -> detail::converts_to<bool>;
};

/// Each rank holds all parameters, and all ranks make the same updates of all of them, unless a
/// reducer gives owners (a parameter server). Memory per rank: parameters, gradients, and the
/// optimizer state of the slices that the rank updates.
struct Replicated {
    static constexpr std::string_view name = "replicated";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = false;
    friend bool operator==(const Replicated&, const Replicated&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const { return Owners::everyone(facts.count, facts.world); }
};
UNISONO_CERTIFY(sharding_policy<Replicated>);

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
/// Otherwise (other reducers, clipping by norm, compression, Reproducible, a device) the three are
/// separate passes over the memory.
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
