#pragma once

/// \file
/// The base of updates that servers make, each as a gradient arrives (see update/update.hpp).
///
/// The last `servers` ranks of the world hold the parameters in slices, with the optimizer's state,
/// and only serve: they have no data and make no passes. The other ranks are workers. A worker
/// *pushes* its gradient to all servers, gets parameters as the answer, and continues. Its *clock*
/// counts its pushes since the last synchronisation. A push without a gradient (no data, or one
/// that a guard left out) also advances the clock.
///
/// A served policy declares `Sharding` (`detail::ServerSlices`) and has, in addition to the members
/// of an update policy:
/// - `servers`: the number of servers. A world of one rank has no server, and trains as with
///   Synchronous;
/// - `together()`: if true, a server waits for a push of every worker and makes one update of their
///   weighted mean. Otherwise each gradient is an update by itself, made when it arrives;
/// - `backups` (optional, with `together()`): the number of workers still in training that may miss
///   an update. A push that misses an update is dropped;
/// - `goes_on(clock, slowest)`: true if a worker with clock `clock` may be answered. `slowest` is
///   the least clock of the workers that have not reached a synchronisation. Must be true for clock
///   == slowest;
/// - `compensate(gradients, scale, parameters, read)` (if `compensates`): turns the mean gradient
///   (gradients * scale), computed at the parameters `read`, into a gradient at the current
///   parameters. A server keeps the parameters that each worker has read.
///
/// Each gradient is applied whole, with the learning rate of its worker's clock. So W workers make
/// W updates per clock, each as large as that of a single worker (the linear scaling rule), unless
/// updates are made `together`.
///
/// The *staleness* of a gradient is the number of updates that a server makes between sending the
/// parameters for it and applying it.
///
/// Ranks synchronise in `synchronise()`, at the beginning and end of `fit`, and in `evaluate` and
/// `predict`. When all workers have arrived, however many updates each has made, all ranks get the
/// servers' parameters, and the clocks are reset to 0.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/update/update.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The last ranks own equal slices of each bucket; a world of one rank owns everything.
struct ServerSlices {
    int servers = 1;

    static constexpr std::string_view name = "servers' slices";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const ServerSlices&, const ServerSlices&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const {
        List<int> ranks;
        for (int rank = workers(facts.world); rank < facts.world; ++rank) ranks.push_back(rank);
        if (ranks.empty()) ranks.push_back(0);
        return Owners::chosen(facts.count, ranks, facts.world, std::max<std::size_t>(1, 64 / facts.element_bytes));
    }
    /// The number of workers: ranks 0 to workers - 1 compute gradients.
    [[nodiscard]] int workers(int world) const { return world == 1 ? 1 : world - servers; }
    /// \throws error bad_input: as many servers as ranks
    void check(std::string_view update, int world) const {
        if (world != 1 && servers >= world)
            refuse_input({update, ".servers is ", servers, " in a world of ", world, " ranks; expected at most ",
                          world - 1, ", so that at least one is a worker"});
    }
    /// \throws error bad_input
    void check_backups(std::string_view update, int backups, int world) const {
        if (backups >= workers(world) && world != 1)
            refuse_input({update, ".backups is ", backups, " of ", workers(world), " workers; expected at most ",
                          workers(world) - 1, ", so that the servers wait for at least one"});
    }
};
UNISONO_CERTIFY(sharding_policy<ServerSlices>);

inline void check_servers(std::string_view name, int servers) {
    if (servers < 1) refuse_input({name, ".servers is ", servers, "; expected at least 1"});
}

/// \throws error bad_input: as many servers as ranks, as many backups as workers
template <class Policy>
ServerSlices server_slices(const Policy& policy, int world) {
    const ServerSlices slices{policy.servers};
    slices.check(Policy::name, world);
    if constexpr (requires { policy.backups; }) slices.check_backups(Policy::name, policy.backups, world);
    return slices;
}

} // namespace detail

/// Update policies in which some ranks keep parameters for the others.
template <class U>
concept served_update_policy = update_policy<U> && requires(const U& update, std::uint64_t clock) {
    requires detail::has_servers<U>;
    { update.servers } -> detail::converts_to<int>;
    { update.together() } -> std::same_as<bool>;
    { update.goes_on(clock, clock) } -> std::same_as<bool>;
    update.check();
};

UNISONO_NAMESPACE_END
