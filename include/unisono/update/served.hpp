#pragma once

/// \file
/// What updates have in common that servers make, each as a gradient comes (see update.hpp).
///
/// The last `servers` ranks of the world hold the parameters in slices, with the optimizer's state, and do nothing else: no data, no
/// passes. The other ranks are workers. A worker *pushes* its gradient to all servers, is answered with parameters, and goes on. Its
/// *clock* counts its pushes since the ranks last met. A push without a gradient (no data, or one that a guard left out) ticks, too.
///
/// A policy of the kind declares `served`, and says besides what an update policy says:
///  - `servers`: how many ranks are servers. A world of one rank has none, and is what it is with Synchronous;
///  - `together()`: a server waits for a push of every worker, and makes one update of their weighted mean. Else each gradient is an
///    update by itself, made as it comes;
///  - `backups`, if it has that: together, but so many of the workers that are still at work may miss it, and what they push then is dropped;
///  - `goes_on(clock, slowest)`: whether a worker whose clock is `clock` is answered, `slowest` being the least clock of the workers
///    that have not come to meet. Must hold for clock == slowest;
///  - if `compensates`: `compensate(gradients, scale, parameters, read)` makes of the mean gradient (gradients * scale), computed where
///    the parameters were `read`, one for where they are now. A server keeps the parameters that each worker has read.
///
/// Each gradient is applied with the learning rate of its worker's clock, whole: W workers make W updates a clock, each as large as a
/// lone worker's (the linear scaling rule, the other way round), except where they are made `together`.
///
/// *Staleness* of a gradient: the updates that a server has made between reading out the parameters it was computed from and applying it.
///
/// Ranks meet (`synchronise()`, the beginning and end of `fit`, `evaluate`, `predict`): when all workers have come there, however many
/// updates each has made, all ranks get the servers' parameters and clocks are 0 again.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/update/synchronous.hpp"

#include <concepts>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

template <class U>
concept served_update_policy = update_policy<U> && requires(const U& update, std::uint64_t clock) {
    requires U::served;
    { update.servers } -> std::convertible_to<int>;
    { update.together() } -> std::same_as<bool>;
    { update.goes_on(clock, clock) } -> std::same_as<bool>;
    update.check();
};

namespace detail {

inline void check_servers(std::string_view name, int servers) {
    if (servers < 1) refuse_input({name, ".servers is ", servers, "; expected at least 1"});
}

} // namespace detail
UNISONO_NAMESPACE_END
