#pragma once

/// \file
/// Who owns which slice: the owner of a slice holds its optimizer state, receives the sum of its gradients, runs the
/// optimizer on it and publishes its parameters.
///
/// Laws: `owners(facts)` is a pure function of the facts, so that all ranks agree without a word; the slices cover
/// each bucket exactly once (class Owners sees to it).
///
/// Declared property `gives_owners`: each slice has exactly one owner. A reducer may give owners too (a parameter server
/// does); the trainer refuses two policies that both do. `may_give_owners`: it depends on what is found when training begins.
///
/// | policy              | parameters | gradients | optimizer state | who runs the optimizer           |
/// |---------------------|------------|-----------|-----------------|----------------------------------|
/// | `Replicated`        | all ranks  | all ranks | who updates     | all ranks, unless the reducer gives owners |
/// | `StateSharding`     | all ranks  | summed at owners | owners   | each rank on its slices          |
/// | `AutomaticSharding` | all ranks  | as one of these two | as one of these two | whichever is faster, as measured |
/// | `GradientSharding`  | all ranks  | owners    | owners          | each rank on its slices          |
/// | `ParameterSharding` | owners     | owners    | owners          | each rank on its slices          |
///
/// The last two declare `shards_gradients` and `shards_parameters`: they ask for a model in units (model/unit_pass.hpp), each of which
/// is cut like a bucket, into a slice for every rank in the order of ranks. They come with unisono/sharded.hpp. docs/sharding.md
/// says when which.

#include "unisono/core/policy.hpp"
#include "unisono/layout/bucket_facts.hpp"

#include <concepts>

UNISONO_NAMESPACE_BEGIN

template <class S>
concept sharding_policy = policy_of<S, Family::sharding> && names_owners<S> && requires {
    { S::gives_owners } -> std::convertible_to<bool>;
};

UNISONO_NAMESPACE_END
