#pragma once

/// \file
/// The sources of connections that have not yet proven their identity, and the limit of their
/// number.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <cstdint>
#include <sys/socket.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The source of a connection: an IPv4 address, or the network half of an IPv6 address, of which
/// one host may have any number.
std::uint64_t source_of(const sockaddr_storage& address);

/// At most a quarter of the process's descriptors.
std::size_t room_for_strangers(std::size_t most);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include <algorithm>
#include <cstring>
#include <netinet/in.h>
#include <sys/resource.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::uint64_t source_of(const sockaddr_storage& address) {
    std::uint64_t source = 0;
    if (address.ss_family == AF_INET) {
        const auto& from = reinterpret_cast<const sockaddr_in&>(address);
        std::memcpy(&source, &from.sin_addr, sizeof from.sin_addr);
    } else if (address.ss_family == AF_INET6) {
        const auto& from = reinterpret_cast<const sockaddr_in6&>(address);
        std::memcpy(&source, &from.sin6_addr, sizeof source);
    }
    return source;
}

UNISONO_DEFINITION std::size_t room_for_strangers(std::size_t most) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
    return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, most);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
