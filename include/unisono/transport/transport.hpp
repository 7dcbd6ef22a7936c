#pragma once

/// \file
/// A transport moves bytes between ranks. It knows no algorithm and no arithmetic: it matches
/// messages by tag, hands the received bytes to a sink, tells the time, and spreads the first fault
/// of its world.
///
/// Laws
/// - Only `idle` blocks. `post_send` and `post_receive` only record; `progress` transfers. Each
///   token is reported exactly once, unless the world has a fault: then tokens may never be
///   reported.
/// - `post_send` may return a bool: true means that the message has been sent already, and its
///   token is not reported.
/// - The owner of a send's memory leaves it untouched until `sent`; that of a receive's until
///   `received`.
/// - A receive matches the send of the same peer with an equal tag; tags in flight between two
///   ranks are unique. Messages may arrive before their receive is posted, and in any order.
/// - `received(token, envelope, data)` gives the sender's envelope, so that the group can compare
///   signatures and sizes BEFORE it touches the bytes. Its pointer is valid during that call: it
///   points into the sender's memory if the transport maps peers, else into the transport's own
///   bounce buffer. The receiver copies or combines from there itself.
/// - `idle(attempt, until)` yields the processor for a time that suits `attempt` fruitless calls of
///   `progress`, at most until `until` on the clock of `now()`. Simulated transports switch to the
///   next rank there.
/// - `abort(fault)`: the first fault of a world wins, and all its ranks soon see it as
///   `first_fault()`. After it returns, no rank accesses memory that this rank posted.
/// - One thread drives a rank's transport at a time.
///
/// Further abilities of a transport are capabilities: concepts below, with their laws. Other rooms
/// ask for these concepts. A transport that has only some members of a capability does not compile
/// (`whole_capabilities`).
///
/// | capability        | what the group does with it                                              |
/// |-------------------|--------------------------------------------------------------------------|
/// | `maps_peers`      | reads and writes peers' buffers: schedules of mapped steps               |
/// | `bounces_memory`  | copies data that peers do not see to memory that they see                |
/// | `allocates`       | gives programs memory that moves without a copy                          |
/// | `wakes_peers`     | wakes ranks that sleep until this one has written                        |
/// | `gives_boards`    | makes new groups on a limited number of boards                           |
/// | `drops_boards`    | tells it when a rank of a group ends the group                           |
/// | `announces`       | compares the operations that the ranks of a group have started           |
/// | `sees_messages`   | the same without boards: by the messages in flight                       |
/// | `sees_deaths`, `sees_leaving` | blames a rank that is gone                                   |
/// | `shows_faults`    | sees by one load that the world is well                                  |
/// | `reports_waits`, `may_want_waits` | lets the transport find the cause of a timeout           |
/// | `lands_messages`  | receives large messages directly into their target                       |
/// | `sends_at_once`   | expects no token for a message that has left                             |
/// | `knows_hosts`     | sends between hosts what one rank per host would send                    |
/// | `has_virtual_time`| looks at the clock only if time passes                                   |
/// | `restricts_threads` | asks before another thread drives the transport                        |
/// | `names_another`   | shows the name of the transport that is inside                           |
/// | `streaming_transport`, `enqueues` | runs operations on a device's stream (stream_call.hpp)   |
///
/// Menu
/// - in_process: ranks are threads of one process and read each other's memory.
/// - shared_memory: ranks are processes of one host (or threads), and read each other's memory in
///   the group's segment.
/// - tcp: ranks are processes anywhere (or threads), and exchange messages over sockets. Networks
///   are one endpoint (extensions/network/framed_endpoint.hpp) over a wire each
///   (extensions/network/frame_wire.hpp has their laws).
/// - libfabric: the same over any network that libfabric has a provider for; needs that library.
/// - mpi: ranks of an MPI communicator, over its point-to-point messages.
/// - hosts: shared memory between the ranks of a host, and one of these networks between hosts.
/// - nccl: ranks that have a GPU each, over NCCL; host data travel as over hosts, with sockets.
/// - cuda: ranks that have a GPU each, over any of the others, through host memory.
/// - simulated: virtual time, one rank at a time.
/// - any: one of those that map peers, chosen at run time.

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/time.hpp"
#include "unisono/core/value.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
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
    std::uint8_t caller = 0;     ///< Caller; in the upper four bits detail::FloatingPointMode, where it matters
    std::uint32_t schedule = 0;  ///< a hash of the schedule's name, its root and lanes
    std::uint64_t count = 0;     ///< see `counted_in`
    static constexpr unsigned count_bits = 48; ///< an address has fewer
    static constexpr std::uint64_t most_trainers = (std::uint64_t{1} << (64 - count_bits)) - 1;
    /// The value of `count`: the elements of the whole operation, or a hash of variable counts, and
    /// above them the trainer in whose call it started (see `trainer`).
    static constexpr std::uint64_t counted_in(std::uint64_t trainer, std::uint64_t elements) {
        return trainer << count_bits | (elements & ((std::uint64_t{1} << count_bits) - 1));
    }
    [[nodiscard]] constexpr std::uint64_t elements() const { return count & ((std::uint64_t{1} << count_bits) - 1); }
    /// The number of that trainer among those of the group; 0: the operation is part of no call of
    /// a trainer.
    [[nodiscard]] constexpr std::uint64_t trainer() const { return count >> count_bits; }
    /// Compares two words, since this runs for each message.
    friend constexpr bool operator==(const Signature& a, const Signature& b) {
        struct Words {
            std::uint64_t first, second;
        };
        const auto x = std::bit_cast<Words>(a);
        const auto y = std::bit_cast<Words>(b);
        return x.first == y.first && x.second == y.second;
    }
};

