#pragma once

/// \file
/// A transport moves bytes between ranks. It knows no algorithm and no arithmetic: it matches messages by tag, hands the
/// received bytes to a sink, tells the time, and spreads the first fault of its world.
///
/// Laws
/// - Nothing blocks but `idle`. `post_send` and `post_receive` only record; `progress` moves. Each token is reported
///   exactly once, unless the world has a fault: then tokens may never be reported.
/// - `post_send` may return a bool: true says that the message has been sent already, and its token is not reported.
/// - The memory of a send stays untouched by its owner until `sent`; that of a receive until `received`.
/// - A receive matches the send of the same peer with an equal tag; tags in flight between two ranks are unique. Messages
///   may arrive before their receive is posted, and in any order.
/// - `received(token, envelope, data)` gives the sender's envelope, so that the group can compare signatures and sizes
///   BEFORE it touches the bytes, and a pointer that is good during that call: straight into the sender's memory where the
///   transport maps peers, into its own staging memory elsewhere. The receiver copies or combines from there itself.
/// - `idle(attempt, until)` gives the processor away as long as seems wise after `attempt` fruitless calls of
///   `progress`, at most until `until` on the clock of `now()`. Simulated transports switch to the next rank there.
/// - Where a rank sleeps in `idle` until a peer wakes it, a transport that maps peers' memory offers `one_sleeps()` and `wake(peer)`:
///   the group asks the first after each write to its board, and wakes its ranks if the answer is yes.
/// - `abort(fault)`: the first fault of a world wins and is soon seen by all its ranks as `first_fault()`. After it
///   returns nobody touches memory that this rank posted.
/// - One thread drives a rank's transport at a time.
///
/// - A transport may take `post_receive_at(peer, expected, token, target)` for messages from `lands_from` bytes on: the one that has
///   the expected tag, signature and size may be received straight into `target`, unless that is null; the sink is given that address.
///
/// - A transport with `virtual_time` lets time pass in `idle` only, and `idle` returns when there is news or at `until`.
///
/// - A transport that maps peers' memory says by `shift(peer)` what to add to an address of that peer's. If it `stages`, peers
///   see some memory only: `reaches(data, bytes)` tells which, `allocate` gives some, and the group copies what is elsewhere.
///
/// - A transport may want to know what its rank `waits(wait)` for, and that it `waits_no_more()`: then `abort` of a timeout looks
///   for the root of it among all ranks, for some seconds if need be.
///
/// - A transport without boards on which ranks announce what they do may tell of messages instead: `awaits(peer)`, whether
///   something is under way from or to it, and `early_signature(peer, context, sequence)` of what came and nobody asked for. By
///   `describe(peer)` it says in errors where that rank is.
///
/// - A transport may say by `exchange_bytes` up to how many bytes a rank of two to four sends everything to everybody, since one
///   round is faster than two there; and by `chunk_bytes` into what parts large data of two ranks are cut where the program says
///   nothing (of more ranks so that all_reduce sends messages of the same size).
///
/// - A transport may know which ranks share a host, `host_of(rank)`, by any numbers that are equal on one host: then groups have
///   `hosts()`, and native schedules send between hosts what one rank a host would send.
///
/// - A transport that has a limited number of boards for groups lets its rank `offer_board()` (-1: none) before a group is made;
///   one of the ranks `give_board(ranks)`s, the board is part of the group's number (`with_board`), and each rank of the group
///   calls `drop_board(number)` in the end.
///
/// - A transport whose ranks have devices says that it `streams`: stream_call.hpp has its laws.
///
/// Menu
/// - in_process: ranks are threads of one process and read each other's memory.
/// - shared_memory: ranks are processes of one host (or threads), and read each other's memory where it is the group's.
/// - tcp: ranks are processes anywhere (or threads), and exchange messages over sockets. Networks are one endpoint
///   (framed_endpoint.hpp) over a wire each (frame_wire.hpp has their laws).
/// - libfabric: the same over whatever network libfabric has a provider for; needs that library.
/// - mpi: ranks of an MPI communicator, over its point-to-point messages.
/// - hosts: shared memory between the ranks of a host, and one of these networks between hosts.
/// - nccl: ranks that have a GPU each, over NCCL; what lies on hosts as over hosts, with sockets.
/// - cuda: ranks that have a GPU each, over any of the others, through memory of the host.
/// - simulated: virtual time, one rank at a time.
/// - any: one of those that map peers, chosen at run time.

#include "unisono/core/error.hpp"
#include "unisono/core/time.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Names a message between two ranks.
struct Tag {
    std::uint64_t context = 0;  ///< of the group; equal on its ranks, different from that of other groups
    std::uint64_t position = 0; ///< operation, lane, round and part; or the user's tag
    friend bool operator==(const Tag&, const Tag&) = default;
};

/// The user's call of which an operation is a part, so that a mismatch names that call.
enum class Caller : std::uint8_t { none, split, trainer, fit, evaluate, predict, verify_replicas, save, resume };

constexpr std::string_view name_of(Caller caller) {
    constexpr std::string_view names[] = {"",
                                          "split",
                                          "the constructor of a Trainer",
                                          "Trainer::fit",
                                          "Trainer::evaluate",
                                          "Trainer::predict",
                                          "Trainer::verify_replicas",
                                          "Checkpoints::save",
                                          "Checkpoints::resume"};
    return static_cast<std::size_t>(caller) < std::size(names) ? names[static_cast<std::size_t>(caller)]
                                                               : "an unknown call";
}

/// The sender's description of the operation, which the receiver compares.
struct Signature {
    std::uint8_t collective = 0; ///< Collective
    std::uint8_t reduction = 0;  ///< ReductionKind
    std::uint8_t element = 0;    ///< ElementType
    std::uint8_t caller = 0;     ///< Caller
    std::uint32_t schedule = 0;  ///< a hash of the schedule's name, its root and lanes
    std::uint64_t count = 0;     ///< elements of the whole operation, or a hash of variable counts
    /// As two words: it is compared for each message.
    friend constexpr bool operator==(const Signature& a, const Signature& b) {
        using Words = std::array<std::uint64_t, 2>;
        return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
    }
};

/// The header of a message: its tag, its signature and its size.
struct Envelope {
    Tag tag;
    Signature signature;
    std::uint64_t bytes = 0;
};

/// A number by which a transport says which of its operations is done.
using Token = std::uint64_t;

namespace detail {
struct AnySink {
    void sent(Token) {}
    void received(Token, const Envelope&, const std::byte*) {}
};
} // namespace detail

template <class T>
concept transport = requires(T& t, const T& c, int peer, const Envelope& envelope, const std::byte* data, Token token,
                             detail::AnySink& sink, std::uint32_t attempt, nanoseconds until, const Fault& fault) {
    { c.rank() } -> std::same_as<int>;
    { c.size() } -> std::same_as<int>;
    { c.now() } -> std::same_as<nanoseconds>;
    t.post_send(peer, envelope, data, token);
    t.post_receive(peer, envelope.tag, token);
    t.progress(sink);
    t.idle(attempt, until);
    t.abort(fault);
    { c.first_fault() } -> std::same_as<const Fault*>; ///< nullptr while all is well; cheap
    { T::maps_peers } -> std::convertible_to<bool>;    ///< peers' addresses can be read and written (mapped steps)
    { T::name } -> std::convertible_to<std::string_view>;
};

/// A transport that knows which ranks share a host.
template <class T>
concept knows_hosts = transport<T> && requires(const T& constant, int rank) {
    { constant.host_of(rank) } -> std::same_as<int>;
};

UNISONO_NAMESPACE_END
