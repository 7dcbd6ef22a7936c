#pragma once

/// \file
/// Ranks as threads of one process, for transports that allow it.

#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/value.hpp"
#include "unisono/group/group.hpp"
#include "unisono/launch/cores.hpp"

#include <exception>
#include <memory>
#include <string>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// Options of `run`.
struct RunOptions {
    std::chrono::nanoseconds timeout = std::chrono::minutes(10); ///< of every blocking call on the world
    bool bind_to_cores = false; ///< rank r to the r-th available core, modulo their number
    /// For ranks that are processes: how long they may continue after the first fault before they
    /// are killed.
    std::chrono::nanoseconds grace = std::chrono::seconds(5);

    friend bool operator==(const RunOptions&, const RunOptions&) = default;
};

/// A transport whose ranks may be threads of one process that share a world.
template <class T>
concept thread_transport = transport<T> && requires(std::shared_ptr<typename T::World> world, const Fault& fault) {
    typename T::World;
    new typename T::World(1);
    T(world, 0);
    world->abort(0, fault);
    { world->size() } -> std::same_as<int>;
    { world->first_fault() } -> std::same_as<const Fault*>;
};

namespace detail {

/// The result of `failed_rank`.
[[gnu::visibility("default")]] inline thread_local constinit int rank_that_failed = -1; // one with a shared library

inline void note_failed_rank(const Fault& fault) noexcept {
    rank_that_failed = fault.code == ErrorCode::peer_lost ? fault.peer : fault.rank;
}

/// A rank's body with its type erased, so that the code that makes ranks is compiled once per
/// transport.
template <class Transport>
class RankBody {
public:
    template <class Body>
        requires(!std::is_same_v<Body, RankBody>)
    RankBody(Body& body)
        : body_(std::addressof(body)),
          call_([](void* of, Group<Transport>& world) { (*static_cast<Body*>(of))(world); }) {}
    void operator()(Group<Transport>& world) const { call_(body_, world); }

private:
    void* body_;
    void (*call_)(void*, Group<Transport>&);
};

/// Runs one rank's body; an exception becomes the world's fault, so that the other ranks stop, and
/// so does the end of its thread in the body.
template <class Transport>
[[gnu::cold]] std::exception_ptr run_rank(Group<Transport> world, const RunOptions& options, RankBody<Transport> body) {
    world.set_timeout(options.timeout);
    const int rank = world.rank();
    const bool alone = world.size() == 1;
    const std::shared_ptr<Engine> engine = world.context().engine; // the body may move its group away
    try {
        body(world);
        return nullptr;
    } catch (const error& failed) {
        Fault fault = failed.why();
        const bool told = fault.rank >= 0;
        if (!told) {
            fault.rank = rank;
            if (!alone) fault.message = concat({"rank ", rank, ": ", fault.message});
        }
        abort_world(*engine, fault);
        return told ? std::current_exception() : std::make_exception_ptr(error(fault));
    } catch (...) {
        abort_world(*engine,
                    fault_of_exception(
                        {.code = ErrorCode::aborted, .rank = rank, .message = concat({"rank ", rank, " threw: "})}));
        pass_on_end_of_thread();
        return std::current_exception();
    }
}

[[gnu::cold]] inline Fault could_not_begin(int rank, const std::exception& failed) {
    return {.code = ErrorCode::refused,
            .rank = rank,
            .operation = "run",
            .message = concat({"rank ", rank, " could not begin: ", failed.what()})};
}

/// Makes a rank and runs its body. If the rank cannot be made, that is the world's fault as well.
/// `As`: the transport in the type of the body's group, where that is another (unisono/any.hpp).
template <class Transport, class As>
std::exception_ptr make_and_run_rank(const std::shared_ptr<typename Transport::World>& shared, int rank,
                                     const RunOptions& options, RankBody<As> body) {
    try {
        return run_rank<As>(Group<As>(Group(Transport(shared, rank))), options, body);
    } catch (const error&) {
        const Fault fault = fault_of_exception({.rank = rank});
        shared->abort(rank, fault);
        return std::make_exception_ptr(error(fault));
    } catch (const std::exception& failed) { // no memory, perhaps
        shared->abort(rank, could_not_begin(rank, failed));
        return std::current_exception();
    }
}

/// The message for a body that cannot be called with a group.
template <class Body, class Transport>
constexpr bool takes_group = std::is_invocable_v<Body&, Group<Transport>&>;
template <class Body>
constexpr void refuse_body() {
    static_assert(
        never_true<Body>,
        "unisono::run: found a body that cannot be called with the group. Required: a callable that takes the "
        "group by reference, such as [](auto& world) { ... }. Why: each rank runs it on its own view of the world.");
}

void check_run(int ranks, const RunOptions& options);
/// `check_run`, and a warning if a launcher started several such processes.
void begin_run(int ranks, const RunOptions& options);

/// Says that this process takes part in the launcher's job. No warning follows.
void heed_launcher() noexcept;

/// The ranks of a world, without the transport's type.
class Ranks {
public:
    virtual std::exception_ptr be(int rank) = 0; ///< the body of a rank; returns the exception that it threw
    virtual void abort(int rank, const Fault& fault) = 0;
    [[nodiscard]] virtual const Fault* first_fault() const = 0;
    [[nodiscard]] virtual bool has_left(int rank) const = 0;

protected:
    ~Ranks() = default;
};

template <class Transport, class As>
class RanksOf final : public Ranks {
public:
    RanksOf(const std::shared_ptr<typename Transport::World>& world, const RunOptions& options,
            const RankBody<As>& body)
        : world_(world), options_(options), body_(body) {}
    std::exception_ptr be(int rank) override {
        if (options_.bind_to_cores) bind_to_core(rank);
        return make_and_run_rank<Transport, As>(world_, rank, options_, body_);
    }
    void abort(int rank, const Fault& fault) override { world_->abort(rank, fault); }
    [[nodiscard]] const Fault* first_fault() const override { return world_->first_fault(); }
    [[nodiscard]] bool has_left(int rank) const override {
        if constexpr (requires { world_->has_left(rank); }) return world_->has_left(rank);
        else return false;
    }

private:
    const std::shared_ptr<typename Transport::World>& world_;
    const RunOptions& options_;
    const RankBody<As>& body_;
};

/// Runs all ranks as threads, and throws the exception that `run` has to throw.
void run_threads(Ranks& all, int ranks);

/// `run` on an existing world.
template <class Transport, class As = Transport>
[[gnu::cold]] void run_world(const std::shared_ptr<typename Transport::World>& shared,
                             RankBody<std::type_identity_t<As>> body, const RunOptions& options) {
    if (shared->size() == 1) {
        const auto failed = run_rank<As>(Group<As>(Group(Transport(shared, 0))), options, body);
        rank_that_failed = failed ? 0 : -1;
        if (failed) std::rethrow_exception(failed);
        return;
    }
    RanksOf<Transport, As> ranks(shared, options, body);
    run_threads(ranks, shared->size());
}

template <class Transport>
[[gnu::cold]] void run_new_world(int ranks, RankBody<Transport> body, const RunOptions& options) {
    begin_run(ranks, options);
    // Not make_shared, which takes a compiler three times as many functions.
    run_world<Transport>(std::shared_ptr<typename Transport::World>(new typename Transport::World(ranks)), body,
                         options);
}

} // namespace detail

