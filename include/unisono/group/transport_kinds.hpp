#pragma once

/// \file
/// Concepts of transports with collectives of their own. They are not in transport/transport.hpp,
/// which knows of no collectives.

#include "unisono/transport/transport.hpp"

#include <concepts>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A transport that starts its own collectives in the order of tickets. Operations draw tickets
/// when they start, so the order is the same on all ranks. `begin_own(transport, collective,
/// ticket)`, found by argument-dependent lookup, never blocks. The header that combines the
/// transport with collectives defines it (unisono/mpi_collectives.hpp).
template <class T>
concept has_own_collectives = requires(T& transport, const T& constant, std::uint32_t ticket) {
    { transport.own_ticket() } -> std::same_as<std::uint32_t>;
    { constant.is_turn_of(ticket) } -> std::same_as<bool>;
    { transport.own_done(ticket) } -> std::same_as<bool>; ///< of one that was begun; true once
};

/// A transport whose own collectives accept memory of its device if `takes_device_memory()`, which
/// is equal on all ranks. Found by argument-dependent lookup: `place_own(transport, collective)`
/// returns the memory to use, and `begin_own(transport, collective, ticket, places)` begins a
/// collective whose turn it is. While `on_its_device()` lives, the rank's device is the thread's
/// current one.
template <class T>
concept takes_device_itself = through_host_transport<T> && has_own_collectives<T> && requires(const T& transport) {
    { transport.takes_device_memory() } -> std::same_as<bool>;
};

} // namespace detail
UNISONO_NAMESPACE_END
