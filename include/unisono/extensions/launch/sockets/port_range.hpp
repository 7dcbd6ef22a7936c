#pragma once

/// \file
/// The ports at which processes of other hosts reach this one, for firewalls that open a few.

#include "unisono/core/error.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Ports from `first` to `last`, both included; 0: the system chooses.
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

} // namespace detail
UNISONO_NAMESPACE_END
