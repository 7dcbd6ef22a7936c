#pragma once

/// \file
/// The host's interfaces and ports for a network transport, from the program or else the
/// environment.

#include "unisono/core/error.hpp"
#include "unisono/extensions/launch/sockets/port_range.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <cerrno>
#include <cstdint>
#include <ifaddrs.h>
#include <net/if.h>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// An address of this host, and the name of its interface.
struct NetworkInterface {
    std::string name = {};
    SocketAddress address = {};
};

/// The interface with this name or address. Empty: one that other hosts reach, or the loopback if
/// there are no other hosts. Errors: refused, with a list of all interfaces.
inline NetworkInterface find_interface(const std::string& wanted, bool other_hosts) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0)
        throw error(ErrorCode::refused, concat({"no list of interfaces: ", errno_text(errno)}));
    NetworkInterface best;
    int best_worth = 0;
    std::string known;
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr) continue;
        const int family = each->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const NetworkInterface one{.name = each->ifa_name, .address = address_of(each->ifa_addr)};
        const std::string text = host_text(one.address);
        const bool up = (each->ifa_flags & IFF_UP) != 0;
        known += concat({known.empty() ? "" : ", ", one.name, " (", text, up ? ")" : ", down)"});
        if (family == AF_INET6 && text.rfind("fe80", 0) == 0 && wanted != text) continue; // means nothing elsewhere
        const bool named = wanted == one.name || wanted == text;
        const bool fits = !wanted.empty() ? named : up && is_loopback(one.address) != other_hosts;
        const int worth = !fits ? 0 : (up ? 4 : 0) + (family == AF_INET ? 2 : 1);
        if (worth <= best_worth) continue;
        best_worth = worth;
        best = one;
    }
    ::freeifaddrs(all);
    if (best_worth != 0) return best;
    throw error(
        ErrorCode::refused,
        concat({wanted.empty() ? concat({"no interface that reaches ", other_hosts ? "other hosts" : "this one"})
                               : concat({"no interface ", detail::quoted(wanted)}),
                "; this host has ", known.empty() ? "none" : known}));
}

/// A socket that listens at this interface, at the first free port of the range. Errors: refused.
inline Listener listen_on(const NetworkInterface& interface, const PortRange& range) {
    std::string why = "none is free";
    for (int port = range.first; port <= range.last; ++port) {
        SocketAddress address = interface.address;
        set_port(address, static_cast<std::uint16_t>(port));
        FileDescriptor socket = open_listener(address, range.first != 0);
        if (socket.valid()) return {std::move(socket), port_of(address)};
        why = errno_text(errno);
        if (errno != EADDRINUSE) break;
    }
    throw error(ErrorCode::refused, concat({"cannot listen at ", host_text(interface.address), " (interface ",
                                            interface.name, "), ", text_of(range), ": ", why}));
}

} // namespace detail
UNISONO_NAMESPACE_END
