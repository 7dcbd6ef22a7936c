#pragma once

/// \file
/// Programs that choose their transport at run time, by name, among the transports that they
/// include. Not part of the umbrella.
///
///     using Choice = un::Transports<un::InProcess, un::SharedMemory, un::Tcp>;
///     un::run<Choice>("tcp", 4, [](auto& world) { ... });      // ranks that the program starts
///     un::run_joined<Choice>("tcp", [](auto& world) { ... }); // ranks that a launcher has started
///
/// The body is compiled once per transport and runs as if the program had named that transport, so
/// any transport may be listed. For threads and processes of one host, `AnyTransport` (any.hpp) is
/// one type, so that the body is compiled once; it is not listed here.

#include "unisono/core/text.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/join.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN

class AnyTransport; // any.hpp

/// The transports among which a program chooses, in the order of its preference. The word for each
/// is its `name`: "in_process", "shared_memory", "tcp", "libfabric", "hosts",
/// "hosts_libfabric", "cuda", "nccl".
template <class... Each>
struct Transports {
    static_assert(sizeof...(Each) > 0,
                  "unisono::Transports: found no transport. Required: one or more, as in Transports<InProcess, "
                  "SharedMemory>. Why: a program chooses among them.");
    static_assert((requires { sizeof(Each); } && ...),
                  "unisono::Transports: found a transport that is declared and not defined. Required: its header, for "
                  "instance #include <unisono/tcp.hpp> for Tcp; unisono/elsewhere.hpp lists them.");
    static_assert(!(std::is_same_v<Each, AnyTransport> || ...),
                  "unisono::Transports: found AnyTransport. Required: the transports that it stands for, InProcess and "
                  "SharedMemory. Why: a program chooses among transports, and AnyTransport is a choice itself.");
    static constexpr std::string_view names[] = {Each::name...};
    static_assert(
        [] {
            for (const auto& one : names)
                for (const auto* other = names; other != &one; ++other)
                    if (one == *other) return false;
            return true;
        }(),
        "unisono::Transports: found two transports with the same name. Required: one of them. Why: their name is the "
        "word by which the program chooses.");

    /// The names, for messages and the program's help: "in_process, shared_memory or tcp".
    [[nodiscard]] static std::string words() {
        std::string text;
        for (const auto& name : names)
            text += concat({&name == names ? "" : &name == std::end(names) - 1 ? " or " : ", ", name});
        return text;
    }
    /// The name of the first transport that can join this number of processes, on this number of
    /// hosts, to a world; "" if none can.
    [[nodiscard]] static constexpr std::string_view first_for(int processes, int hosts) {
        std::string_view found;
        static_cast<void>(((can_be<Each>(processes, hosts) && (found = Each::name, true)) || ...));
        return found;
    }
    /// Calls `use(std::type_identity<T>())` for the transport T of this name. Errors: bad_input for
    /// another word.
    template <class Use>
    static void visit(std::string_view word, Use use) {
        if (((word == Each::name && (use(std::type_identity<Each>()), true)) || ...)) return;
        refuse_input({"no transport is called ", detail::quoted(word), "; expected ", words()});
    }

private:
    template <class T>
    static constexpr bool can_be(int processes, int hosts) {
        if constexpr (!joinable_transport<T> && !network_transport<T>) return processes == 1;
        else return hosts == 1 || !T::maps_peers;
    }
};

namespace detail {

template <class T>
inline constexpr bool is_transports = false;
template <class... Each>
inline constexpr bool is_transports<Transports<Each...>> = true;

/// Checks that all ranks have the same word. Errors, the same on all ranks: mismatch if they do
/// not; the job's first fault.
inline void check_same_word(ControlPlane& control, std::string_view word, nanoseconds deadline) {
    const auto all = control.all_gather(std::as_bytes(std::span(word.data(), word.size())), deadline);
    const auto text = [&](std::size_t rank) {
        return detail::quoted(std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size()));
    };
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            throw error(ErrorCode::mismatch, concat({"ranks must choose the same transport, but rank 0 has the word ",
                                                     text(0), " and rank ", rank, " ", text(rank)}));
}

/// `join` by this control plane. If the transport's ranks are threads, the process must be alone.
template <class Transport>
Group<Transport> join_chosen(ControlPlane control, const JoinOptions& options) {
    static_assert(joinable_transport<Transport> || network_transport<Transport> || thread_transport<Transport>,
                  "unisono::run_joined: found a transport in the list that a launcher's processes cannot join. "
                  "Required: SharedMemory, Tcp or another one with join; ranks of MPI come by unisono::adopt. Why: "
                  "the word may choose each transport of the list.");
    if constexpr (joinable_transport<Transport> || network_transport<Transport>)
        return join<Transport>(std::move(control), options);
    else return join<Transport>(options); // refused unless the process is alone
}

} // namespace detail

/// Runs `body(world)` on ranks that the program starts, over the transport of `List` that `word`
/// names; for "" over the first of the list. `body` is [](auto& world) { ... }. Otherwise as `run`
/// of that transport: its ranks are threads, or forked processes, and the same errors reach the
/// caller. Errors: bad_input for another word.
template <class List, class Body>
    requires detail::is_transports<List>
void run(std::string_view word, int ranks, Body body, const RunOptions& options = {}) {
    List::visit(word.empty() ? List::names[0] : word, [&]<class Transport>(std::type_identity<Transport>) {
        static_assert(thread_transport<Transport>,
                      "unisono::run: found a transport in the list that cannot start ranks by itself. Required: "
                      "InProcess, SharedMemory, Tcp or another one with run; MPI's ranks are started by mpirun and "
                      "come by unisono::adopt. Why: the word may choose each transport of the list.");
        if constexpr (thread_transport<Transport>) run<Transport>(ranks, std::move(body), options);
    });
}
/// Refuses a call without the word first, as in `run<Choice>("tcp", 4, body)`.
template <class List, class Body>
    requires detail::is_transports<List>
void run(int ranks, Body body, const RunOptions& options = {}) = delete;

/// Runs `body(world)` on the world that this process belongs to, as `run_joined` of the transport
/// that `word` names; for "" that of the first transport of `List` that the job's processes can
/// use: SharedMemory only on one host, InProcess only for one process. A network's options are
/// those of the environment. Collective over the job.
///
/// Errors, the same on all ranks: mismatch for ranks with different words; bad_input for another
/// word; refused for a transport that the processes cannot use; those of `run_joined`.
template <class List, class Body>
    requires detail::is_transports<List>
void run_joined(std::string_view word, Body body, const JoinOptions& options = {}) {
    detail::rank_that_failed = -1;
    detail::check_join(options);
    ControlPlane control = detail::rendezvous_of_job(options);
    detail::check_same_word(control, word, deadline_after(steady_now(), options.rendezvous.timeout));
    const int hosts = control.placement().hosts;
    if (word.empty()) word = List::first_for(control.size(), hosts);
    if (word.empty())
        throw error(ErrorCode::refused,
                    concat({control.size(), " processes on ", hosts, " hosts cannot be a world over ", List::words()}));
    List::visit(word, [&]<class Transport>(std::type_identity<Transport>) {
        detail::run_on<Transport>(detail::join_chosen<Transport>(std::move(control), options), body, options);
    });
}

UNISONO_NAMESPACE_END
