#pragma once

/// \file
/// Child processes: starts them, waits with a deadline, stops the rest, and leaves none behind.
/// Knows nothing of ranks.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/launch/host.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// How a child process ended.
struct ProcessEnd {
    int index = -1; ///< the process is the n-th that was started
    int status = 0; ///< its exit status, if it ended by itself
    int signal = 0; ///< the signal that killed it; 0: it ended by itself
    /// True if the system has reported how it ended. It does not if SIGCHLD is ignored, or if other
    /// code of this process has waited for the child.
    bool known = true;

    [[nodiscard]] bool good() const { return known && status == 0 && signal == 0; }
    /// As in shells: 128 + signal; 1 if it is not known.
    [[nodiscard]] int exit_code() const { return !known ? 1 : signal != 0 ? 128 + signal : status; }
    [[nodiscard]] std::string text() const;
};

namespace detail {

/// Flushes stdio, and std::cout and the other standard streams. A program that turned
/// sync_with_stdio off has output in them that stdio does not know.
void flush_output() noexcept;
[[gnu::cold]] std::string cannot_fork(int failed);

/// Ends a forked child in its destructor, also where the stack is unwound: nothing of the parent
/// that the child inherited may run in it.
struct ChildEnd {
    int status = 127;

    ChildEnd() = default;
    ChildEnd(const ChildEnd&) = delete;
    ChildEnd& operator=(const ChildEnd&) = delete;
    ~ChildEnd() {
        flush_output();
        ::_exit(status);
    }
};

} // namespace detail

/// The children of one task. One thread uses it. Its destructor kills and reaps those that still
/// run.
class Processes {
public:
    Processes() = default;
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;
    ~Processes() {
        const detail::NotCancelled whole;
        signal_all(SIGKILL);
        while (running_ > 0) static_cast<void>(wait_any(never));
    }

    /// Forks. The child runs `body()`, flushes stdio and the standard streams, and ends with the
    /// status that it returns, without the destructors of the parent's objects. It ends with 127 if
    /// `body()` throws or ends its thread. It is killed when this thread ends.
    /// `own_group`: signals also go to the child's children, and the terminal's signals do not
    /// reach it. Errors: refused if the system cannot fork.
    template <class Body>
    int start(Body body, bool own_group = false) {
        detail::flush_output(); // else the child would write it a second time
        const int parent = ::getpid();
        const int pid = ::fork();
        if (pid < 0) throw error(ErrorCode::refused, detail::cannot_fork(errno));
        if (pid == 0) {
            detail::ChildEnd end;
            if (own_group) ::setpgid(0, 0);
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() == parent) end.status = body();
            return -1; // not reached
        }
        if (own_group) ::setpgid(pid, pid); // parent and child both do it, since either may be first
        children_.push_back({pid, own_group, true, detail::open_process(pid)});
        ++running_;
        return static_cast<int>(children_.size()) - 1;
    }

    [[nodiscard]] int size() const { return static_cast<int>(children_.size()); }
    [[nodiscard]] int running() const { return running_; }
    [[nodiscard]] bool is_running(int index) const { return child(index).running; }
    [[nodiscard]] int pid(int index) const { return child(index).pid; }
    /// A descriptor that is readable once the child has ended; -1 if the system has no such
    /// descriptors, and after `wait_any` has returned its end.
    [[nodiscard]] int descriptor(int index) const { return child(index).process.get(); }

    /// True for a process that runs, or whose end was not returned yet.
    [[nodiscard]] bool owns(int pid) const {
        for (const Child& each : children_)
            if (each.running && each.pid == pid) return true;
        return false;
    }

    /// Sends a signal to all processes that run.
    void signal_all(int number) const;
    /// Sends a signal to one process, if it runs.
    void signal(int index, int number) const;

    /// Returns the end of one child, if one has ended. Never waits.
    std::optional<ProcessEnd> poll_any();

    /// Waits for the next end. Returns nothing at the deadline, or if none runs.
    std::optional<ProcessEnd> wait_any(nanoseconds deadline);

    /// Sends SIGTERM, and after `grace` SIGKILL, to all that still run, and reaps them.
    void stop(std::chrono::nanoseconds grace);