/// The header of a message: its tag, its signature and its size.
struct Envelope {
    Tag tag;
    Signature signature;
    std::uint64_t bytes = 0;
};

/// The number by which a transport reports that one of its operations is done.
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
    { T::maps_peers } -> detail::converts_to<bool>;    ///< peers' addresses can be read and written (mapped steps)
    { T::name } -> detail::converts_to<std::string_view>;
};

struct Wait; // launch/launch.hpp

// --- capabilities -------------------------------------------------------------------------------

/// Peers' addresses can be read and written. `shift(peer)` is added to an address of that peer.
/// Between a `begin_touching` that returns true and `end_touching` no peer that aborts releases its
/// memory. `mapped()` returns the words that a rank reads while it waits, without a call of the
/// transport; so such a transport `wakes_peers` as well.
template <class T>
concept maps_peers = transport<T> && T::maps_peers && requires(T& t, const T& c, int peer, std::uint64_t context) {
    { c.shift(peer) } -> std::same_as<std::ptrdiff_t>;
    { t.begin_touching() } -> std::same_as<bool>;
    t.end_touching();
    t.mapped_board(context, peer);
    c.mapped(); ///< detail::Mapped (transport/memory/mapped.hpp)
};

/// A transport with a word, `fault_word()`, that is 0 while the world is well. `first_fault` is
/// asked only when it is not.
template <class T>
concept shows_faults = transport<T> && requires(T& t) { t.fault_word(); };

/// Ranks announce the operations that they have started on a board of their group:
/// `announcements(context, size)`.
template <class T>
concept announces = transport<T> && requires(T& t, std::uint64_t context, int size) { t.announcements(context, size); };

/// A transport that allocates memory which it moves without a copy. The memory is valid as long as
/// its owner lives, and not cleared.
template <class T>
concept allocates = transport<T> && requires(T& t, std::size_t bytes) { t.allocate(bytes); };

/// A transport that tells whether it moves given memory without a copy.
template <class T>
concept reaches_memory = transport<T> && requires(const T& c, const void* data, std::size_t bytes) {
    { c.reaches(data, bytes) } -> std::same_as<bool>;
};

/// Peers see the memory that the transport `reaches`, one range, and no other. `allocate` returns
/// such memory, also for one operation.
template <class T>
concept bounces_memory = reaches_memory<T> && allocates<T> && T::bounces;

/// A rank sleeps in `idle` until a peer wakes it. After each write to its board the group asks
/// whether one of its ranks may sleep (`one_sleeps()`, or the bells of `mapped()`), and wakes them.
template <class T>
concept wakes_peers = transport<T> && requires(T& t, const T& c, int peer) {
    { c.one_sleeps() } -> std::same_as<bool>;
    t.wake(peer);
};

/// A transport that has to know when a rank of a group no longer needs the group's board.
template <class T>
concept drops_boards = transport<T> && requires(T& t, std::uint64_t context) { t.drop_board(context); };

/// A transport with a limited number of boards: its rank `offer_board()`s one (-1: none) before a
/// group is made, one of the ranks `give_board(ranks)`s it, it is part of the group's number
/// (`with_board`), and each rank calls `drop_board(number)` in the end.
template <class T>
concept gives_boards = drops_boards<T> && requires(T& t, const T& c, std::uint64_t context, int board) {
    { t.offer_board() } -> std::same_as<int>;
    t.give_board(board);
    { c.with_board(context, board) } -> std::same_as<std::uint64_t>;
};

/// A transport without boards that tells whether a message from or to a peer is in flight, the
/// signature of a message of the peer's operation without a receive (or nullptr), and the address
/// of the peer, for the text of errors.
template <class T>
concept sees_messages =
    transport<T> && requires(T& t, const T& c, int peer, std::uint64_t context, std::uint32_t sequence) {
        { c.awaits(peer) } -> std::same_as<bool>;
        { t.early_signature(peer, context, sequence) } -> std::same_as<const Signature*>;
        c.describe(peer);
    };

/// A transport that notices if a rank has ended without leaving.
template <class T>
concept sees_deaths = transport<T> && requires(T& t, int peer) {
    { t.has_died(peer) } -> std::same_as<bool>;
};

