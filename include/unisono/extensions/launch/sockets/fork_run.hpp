#pragma once

/// \file
/// Ranks as forked processes of this host. (`run` in group/run.hpp has ranks as threads.)

#include "unisono/core/standard.hpp"
#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"

#include <concepts>

UNISONO_NAMESPACE_BEGIN

/// Options of forked ranks.
struct ForkOptions {
    /// Time limit of the whole call; then all ranks are killed.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    /// Time in which the other ranks may end after one has failed.
    std::chrono::nanoseconds grace = std::chrono::seconds(5);
    bool bind_to_cores = false; ///< binds rank r to the r-th available core, modulo their number

    friend bool operator==(const ForkOptions&, const ForkOptions&) = default;
};

namespace detail {

/// The work of forked ranks, without the body's type.
class ForkedWork {
public:
    explicit ForkedWork(bool is_connected) : connected(is_connected) {}
    ForkedWork(const ForkedWork&) = delete;
    ForkedWork& operator=(const ForkedWork&) = delete;

    const bool connected; ///< the ranks have a control plane
    /// Runs one rank. `plane`: nullptr unless `connected`.
    virtual void be(const Identity& me, ControlPlane* plane) = 0;

protected:
    ~ForkedWork() = default;
};

void fork_ranks(int ranks, ForkedWork& work, const ForkOptions& options);

} // namespace detail

/// Runs `body` in `ranks` processes forked from this one, and returns when all have ended. The body
/// gets the rank's `ControlPlane&` (the ranks are connected before the body begins), or only its
/// `const Identity&`.
///
/// When a rank fails (throws, exits with a status other than 0, or is killed), the others learn of
/// it over their control plane, and have the time `grace` to end; then they are killed. This call
/// throws the first failure as `error`; a user's own exception becomes `aborted`, with its text. It
/// also throws if SIGCHLD is ignored, so that the system does not report how ranks end. No process,
/// zombie or port of a rank remains. Changes to memory stay in the ranks; stdio and the standard
/// streams are flushed, and no other std::ofstream is. If this process is killed, the ranks are
/// killed as well.
///
/// Errors: refused if this process has other threads, or cannot fork; bad_input for fewer than 1 or
/// more than 4096 ranks; timeout after `options.timeout`, naming the ranks that still ran.
template <class Body>
    requires std::invocable<Body&, ControlPlane&> || std::invocable<Body&, const Identity&>
void fork_run(int ranks, Body body, const ForkOptions& options = {}) {
    struct Work final : detail::ForkedWork {
        explicit Work(Body& given) : ForkedWork(std::invocable<Body&, ControlPlane&>), body(given) {}
        void be(const Identity& me, ControlPlane* plane) override {
            if constexpr (std::invocable<Body&, ControlPlane&>) body(*plane);
            else body(me);
        }
        Body& body;
    };
    Work work(body);
    detail::fork_ranks(ranks, work, options);
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/extensions/launch/control/hub.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/processes.hpp"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The fault of a rank, and its time.
struct Report {
    Fault fault = {};
    nanoseconds when = 0;
};
/// A child's message to its parent before it ends. The parent gets it even if the system does not
/// report how the child ended.
struct LastWords {
    bool well = false;
    std::optional<Report> failure = {};
};

/// The last words: the time, and the fault or a zero.
inline Blob encode_last_words(const Fault* fault) {
    WireWriter out;
    out.u64(static_cast<std::uint64_t>(steady_now()));
    if (fault == nullptr) out.u8(0); // a code that no fault has
    else write(out, *fault);
    return out.take();
}
/// Never waits. An empty pipe may have one page, so the message is cut to fit.
inline void send_last_words(int fd, const Fault* fault) {
    Blob bytes = encode_last_words(fault);
    const int room = ::fcntl(fd, F_GETPIPE_SZ);
    if (fault != nullptr && room > 0 && bytes.size() > static_cast<std::size_t>(room)) {
        Fault shorter = *fault;
        shorter.operation.resize(std::min<std::size_t>(shorter.operation.size(), 256));
        shorter.message.resize(std::min(shorter.message.size(), static_cast<std::size_t>(room) - 512));
        bytes = encode_last_words(&shorter);
    }
    [[maybe_unused]] const ssize_t written = ::write(fd, bytes.data(), bytes.size());
}

/// Returns neither time nor fault if the child has ended and has not sent a complete message. Does
/// not wait for the pipe's end, since a process that the child has forked may hold it.
inline LastWords hear_last_words(int fd, int ranks) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    std::byte bytes[2 * most_text_bytes + 64];
    std::size_t size = 0;
    for (ssize_t got = 1; got > 0 && size < sizeof bytes;) {
        got = ::read(fd, bytes + size, sizeof bytes - size);
        if (got > 0) size += static_cast<std::size_t>(got);
    }
    constexpr std::size_t head = sizeof(std::uint64_t);
    if (size == head + 1 && bytes[head] == std::byte{0}) return {.well = true};
    WireReader in(std::span<const std::byte>(bytes, size));
    Report report;
    report.when = static_cast<nanoseconds>(in.u64());
    if (!read(in, ranks, report.fault)) return {};
    return {.failure = std::move(report)};
}

