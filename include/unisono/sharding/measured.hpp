#pragma once

/// \file
/// A sharding that the trainer measures before it trains.

#include "unisono/sharding/sharding.hpp"

#include <concepts>

UNISONO_NAMESPACE_BEGIN

/// Seconds of an update, without the model's part, if each rank updates all parameters or only its
/// slices. A plain value, so that a program can keep it.
struct ShardingCosts {
    double replicated = 0; ///< 0: not measured
    double sharded = 0;
    friend bool operator==(const ShardingCosts&, const ShardingCosts&) = default;

    /// True if both times are set, valid or not.
    [[nodiscard]] bool measured() const { return replicated != 0 && sharded != 0; }
};

/// A sharding that depends on the cost of updates: unless the program gives the costs, the trainer
/// measures them before it asks for owners.
template <class S>
concept measured_sharding = sharding_policy<S> && requires(S& policy) {
    { policy.costs } -> std::same_as<ShardingCosts&>;
};

UNISONO_NAMESPACE_END
