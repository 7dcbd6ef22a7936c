#pragma once

/// \file
/// Ranks as processes that are forked here, for transports whose world survives a fork.

#include "unisono/group/run.hpp"
#include "unisono/launch/host.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A transport whose ranks may be processes forked from the one that made their world.
template <class T>
concept process_transport = thread_transport<T> && requires(const typename T::World& world) {
    requires T::World::spans_processes;
    { world.has_left(0) } -> std::same_as<bool>;
};

namespace detail {

/// The processes of a run; whatever happens, none is left behind.
class RankProcesses {
public:
    explicit RankProcesses(int ranks) : children_(static_cast<std::size_t>(ranks)) {}
    RankProcesses(const RankProcesses&) = delete;
    RankProcesses& operator=(const RankProcesses&) = delete;
    ~RankProcesses() {
        kill_all();
        for (Child& child : children_) {
            if (child.process > 0) end(child, 0);
        }
    }

    /// Runs `be()` in a process of its own, which ends with what that returns. False if there is none to be had.
    template <class Be>
    bool start(int rank, Be be) {
        const pid_t parent = ::getpid();
        const pid_t made = ::fork();
        if (made < 0) return false;
        if (made == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1); // it ended before we asked to be told
            const int status = be();
            static_cast<void>(std::fflush(nullptr));
            ::_exit(status);
        }
        Child& child = children_[static_cast<std::size_t>(rank)];
        child.process = made;
        child.handle = static_cast<int>(::syscall(SYS_pidfd_open, made, 0));
        return true;
    }

    /// Waits until a process has ended, for at most `limit_ms`; its rank, or -1. `status` is as of waitpid.
    int wait(int limit_ms, int& status) {
        std::vector<pollfd> ends;
        bool all_have_handles = true;
        for (const Child& child : children_) {
            if (child.process <= 0) continue;
            if (child.handle < 0) all_have_handles = false;
            else ends.push_back({.fd = child.handle, .events = POLLIN, .revents = 0});
        }
        ::poll(ends.data(), static_cast<nfds_t>(ends.size()), all_have_handles ? limit_ms : std::min(limit_ms, 2));
        for (std::size_t rank = 0; rank < children_.size(); ++rank) {
            if (children_[rank].process > 0 && end(children_[rank], WNOHANG)) {
                status = children_[rank].status;
                return static_cast<int>(rank);
            }
        }
        return -1;
    }

    [[nodiscard]] bool any() const {
        return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.process > 0; });
    }
    void kill_all() const {
        for (const Child& child : children_) {
            if (child.process > 0) ::kill(child.process, SIGKILL); // not yet waited for: the number is still its own
        }
    }

private:
    struct Child {
        pid_t process = 0;
        int handle = -1; ///< readable when it has ended
        int status = 0;
    };

    /// True once it has ended and was waited for.
    static bool end(Child& child, int flags) {
        pid_t ended = 0;
        do {
            ended = ::waitpid(child.process, &child.status, flags);
        } while (ended < 0 && errno == EINTR);
        if (ended == 0) return false;
        if (ended < 0) child.status = 0; // the program ignores SIGCHLD: how it ended is not known
        if (child.handle >= 0) ::close(child.handle);
        child.process = 0;
        child.handle = -1;
        return true;
    }

    std::vector<Child> children_;
};

/// What one rank's process does; its exit status.
template <class Transport, class Body>
int be_rank(const std::shared_ptr<typename Transport::World>& shared, int rank, const RunOptions& options, Body& body) {
    try {
        if (options.bind_to_cores) bind_to_core(rank);
        return run_rank(Group(Transport(shared, rank)), options, body) ? 1 : 0;
    } catch (const std::exception& failed) { // before the body began
        shared->abort(rank, Fault{.code = ErrorCode::refused,
                                  .rank = rank,
                                  .peer = -1,
                                  .operation = "run",
                                  .sequence = 0,
                                  .message = concat({"rank ", rank, " could not begin: ", failed.what()})});
        return 1;
    }
}

inline const char* name_of_signal(int signal) {
    switch (signal) {
    case SIGABRT: return "it gave up: SIGABRT";
    case SIGBUS: return "memory that is not there: SIGBUS";
    case SIGFPE: return "arithmetic: SIGFPE";
    case SIGILL: return "an unknown instruction: SIGILL";
    case SIGINT: return "interrupted: SIGINT";
    case SIGKILL: return "killed from outside, maybe for want of memory: SIGKILL";
    case SIGSEGV: return "a wrong address: SIGSEGV";
    case SIGTERM: return "asked to end: SIGTERM";
    default: return "see signal(7)";
    }
}

/// A process that ended without leaving its world: how, for people.
inline Fault lost_process(int rank, int status) {
    Fault fault{
        .code = ErrorCode::peer_lost, .rank = -1, .peer = rank, .operation = "run", .sequence = 0, .message = {}};
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        fault.message = concat({"rank ", rank, " was killed by signal ", signal, " (", name_of_signal(signal), ")"});
    } else {
        fault.message =
            concat({"rank ", rank, "'s process ended with status ", WEXITSTATUS(status), " before its body returned"});
    }
    return fault;
}

} // namespace detail

/// Runs `body(world)` in `ranks` processes and returns when all have ended. They are forked here, so that they begin with all
/// that this process has in memory; what they change there stays with them. With one rank the body runs in this process.
///
/// If ranks fail, the others' communication is aborted; processes that go on all the same are killed after `options.grace`.
/// Then the world's first fault is thrown: what a rank threw (a user's own exception as `aborted`, with its text), or
/// peer_lost for a rank that was killed. No process is left behind, also if this one is killed.
///
/// A rank's process ends when its body returns, without destructors of static objects; C streams are flushed. Errors:
/// bad_input for less than 1 rank or too many; refused if this process has other threads, or if there is no process or
/// memory to be had.
template <process_transport Transport, class Body>
void run(int ranks, Body body, const RunOptions& options = {}) {
    detail::check_run(ranks, options);
    const auto shared = std::make_shared<typename Transport::World>(ranks);
    if (ranks == 1) return detail::run_world<Transport>(shared, body, options);
    refuse_other_threads("run");
    static_cast<void>(std::fflush(nullptr)); // else each rank would write what is waiting
    detail::RankProcesses processes(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        if (processes.start(rank, [&] { return detail::be_rank<Transport>(shared, rank, options, body); })) continue;
        const int failed = errno;
        shared->abort(ranks, Fault{.code = ErrorCode::refused,
                                   .rank = rank,
                                   .peer = -1,
                                   .operation = "run",
                                   .sequence = 0,
                                   .message = concat({"no process for rank ", rank, " of ", ranks, ": ",
                                                      std::generic_category().message(failed)})});
        break;
    }
    nanoseconds until = never;
    while (processes.any()) {
        int status = 0;
        const int ended = processes.wait(50, status);
        if (ended >= 0 && !shared->has_left(ended)) shared->abort(ranks, detail::lost_process(ended, status));
        if (shared->first_fault() == nullptr) continue;
        if (until == never) until = deadline_after(steady_now(), options.grace);
        if (steady_now() >= until) processes.kill_all();
    }
    if (const Fault* fault = shared->first_fault(); fault != nullptr) throw error(*fault);
}

UNISONO_NAMESPACE_END