/// A transport that notices if a rank has left.
template <class T>
concept sees_leaving = transport<T> && requires(T& t, int peer) {
    { t.has_left(peer) } -> std::same_as<bool>;
};

/// A transport that has to know what its rank waits for: then `abort` of a timeout looks for the
/// cause among all ranks, for some seconds if necessary.
template <class T>
concept reports_waits = transport<T> && requires(T& t, const Wait& wait) {
    t.waits(wait);
    t.waits_no_more();
};

/// As above, for a transport that learns only when it is made whether it has to know.
template <class T>
concept may_want_waits = reports_waits<T> && requires(const T& c) {
    { c.wants_waits() } -> std::same_as<bool>;
};

/// A transport that not every thread may drive: `check_may_change_threads()` throws an error if
/// only the thread that made it may.
template <class T>
concept restricts_threads = transport<T> && requires(T& t) { t.check_may_change_threads(); };

/// A transport that contains another, which a program has chosen when it ran.
template <class T>
concept names_another = transport<T> && requires(const T& c) {
    { c.actual_name() } -> std::same_as<std::string_view>;
};

/// A transport whose job may have a fault that its world does not know yet; `look()` makes it the
/// world's.
template <class T>
concept looks_for_faults = transport<T> && requires(T& t) { t.look(); };

/// `post_receive_at(peer, expected, token, target)` is for messages of `lands_from` bytes or more:
/// the message with the expected tag, signature and size may be received directly into `target`,
/// unless that is null; the sink then gets that address.
template <class T>
concept lands_messages =
    transport<T> && requires(T& t, int peer, const Envelope& expected, Token token, std::byte* target) {
        { T::lands_from } -> detail::converts_to<std::size_t>;
        t.post_receive_at(peer, expected, token, target);
    };

/// `post_send` returns whether the message has been sent already.
template <class T>
concept sends_at_once =
    transport<T> && requires(T& t, int peer, const Envelope& envelope, const std::byte* data, Token token) {
        { t.post_send(peer, envelope, data, token) } -> std::same_as<bool>;
    };

/// A transport that knows which ranks share a host, by arbitrary numbers that are equal on one
/// host: then groups have `hosts()`.
template <class T>
concept knows_hosts = transport<T> && requires(const T& constant, int rank) {
    { constant.host_of(rank) } -> std::same_as<int>;
};

/// Time passes in `idle` only, and `idle` returns at an event or at `until`.
/// `reach_shared_memory()` takes the time of an access to memory that ranks share.
template <class T>
concept has_virtual_time = transport<T> && T::virtual_time && requires(T& t) { t.reach_shared_memory(); };

/// A transport whose ranks have devices with streams: see stream_call.hpp.
template <class T>
concept streaming_transport = transport<T> && T::streams;

/// A transport whose ranks have devices, but which moves only host bytes: device data pass through
/// the host.
template <class T>
concept through_host_transport = streaming_transport<T> && T::through_host;

/// A transport that enqueues whole operations on its device's stream.
template <class T>
concept enqueues = streaming_transport<T> && !through_host_transport<T>;

namespace detail {

/// Up to this size, in bytes, groups of two to four ranks send whole vectors to all ranks: one
/// round instead of two. 0: the transport does not say.
template <class T>
inline constexpr std::size_t exchange_bytes = 0;
template <class T>
    requires requires { T::exchange_bytes; }
inline constexpr std::size_t exchange_bytes<T> = T::exchange_bytes;

/// The chunk size of large data between two ranks, unless the program gives one. With more ranks
/// lanes are chosen so that all_reduce sends messages of this size. 0: the transport does not say.
template <class T>
inline constexpr std::size_t chunk_bytes = 0;
template <class T>
    requires requires { T::chunk_bytes; }
inline constexpr std::size_t chunk_bytes<T> = T::chunk_bytes;

/// A transport that offers a capability offers all of it; else the rest would be left unused
/// without a message.
template <class T>
inline constexpr bool whole_capabilities = [] {
    constexpr bool bounces = requires { requires T::bounces; };
    constexpr bool virtual_time = requires { requires T::virtual_time; };
    constexpr bool sleeps = requires(const T& c) { c.one_sleeps(); };
    constexpr bool boards = requires(T& t) { t.offer_board(); };
    constexpr bool messages = requires(const T& c) { c.awaits(0); };
    constexpr bool waits = requires(T& t) { t.waits_no_more(); };
    constexpr bool lands = requires { T::lands_from; };
    return (maps_peers<T> || !T::maps_peers) && (announces<T> || !T::maps_peers) && (bounces_memory<T> || !bounces) &&
           (wakes_peers<T> || !(sleeps || T::maps_peers)) && (gives_boards<T> || !boards) &&
           (sees_messages<T> || !messages) && (has_virtual_time<T> || !virtual_time) && (reports_waits<T> || !waits) &&
           (lands_messages<T> || !lands);
}();

} // namespace detail

UNISONO_NAMESPACE_END
