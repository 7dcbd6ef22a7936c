#pragma once

/// \file
/// A group for programs that choose their transport at run time: one type for several transports.
/// Not part of the umbrella.
///
/// It is a group over one of the transports that map their peers' memory, and costs no more. A
/// world is made by `run<AnyTransport>(name, ranks, body)`, for threads or processes that the
/// program starts, by `join<AnyTransport>()`, as a launcher has started them, or from another
/// group.
///
/// Absent on purpose: `Simulated`. Its time passes differently, so a trainer must know it at
/// compile time, and its ranks share no memory. A program that simulates names it.

#include "unisono/group/group.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/join.hpp"
#include "unisono/transport/in_process.hpp"

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Names any transport that maps peers, in the type of a group. It has no objects.
class AnyTransport : public Endpoint {
public:
    static constexpr std::string_view name = "any";
    static constexpr bool maps_peers = true;
    AnyTransport() = delete;
};

template <>
class Group<AnyTransport> : public GroupCore {
public:
    using transport_type = AnyTransport;

    /// A world of one.
    Group() : Group(Group<InProcess>()) {}
    /// Takes a group over.
    template <transport Transport>
        requires(Transport::maps_peers)
    explicit Group(Group<Transport>&& group) : GroupCore(std::move(group)) {}

    /// See the other groups.
    [[nodiscard]] Group split(int colour, int key) { return Group(GroupCore::split(colour, key)); }

    /// `facts().name` is the transport's.
    [[nodiscard]] Endpoint& endpoint() { return core_endpoint(); }
    [[nodiscard]] const Endpoint& endpoint() const { return core_endpoint(); }

private:
    explicit Group(GroupCore&& core) : GroupCore(std::move(core)) {}
};

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
