#pragma once

/// \file
/// Servers own slices: they receive the sums, run the optimizer and publish the parameters.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/reducer/reducer.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN

/// Ranks 0 to servers - 1 own equal slices of each bucket, and train as the others do. Only servers
/// hold optimizer state. Per bucket and update, each slice is summed to its server, which
/// broadcasts the parameters, with the transport's best schedules.
/// Source: Li et al., "Scaling distributed machine learning with the parameter server" (OSDI 2014),
/// here with servers among the workers.
struct ParameterServerReducer {
    int servers = 1;
    /// The reducer for a later membership of an elastic world. If fewer ranks are left than there
    /// were servers, all are servers.
    [[nodiscard]] ParameterServerReducer within(int ranks) const {
        ParameterServerReducer fewer = *this;
        if (servers > ranks) fewer.servers = ranks;
        return fewer;
    }

    static constexpr std::string_view name = "parameter server";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = true;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const ParameterServerReducer&, const ParameterServerReducer&) = default;

    /// \throws error bad_input: fewer than one server, or more servers than ranks
    [[nodiscard]] Owners owners(const BucketFacts& facts) const;

    template <class World>
    [[nodiscard]] auto start(World& group) const {
        check(group.size());
        return ScheduledReduction<NativeSchedule>{};
    }

private:
    void check(int world) const;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Owners ParameterServerReducer::owners(const BucketFacts& facts) const {
    check(facts.world);
    detail::List<int> ranks(static_cast<std::size_t>(servers));
    for (int server = 0; server < servers; ++server) ranks[static_cast<std::size_t>(server)] = server;
    const std::size_t line = std::max<std::size_t>(1, 64 / facts.element_bytes);
    return Owners::chosen(facts.count, ranks, facts.world, line);
}

UNISONO_DEFINITION void ParameterServerReducer::check(int world) const {
    if (servers < 1 || servers > world)
        refuse_input(
            {"ParameterServerReducer.servers is ", servers, "; expected 1 to ", world, ", the number of ranks"});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