/// Runs one rank and returns its exit status. Passes exceptions to `fail`.
template <class Work, class Fail>
int run_forked(int rank, Work work, Fail fail) {
    try {
        work();
        return 0;
    } catch (...) {
        fail(fault_of_exception(
            {.code = ErrorCode::aborted, .rank = rank, .message = concat({"rank ", rank, " threw: "})}));
        pass_on_end_of_thread();
        return 1;
    }
}

/// The failure that came first, or the failure of the rank that it blames.
inline const Fault& first_failure(const std::vector<std::optional<Report>>& failures) {
    const Report* first = nullptr;
    for (const auto& each : failures)
        if (each && (first == nullptr || each->when < first->when)) first = &*each;
    for (std::size_t hops = 0; hops < failures.size(); ++hops) {
        const int blamed = first->fault.code == ErrorCode::peer_lost ? first->fault.peer : first->fault.rank;
        if (blamed < 0 || !failures[static_cast<std::size_t>(blamed)]) break;
        first = &*failures[static_cast<std::size_t>(blamed)];
    }
    return first->fault;
}

/// Waits for all ranks. Throws the first failure that was reported.
inline void await_forked(Processes& processes, const std::vector<FileDescriptor>& reports, const ForkOptions& options) {
    const int ranks = processes.size();
    const nanoseconds limit = deadline_after(steady_now(), options.timeout);
    nanoseconds deadline = limit;
    std::vector<std::optional<Report>> failures(static_cast<std::size_t>(ranks));
    bool failed = false;
    while (processes.running() > 0) {
        const auto end = processes.wait_any(deadline);
        if (!end) break;
        const auto index = static_cast<std::size_t>(end->index);
        LastWords said = hear_last_words(reports[index].get(), ranks);
        if (!said.failure && (end->good() || (said.well && !end->known))) continue;
        failures[index] = std::move(said.failure);
        if (!failures[index]) { // the rank could not send its failure
            const std::string who = concat({"rank ", end->index, " (pid ", processes.pid(end->index), ") "});
            const bool exited = end->known && end->signal == 0;
            failures[index] = Report{{.code = exited ? ErrorCode::aborted : ErrorCode::peer_lost,
                                      .rank = end->index,
                                      .peer = exited ? -1 : end->index,
                                      .message = who + end->text()},
                                     steady_now()};
        }
        if (!failed) deadline = std::min(limit, deadline_after(steady_now(), options.grace));
        failed = true;
    }
    std::vector<int> late;
    for (int rank = 0; rank < ranks; ++rank)
        if (processes.is_running(rank)) late.push_back(rank);
    processes.stop(std::chrono::nanoseconds(0));
    if (failed) throw error(first_failure(failures));
    if (late.empty()) return;
    throw error(Fault{.code = ErrorCode::timeout,
                      .peer = late.front(),
                      .operation = "fork_run",
                      .message = concat({"still running after ", options.timeout.count() / 1'000'000,
                                         " ms, and killed: ", list_of(late)})});
}

UNISONO_DEFINITION void fork_ranks(int ranks, ForkedWork& work, const ForkOptions& options) {
    if (ranks < 1 || ranks > 4096) refuse_input({"fork_run has 1 to 4096 ranks, found ", ranks});
    if (options.timeout.count() <= 0) refuse_input("ForkOptions::timeout must be positive");
    if (options.grace.count() < 0) refuse_input("ForkOptions::grace must not be negative");
    refuse_other_threads("fork_run");

    Listener listener;
    if (work.connected) listener = listen_at(true, 0);
    RendezvousPoint point;
    point.host = "127.0.0.1";
    point.port = listener.port;
    point.launcher_listens = true;
    point.launcher = ::getpid();
    point.token = JobToken::random();
    std::vector<FileDescriptor> reports;
    Processes processes;
    for (int rank = 0; rank < ranks; ++rank) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw error(ErrorCode::refused, concat({"no pipe: ", errno_text(errno)}));
        reports.emplace_back(ends[0]);
        const FileDescriptor writing(ends[1]);
        processes.start([&] {
            listener.socket.close();
            reports.clear();
            if (options.bind_to_cores) bind_to_core(rank);
            const auto report = [&](const Fault& fault) { send_last_words(writing.get(), &fault); };
            const auto ended = [&](int status) {
                if (status == 0) send_last_words(writing.get(), nullptr);
                return status;
            };
            const Identity me{.rank = rank,
                              .world = ranks,
                              .local_rank = rank,
                              .local_world = ranks,
                              .hosts = 1,
                              .launcher = Launcher::program};
            if (!work.connected)
                return ended(run_forked(
                    rank, [&] { work.be(me, nullptr); }, report));
            return ended(run_forked(
                rank,
                [&] {
                    ControlPlane plane = rendezvous(me, point, {.timeout = std::chrono::seconds(60)});
                    const int failed = run_forked(
                        rank, [&] { work.be(me, &plane); },
                        [&](const Fault& fault) {
                            plane.abort(fault);
                            report(fault);
                        });
                    if (failed != 0) {
                        plane.leave();
                        flush_output();
                        ::_exit(failed);
                    }
                },
                report));
        });
    }
    std::unique_ptr<Hub> hub; // made after the forks, since it has a thread
    if (work.connected)
        hub = std::make_unique<Hub>(std::move(listener), HubOptions{.world = ranks, .token = point.token});
    await_forked(processes, reports, options);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
