#pragma once

/// \file
/// A transport moves bytes between ranks. It knows no algorithm and no arithmetic: it matches
/// messages by tag, hands the received bytes to a sink, tells the time, and spreads the first fault
/// of its world. Its class derives from Endpoint (transport/endpoint.hpp), which has the
/// laws. Here is what it carries, and what the compiler has to know of it.
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

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view caller_names[] = {"",
                                                    "split",
                                                    "the constructor of a Trainer",
                                                    "Trainer::fit",
                                                    "Trainer::evaluate",
                                                    "Trainer::predict",
                                                    "Trainer::verify_replicas",
                                                    "Checkpoints::save",
                                                    "Checkpoints::resume"};
} // namespace detail

constexpr std::string_view name_of(Caller caller) {
    return static_cast<std::size_t>(caller) < std::size(detail::caller_names)
               ? detail::caller_names[static_cast<std::size_t>(caller)]
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
    struct Words {
        std::uint64_t first, second;
        friend constexpr bool operator==(const Words&, const Words&) = default;
    };
    /// Compares two words, since this runs for each message.
    friend constexpr bool operator==(const Signature& a, const Signature& b) {
        return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
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

class Endpoint; // transport/endpoint.hpp

/// A transport: a class that derives from Endpoint, which has the laws. `maps_peers`: the
/// peers' addresses can be read and written, for schedules of mapped steps.
template <class T>
concept transport = requires { sizeof(T); } && std::derived_from<T, Endpoint> && requires {
    { T::maps_peers } -> detail::converts_to<bool>;
    { T::name } -> detail::converts_to<std::string_view>;
};

struct Wait; // launch/launch.hpp

// --- what the compiler has to know of a transport -----------------------------------------------

/// A transport that knows which ranks share a host: then groups have `hosts()`.
template <class T>
concept knows_hosts = transport<T> && T::spans_hosts;

/// Time passes in `idle` only, and `idle` returns at an event or at `until`.
/// `reach_shared_memory()` takes the time of an access to memory that ranks share.
template <class T>
concept has_virtual_time = transport<T> && T::virtual_time;

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

} // namespace detail

UNISONO_NAMESPACE_END