/// The rank that threw or was lost in the latest `run` or `run_joined` of this thread; -1: none.
/// For a handler of a user's own exception, which passes through `run` unchanged and so names no
/// rank.
[[nodiscard]] inline int failed_rank() noexcept { return detail::rank_that_failed; }

/// Runs `body(world)` on `ranks` threads and returns when all have ended. If ranks throw, the
/// others' communication is aborted, and the exception of the rank that threw first is rethrown
/// here (a user's own exception unchanged; otherwise the world's first fault as `error`).
/// `failed_rank()` names the rank. A rank stays in the world until its body ends, also if the body
/// moves its group away. With one rank the body runs on the calling thread.
/// Errors: bad_input for fewer than 1 or more than 4096 ranks; refused if a thread cannot be made.
template <thread_transport Transport, class Body>
void run(int ranks, Body body, const RunOptions& options = {}) {
    if constexpr (detail::takes_group<Body, Transport>) {
        detail::run_new_world<Transport>(ranks, body, options);
    } else detail::refuse_body<Body>();
}

/// Refuses a transport whose ranks this process cannot provide.
template <class NoTransport, class Body>
void run(int, Body, const RunOptions& = {}) {
    static_assert(
        requires { sizeof(NoTransport); },
        "unisono::run: found a transport that is declared and not defined. Required: its header, for instance "
        "#include <unisono/tcp.hpp> for Tcp; unisono/elsewhere.hpp lists them.");
    static_assert(
        detail::never_true<NoTransport> || !requires { sizeof(NoTransport); },
        "unisono::run: found a transport whose ranks cannot be made here. Required: InProcess (threads) or "
        "SharedMemory (processes of this host); ranks over a network are processes that a launcher starts, each of "
        "which calls unisono::join<Tcp>() or the like. Why: run starts the ranks itself.");
}
/// Refuses a call without a transport.
template <class Body>
void run(int, Body, const RunOptions& = {}) {
    static_assert(
        detail::never_true<Body>,
        "unisono::run: found no transport. Required: unisono::run<unisono::InProcess>(ranks, body), or another "
        "transport. Why: it says whether ranks are threads or processes.");
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include <atomic>
#include <cstdio>
#include <cstdlib>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::atomic<bool>& launcher_is_known() noexcept {
    static std::atomic<bool> known{false};
    return known;
}

