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
#include "unisono/core/value.hpp"
#include "unisono/layout/bucket_facts.hpp"

UNISONO_NAMESPACE_BEGIN

/// Policies that say which rank keeps which part of the optimizer's state, gradients, parameters.
template <class S>
concept sharding_policy = policy_of<S, Family::sharding> && names_owners<S> && requires {
    { S::gives_owners } -> detail::converts_to<bool>;
};

UNISONO_NAMESPACE_END
