#pragma once

/// \file
/// The common form of policies: a plain value of named parameters.
///
/// Laws: an aggregate with defaults (so that `RingReducer{.chunk_bytes = 1 << 20}` works), compared
/// by `==`, with a `name` for people and a `family` for the trainer, which accepts policies in any
/// order and each family at most once. State that lives during a training is not in the policy but
/// in the run that the policy starts.

#include "unisono/core/config.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The part of a training that a policy decides: each family at most once in a Trainer.
enum class Family : std::uint8_t {
    sampler,
    accumulation,
    compression,
    reducer,
    guard,
    update,
    sharding,
    optimizer,
    learning_rate,
    weighing,
    observer,
    replicas,
    summation,
    clipping,
    loss_scaling,
    trace,
    snapshots,
};

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view family_names[] = {
    "sampler",   "accumulation", "compression",   "reducer",  "guard",    "update",
    "sharding",  "optimizer",    "learning rate", "weighing", "observer", "replicas",
    "summation", "clipping",     "loss scaling",  "trace",    "snapshots"};
} // namespace detail

constexpr std::string_view name_of(Family which) { return detail::family_names[static_cast<std::size_t>(which)]; }

/// Values that say how one part of a training is done.
template <class P>
concept policy = detail::copyable_value<P> && detail::comparable_value<P> && requires {
    { P::name } -> detail::converts_to<std::string_view>;
    { P::family } -> detail::converts_to<Family>;
};

/// Policies of one family.
template <class P, Family Which>
concept policy_of = policy<P> && P::family == Which;

UNISONO_NAMESPACE_END
