#pragma once

/// \file
/// Ranks as processes forked from this one, for transports whose world survives a fork.

#include "unisono/group/run.hpp"

#include <memory>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// A transport whose ranks may be processes that are forked from the one that made their world.
template <class T>
concept process_transport = thread_transport<T> && requires(const typename T::World& world) {
    requires T::World::spans_processes;
    { world.has_left(0) } -> std::same_as<bool>;
};

namespace detail {

/// Runs all ranks as processes forked from this one, and throws the exception that `run` has to
/// throw. `grace` as in RunOptions.
void run_processes(Ranks& all, int ranks, std::chrono::nanoseconds grace);

/// `run` on an existing world, in processes forked from this one.
template <class Transport, class As = Transport>
void run_in_processes(const std::shared_ptr<typename Transport::World>& shared, RankBody<std::type_identity_t<As>> body,
                      const RunOptions& options) {
    if (shared->size() == 1) return run_world<Transport, As>(shared, body, options);
    RanksOf<Transport, As> ranks(shared, options, body);
    run_processes(ranks, shared->size(), options.grace);
}

} // namespace detail

/// Runs `body(world)` in `ranks` processes and returns when all have ended. They are forked from
/// this process, so they begin with its memory, and their changes stay in them. With one rank the
/// body runs in this process.
///
/// If ranks fail, the others' communication is aborted; processes that continue regardless are
/// killed after `options.grace`. Then the world's first fault is thrown: the exception of a rank (a
/// user's own exception as `aborted`, with its text), or peer_lost for a rank that was killed.
/// `failed_rank()` names the rank. No process is left behind, even if this one is killed.
///
/// A rank's process ends when its body returns, without destructors of static objects. stdio,
/// std::cout, std::cerr and std::clog are flushed before the fork and at this end; other streams
/// are not. Make an std::ofstream in the body, or flush an earlier one before `run` and at the
/// body's end. Errors: bad_input for less than 1 rank or too many; refused if this process has
/// other threads, or if no process or memory is available.
template <process_transport Transport, class Body>
void run(int ranks, Body body, const RunOptions& options = {}) {
    if constexpr (detail::takes_group<Body, Transport>) {
        detail::begin_run(ranks, options);
        const auto shared = std::shared_ptr<typename Transport::World>(new typename Transport::World(ranks));
        detail::run_in_processes<Transport>(shared, body, options);
    } else detail::refuse_body<Body>();
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/launch/processes.hpp"

#include <csignal>

UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION const char* name_of_signal(int signal) {
    switch (signal) {
    case SIGABRT: return "it called abort: SIGABRT";
    case SIGBUS: return "access to memory that does not exist: SIGBUS";
    case SIGFPE: return "arithmetic: SIGFPE";
    case SIGILL: return "an illegal instruction: SIGILL";
    case SIGINT: return "interrupted: SIGINT";
    case SIGKILL: return "killed from outside, often for lack of memory: SIGKILL";
    case SIGSEGV: return "access to an invalid address: SIGSEGV";
    case SIGTERM: return "asked to end: SIGTERM";
    default: return "see signal(7)";
    }
}

/// The fault for a process that ended without leaving its world; it tells how the process ended.
[[gnu::cold]] UNISONO_DEFINITION Fault lost_process(const ProcessEnd& end) {
    return {.code = ErrorCode::peer_lost,
            .rank = -1,
            .peer = end.index,
            .operation = "run",
            .message = end.signal != 0 ? concat({"rank ", end.index, " was killed by signal ", end.signal, " (",
                                                 name_of_signal(end.signal), ")"})
                       : !end.known    ? concat({"rank ", end.index, "'s process ended before its body returned"})
                                       : concat({"rank ", end.index, "'s process ended with status ", end.status,
                                                 " before its body returned"})};
}

[[gnu::cold]] UNISONO_DEFINITION void run_processes(Ranks& all, int ranks, std::chrono::nanoseconds grace) {
    refuse_other_threads("run");
    Processes processes;
    for (int rank = 0; rank < ranks; ++rank) {
        try {
            processes.start([&] { return all.be(rank) ? 1 : 0; });
        } catch (const error& failed) {
            all.abort(ranks, Fault{.code = failed.code(),
                                   .rank = rank,
                                   .operation = "run",
                                   .message = concat(
                                       {"no process for rank ", rank, " of ", ranks, ": ", failed.why().message})});
            break;
        }
    }
    nanoseconds until = never;
    while (processes.running() > 0) {
        const auto end = processes.wait_any(steady_now() + 50'000'000);
        if (end && !all.has_left(end->index)) all.abort(ranks, lost_process(*end));
        if (all.first_fault() == nullptr) continue;
        if (until == never) until = deadline_after(steady_now(), grace);
        if (steady_now() >= until) processes.signal_all(SIGKILL);
    }
    const Fault* const fault = all.first_fault();
    rank_that_failed = -1;
    if (fault == nullptr) return;
    note_failed_rank(*fault);
    throw error(*fault);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
