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

} // namespace detail
UNISONO_NAMESPACE_END
