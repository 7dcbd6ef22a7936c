#pragma once

/// \file
/// Replicated or sharded optimizer state, whichever is faster.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/sharding/measured.hpp"
#include "unisono/sharding/state.hpp"

#include <concepts>

UNISONO_NAMESPACE_BEGIN

/// StateSharding if that makes updates faster on these ranks, else Replicated. Unless the program
/// gives costs, the trainer measures them when it is made: a few updates in each way with its own
/// reducer, guard and optimizer, on memory of the model's shape. Rank 0's times decide on all
/// ranks. Takes some tens of updates, and during that time as much memory as two more trainers.
///
/// The bits of training do not depend on the choice if those of StateSharding equal those of
/// Replicated. The contents of `trainer.optimizer_state()` do; `trainer.owned()` tells the slices.
struct AutomaticSharding {
    ShardingCosts costs = {}; ///< not measured: the trainer measures

    static constexpr std::string_view name = "automatic sharding";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = false; ///< not always
    static constexpr bool may_give_owners = true;
    friend bool operator==(const AutomaticSharding&, const AutomaticSharding&) = default;

    /// \throws error bad_input: costs that are not valid times
    [[nodiscard]] Owners owners(const BucketFacts& facts) const;
};
UNISONO_CERTIFY(measured_sharding<AutomaticSharding>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Owners AutomaticSharding::owners(const BucketFacts& facts) const {
    if (!(costs.replicated >= 0) || !(costs.sharded >= 0) || !(costs.replicated + costs.sharded < 1e9))
        refuse_input({"AutomaticSharding.costs are ", costs.replicated, " and ", costs.sharded,
                      "; expected two times of an update in seconds, at least 0 and in sum below 1e9"});
    if (costs.sharded < costs.replicated) return StateSharding{}.owners(facts);
    return Owners::everyone(facts.count, facts.world);
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