private:
    struct Child {
        int pid = 0;
        bool own_group = false;
        bool running = false;
        detail::FileDescriptor process = {};
    };
    [[nodiscard]] const Child& child(int index) const { return children_[static_cast<std::size_t>(index)]; }

    std::vector<Child> children_;
    int running_ = 0;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/thread_limits.hpp"

#include <iostream>

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void detail::flush_output() noexcept {
    for (std::ostream* const each : {&std::cout, &std::clog, &std::cerr}) {
        try {
            each->flush();
        } catch (const std::exception&) { // the program asked its stream for it; there is no one to tell
        }
    }
    static_cast<void>(std::fflush(nullptr));
}

UNISONO_DEFINITION std::string detail::cannot_fork(int failed) {
    return concat({"cannot fork: ", errno_text(failed), " (", limits_of_threads(), ")"});
}

UNISONO_DEFINITION std::string ProcessEnd::text() const {
    if (!known)
        return "ended, and the system does not say how (is SIGCHLD ignored, or has other code waited for the process?)";
    if (signal == 0) return concat({"exited with status ", status});
    const char* name = ::strsignal(signal); // NOLINT(concurrency-mt-unsafe): each thread has its own since glibc 2.32
    return concat({"was killed by signal ", signal, (name != nullptr ? concat({" (", name, ")"}) : "")});
}

UNISONO_DEFINITION void Processes::signal_all(int number) const {
    for (int index = 0; index < size(); ++index) signal(index, number);
}
UNISONO_DEFINITION void Processes::signal(int index, int number) const {
    const Child& one = child(index);
    if (one.running) ::kill(one.own_group ? -one.pid : one.pid, number);
}

UNISONO_DEFINITION std::optional<ProcessEnd> Processes::poll_any() {
    for (std::size_t i = 0; i < children_.size(); ++i) {
        Child& each = children_[i];
        siginfo_t info = {};
        if (!each.running) continue;
        const bool waited = ::waitid(P_PID, static_cast<id_t>(each.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
        if (waited ? info.si_pid != each.pid : errno != ECHILD) continue;
        if (waited && each.own_group)
            // Processes that it left behind in its group; before its pid can be used again.
            ::kill(-each.pid, SIGKILL);
        int status = 0;
        const bool known = waited && ::waitpid(each.pid, &status, 0) == each.pid;
        each.running = false;
        each.process.close();
        --running_;
        ProcessEnd end{.index = static_cast<int>(i), .known = known};
        if (!known) return end;
        if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
        else end.status = WEXITSTATUS(status);
        return end;
    }
    return std::nullopt;
}

UNISONO_DEFINITION std::optional<ProcessEnd> Processes::wait_any(nanoseconds deadline) {
    while (running_ > 0) {
        if (auto end = poll_any()) return end;
        const nanoseconds now = steady_now();
        if (now >= deadline) return std::nullopt;
        detail::List<pollfd> polled;
        bool all = true;
        for (const Child& each : children_) {
            if (each.running && each.process.valid()) polled.push_back({each.process.get(), POLLIN, 0});
            all = all && (!each.running || each.process.valid());
        }
        const nanoseconds until = all ? deadline : std::min(deadline, now + 2'000'000);
        ::poll(polled.data(), polled.size(), detail::poll_timeout(until));
    }
    return std::nullopt;
}

UNISONO_DEFINITION void Processes::stop(std::chrono::nanoseconds grace) {
    const nanoseconds deadline = deadline_after(steady_now(), grace);
    if (grace.count() > 0) signal_all(SIGTERM);
    while (running_ > 0 && wait_any(deadline)) {
    }
    signal_all(SIGKILL);
    while (running_ > 0) static_cast<void>(wait_any(never));
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
