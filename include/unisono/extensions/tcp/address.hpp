#pragma once

/// \file
/// The address at which a rank listens, and the socket.

#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/extensions/network/options.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The address of a rank for its peers; plain bytes, since all hosts have the same byte order.
struct TcpAddress {
    SocketAddress socket = {};
    char interface[32] = {};
    std::uint32_t connections = 1; ///< to each peer

    [[nodiscard]] std::string text() const { return std::string(reinterpret_cast<const char*>(this), sizeof *this); }
    /// Reads an address; false if the text is none.
    bool read(const std::string& text);
    [[nodiscard]] std::string describe() const;
};

/// The socket at which a rank listens.
struct TcpEntrance {
    NetworkInterface interface = {};
    Listener listener = {};
    std::string congestion_control = {}; ///< empty: the system's default
    int links = 1;                       ///< connections to each peer
    std::size_t striped_bytes = 262144;  ///< messages from this size on are cut over all connections

    [[nodiscard]] TcpAddress address() const;
};

bool set_congestion_control(int fd, const std::string& name);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/core/text.hpp"

#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION bool TcpAddress::read(const std::string& text) {
    if (text.size() != sizeof *this) return false;
    std::memcpy(static_cast<void*>(this), text.data(), sizeof *this);
    interface[sizeof interface - 1] = '\0';
    const int family = socket.storage.ss_family; // another family would be another kind of socket
    return (family == AF_INET && socket.length == sizeof(sockaddr_in)) ||
           (family == AF_INET6 && socket.length == sizeof(sockaddr_in6));
}

UNISONO_DEFINITION std::string TcpAddress::describe() const {
    return concat({host_text(socket), ":", port_of(socket), " (interface ", interface, ")"});
}

UNISONO_DEFINITION TcpAddress TcpEntrance::address() const {
    TcpAddress made{.socket = interface.address, .connections = static_cast<std::uint32_t>(links)};
    set_port(made.socket, listener.port);
    interface.name.copy(made.interface, sizeof made.interface - 1);
    return made;
}

UNISONO_DEFINITION bool set_congestion_control(int fd, const std::string& name) {
    return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), static_cast<socklen_t>(name.size())) == 0;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
