#pragma once

/// \file
/// A world from the environment: processes that unisono-run, torchrun, mpirun or srun started find
/// each other and become the ranks of one world. Without a launcher the program is a world of one.
/// See docs/launching.md. Not part of the umbrella, since it includes sockets and threads.

#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/group/run.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/overseer.hpp"
#include "unisono/transport/shared_memory.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Options of `join`.
struct JoinOptions {
    /// Timeout of every blocking call on the world. At the end of the world, rank 0 waits no longer
    /// than this for the other ranks' goodbyes.
    std::chrono::nanoseconds timeout = std::chrono::minutes(10);
    /// Among others: times to wait for other ranks, at the beginning and at the end.
    RendezvousOptions rendezvous = {};
    std::size_t arena_bytes = 0; ///< the most bytes that a rank may allocate; 0: the memory of the machine

    friend bool operator==(const JoinOptions&, const JoinOptions&) = default;
};

/// A transport whose ranks may be processes that share only a control plane.
template <class T>
concept joinable_transport = transport<T> && requires(ControlPlane control, nanoseconds deadline, std::size_t bytes) {
    { T::join(std::move(control), deadline, bytes) } -> std::same_as<T>;
};

/// As above, over a network: with options of its own, which name the interface and ports.
template <class T>
concept network_transport = transport<T> && requires { typename T::Options; } &&
                            requires(ControlPlane control, nanoseconds deadline, const typename T::Options& options) {
                                { T::join(std::move(control), deadline, options) } -> std::same_as<T>;
                            };

namespace detail {

template <class Transport>
Group<Transport> begin_world(Transport endpoint, const JoinOptions& options) {
    Group<Transport> world(std::move(endpoint));
    world.set_timeout(options.timeout);
    return world;
}

/// The control plane of this process's job: its rank, and the addresses of the others, from the
/// environment.
ControlPlane rendezvous_of_job(const JoinOptions& options);

void check_join(const JoinOptions& options);

} // namespace detail

/// The world of the processes of this control plane, after their rendezvous. The control plane then
/// belongs to the world: the world's first fault is the job's, all ranks learn of a death at once,
/// and a timeout names the rank that caused it. Collective.
///
/// The world ends with its last `Group` and the last memory that it allocated. Errors, the same on
/// all ranks: those that `Transport::join` refuses (processes of several hosts or users, no
/// memory); the job's first fault.
template <joinable_transport Transport>
[[nodiscard]] Group<Transport> join(ControlPlane control, const JoinOptions& options = {}) {
    detail::check_join(options);
    control.linger_at_most(options.timeout);
    const nanoseconds deadline = deadline_after(steady_now(), options.rendezvous.timeout);
    return detail::begin_world(Transport::join(std::move(control), deadline, options.arena_bytes), options);
}

/// As above, over a network, whose options name the interface and ports.
template <network_transport Transport>
[[nodiscard]] Group<Transport> join(ControlPlane control, const JoinOptions& options = {},
                                    const typename Transport::Options& network = {}) {
    detail::check_join(options);
    control.linger_at_most(options.timeout);
    const nanoseconds deadline = deadline_after(steady_now(), options.rendezvous.timeout);
    return detail::begin_world(Transport::join(std::move(control), deadline, network), options);
}

/// The world that this process belongs to, as its environment describes it: `identify` finds the
/// rank and `rendezvous_point` the address of the others. Without a launcher it is a world of one.
/// Collective over the job. A process may join several jobs.
///
///     auto world = un::join<un::SharedMemory>();
///
/// If a rank leaves its world by an exception, the world's fault is `aborted`. Only `run_joined`
/// also sends the exception's text.
///
/// Errors: those of `identify`, `rendezvous_point` and `rendezvous`, and as above. refused for a
/// transport whose ranks are threads (InProcess), if the launcher has started several processes.
template <transport Transport>
    requires joinable_transport<Transport> || (thread_transport<Transport> && !network_transport<Transport>)
[[nodiscard]] Group<Transport> join(const JoinOptions& options = {}) {
    detail::check_join(options);
    if constexpr (joinable_transport<Transport>) {
        return join<Transport>(detail::rendezvous_of_job(options), options);
    } else {
        const Identity me = identify();
        if (me.world != 1)
            throw error(ErrorCode::refused,
                        concat({"ranks of ", Transport::name, " are threads of one process, but this process is rank ",
                                me.rank, " of ", me.world, " that ", name_of(me.launcher),
                                " started: join<SharedMemory>, or start one process"}));
        return detail::begin_world(Transport(std::make_shared<typename Transport::World>(1), 0), options);
    }
}

/// As above, over a network, with the program's interface and ports. The environment may complete
/// them.
template <network_transport Transport>
[[nodiscard]] Group<Transport> join(const JoinOptions& options = {}, const typename Transport::Options& network = {}) {
    detail::check_join(options);
    return join<Transport>(detail::rendezvous_of_job(options), options, network);
}

namespace detail {

/// Runs this rank's body, and passes on its exception.
template <class Transport>
void run_on(Group<Transport> world, RankBody<Transport> body, const JoinOptions& options) {
    const int rank = world.rank();
    const auto failed = run_rank<Transport>(std::move(world), RunOptions{.timeout = options.timeout}, body);
    if (!failed) return;
    rank_that_failed = rank;
    std::rethrow_exception(failed);
}

} // namespace detail

/// Runs `body(world)` on the world that this process belongs to. An exception becomes the world's
/// fault, so that no rank waits for this one, and is passed to the caller. Errors: as `join`.
template <transport Transport, class Body>
void run_joined(Body body, const JoinOptions& options = {}) {
    detail::rank_that_failed = -1;
    detail::run_on<Transport>(join<Transport>(options), body, options);
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION ControlPlane rendezvous_of_job(const JoinOptions& options) {
    heed_launcher();
    const Environment environment = Environment::of_process();
    if (identify(environment).rank == 0) warn_of_unknown_variables(environment);
    return rendezvous(options.rendezvous);
}

UNISONO_DEFINITION void check_join(const JoinOptions& options) {
    if (options.timeout.count() <= 0) refuse_input("JoinOptions::timeout must be positive");
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif

#if defined(UNISONO_COMPILED) // what the library unisono::compiled has
UNISONO_NAMESPACE_BEGIN

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#define UNISONO_COMPILED_JOIN template
#else
#define UNISONO_COMPILED_JOIN extern template
#endif
UNISONO_COMPILED_JOIN class detail::ControlOverseer<ControlPlane>;
UNISONO_COMPILED_JOIN SharedMemory SharedMemory::join<ControlPlane>(ControlPlane, nanoseconds, std::size_t);

UNISONO_NAMESPACE_END
#endif