UNISONO_DEFINITION void heed_launcher() noexcept { launcher_is_known() = true; }

/// Prints one line on standard error, once, in the launcher's rank 0, if each of several processes
/// makes a world of `ranks` ranks of its own.
[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void warn_of_launcher(int ranks) {
    if (launcher_is_known().exchange(true)) return;
    struct Launcher {
        const char* rank;
        const char* world;
    };
    for (const Launcher& one : {Launcher{"UNISONO_RANK", "UNISONO_WORLD_SIZE"},
                                {"RANK", "WORLD_SIZE"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"},
                                {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
        const char* const rank = std::getenv(one.rank);   // NOLINT(concurrency-mt-unsafe)
        const char* const world = std::getenv(one.world); // NOLINT(concurrency-mt-unsafe)
        if (rank == nullptr || world == nullptr) continue;
        if (std::strtol(world, nullptr, 10) < 2 || std::strtol(rank, nullptr, 10) != 0) return;
        const std::string line =
            concat({"unisono: warning: run starts ", ranks, " ranks in this process, and a launcher started ", world,
                    " such processes (", one.world, "): these are ", world, " worlds that know nothing of each other.",
                    " For one world call run_joined or join, or start one process\n"});
        static_cast<void>(std::fputs(line.c_str(), stderr));
        return;
    }
}

[[gnu::cold]] UNISONO_DEFINITION void run_threads(Ranks& all, int ranks) {
    struct One {
        Ranks* all = nullptr;
        int rank = 0;
        std::exception_ptr failure = nullptr;
        bool ended = false; ///< not by pthread_exit or pthread_cancel
        Thread thread = {};
    };
    FixedArray<One> threads(static_cast<std::size_t>(ranks));
    std::exception_ptr refused;
    rank_that_failed = -1;
    int started = 0;
    for (; started < ranks && !refused; ++started) {
        One& one = threads[static_cast<std::size_t>(started)];
        one.all = &all;
        one.rank = started;
        const int failed = one.thread.start(
            [](void* of) {
                One& self = *static_cast<One*>(of);
                self.failure = self.all->be(self.rank);
                self.ended = true;
            },
            &one);
        if (failed == 0) continue;
        const Fault fault{.code = ErrorCode::refused,
                          .rank = started,
                          .operation = "run",
                          .message = no_thread_for(concat({"rank ", started, " of ", ranks}), failed)};
        all.abort(started, fault);
        refused = std::make_exception_ptr(error(fault));
    }
    for (int rank = 0; rank < started; ++rank) threads[static_cast<std::size_t>(rank)].thread.join();
    if (refused) {
        rank_that_failed = started - 1;
        std::rethrow_exception(refused);
    }
    const Fault* fault = all.first_fault();
    if (fault == nullptr) return;
    note_failed_rank(*fault);
    if (fault->rank >= 0 && fault->rank < ranks && threads[static_cast<std::size_t>(fault->rank)].failure)
        std::rethrow_exception(threads[static_cast<std::size_t>(fault->rank)].failure);
    for (int rank = 0; rank < ranks; ++rank)
        if (const One& one = threads[static_cast<std::size_t>(rank)]; one.failure || !one.ended) throw error(*fault);
    rank_that_failed = -1;
}

[[gnu::cold]] UNISONO_DEFINITION void check_run(int ranks, const RunOptions& options) {
    if (ranks < 1 || ranks > 4096) {
        refuse_input({"run: a program starts 1 to 4096 ranks, found ", ranks});
    }
    if (options.timeout.count() <= 0) refuse_input("RunOptions::timeout must be positive");
    if (options.grace.count() < 0) refuse_input("RunOptions::grace must not be negative");
}

[[gnu::cold]] UNISONO_DEFINITION void begin_run(int ranks, const RunOptions& options) {
    check_run(ranks, options);
    if (ranks > 1) warn_of_launcher(ranks);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
