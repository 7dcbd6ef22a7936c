#pragma once

/// \file
/// Programs that choose their transport at run time: by a name, for threads or processes that the
/// program starts, or as a launcher has started them. See extensions/any/any.hpp. Not part of the
/// umbrella.

#include "unisono/extensions/any/any.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/join.hpp"

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Runs `body(world)`, where `world` is a `Group<AnyTransport>&`, on ranks of the named transport:
/// threads of this process ("in_process") or processes forked from it ("shared_memory"). Otherwise
/// as `run` of that transport. Errors: bad_input for another name.
template <class Transport, class Body>
    requires std::same_as<Transport, AnyTransport>
void run(std::string_view transport, int ranks, Body body, const RunOptions& options = {}) {
    if constexpr (detail::takes_group<Body, AnyTransport>) {
        detail::begin_run(ranks, options);
        if (transport == InProcess::name)
            return detail::run_world<InProcess, AnyTransport>(std::make_shared<InProcess::World>(ranks), body, options);
        if (transport == SharedMemory::name)
            return detail::run_in_processes<SharedMemory, AnyTransport>(std::make_shared<SharedMemory::World>(ranks),
                                                                        body, options);
        refuse_input(
            {"no transport is called '", transport, "'; expected ", InProcess::name, " or ", SharedMemory::name});
    } else detail::refuse_body<Body>();
}
/// As above, on threads.
template <class Transport, class Body>
    requires std::same_as<Transport, AnyTransport>
void run(int ranks, Body body, const RunOptions& options = {}) {
    run<Transport>(InProcess::name, ranks, std::move(body), options);
}

/// The world of the processes of this control plane: over SharedMemory (see there), or InProcess
/// for a single process. Otherwise as `join` of SharedMemory.
template <class Transport>
    requires std::same_as<Transport, AnyTransport>
[[nodiscard]] Group<AnyTransport> join(ControlPlane control, const JoinOptions& options = {}) {
    if (control.size() != 1) return Group<AnyTransport>(join<SharedMemory>(std::move(control), options));
    detail::check_join(options);
    Group<AnyTransport> alone;
    alone.set_timeout(options.timeout);
    return alone;
}
/// As above, as the environment describes the job.
template <class Transport>
    requires std::same_as<Transport, AnyTransport>
[[nodiscard]] Group<AnyTransport> join(const JoinOptions& options = {}) {
    detail::check_join(options);
    return join<AnyTransport>(detail::rendezvous_of_job(options), options);
}

UNISONO_NAMESPACE_END
