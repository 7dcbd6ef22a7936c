#pragma once

/// \file
/// The interfaces and ports at which processes of other hosts reach this one.

#include "unisono/core/error.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ifaddrs.h>
#include <net/if.h>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Ports from `first` to `last`, both included, for firewalls that open a few; 0: the system
/// chooses.
struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    friend bool operator==(const PortRange&, const PortRange&) = default;

    /// "40000-40100", "40000", or empty. Errors: bad_input, with the text and `where`.
    static PortRange parse(std::string_view text, std::string_view where) {
        if (text.empty()) return {};
        const std::size_t dash = text.find('-');
        int first = 0;
        int last = 0;
        const bool good =
            detail::parse_count(text.substr(0, dash), 65535, first) &&
            detail::parse_count(dash == std::string_view::npos ? text : text.substr(dash + 1), 65535, last);
        if (!good || first < 1 || last < first)
            refuse_input({where, " must be a port or two as in 40000-40100, found ", detail::quoted(text)});
        return {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
    }

    /// UNISONO_PORT_RANGE; empty if it is not set. Errors: bad_input.
    static PortRange of(const Environment& environment) {
        const std::string* const ports = environment.find("UNISONO_PORT_RANGE");
        return ports == nullptr ? PortRange() : parse(*ports, "UNISONO_PORT_RANGE");
    }
};

namespace detail {

inline std::string text_of(const PortRange& range) {
    return range.first == 0 ? std::string("any port") : concat({"ports ", range.first, " to ", range.last});
}

/// Listens for other processes: of this host at any port of the loopback if `loopback`, else of all
/// hosts at the first free port of the range. Errors: refused, with the system's reason.
inline Listener listen_in(const PortRange& range, bool loopback) {
    if (loopback) return listen_at(true, 0);
    return listen_at(false, range.first, range.last - range.first);
}

/// The ports after `port` that a process may take in its place: at most `most`, of the range.
inline std::uint16_t further_ports_of(const PortRange& range, std::uint16_t port, int most) {
    const int last = range == PortRange{} ? 65535 : range.last;
    return static_cast<std::uint16_t>(std::clamp(last - port, 0, most));
}

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
