#pragma once

/// \file
/// Ranks on any hosts, over POSIX sockets. It has no dependency, so the plain header crosses
/// machines.
///
/// A rank listens at one port of one interface, and connects to a peer when the two first exchange
/// a message. Memory (64 KiB per peer, and messages whose receive is not posted yet) and sockets
/// grow with the number of peers used. A small message costs one system call on either side. A
/// large one is sent from its memory in place, and received into memory that is reused.
///
/// Environment, for options that the program does not set: UNISONO_INTERFACE (a name such as eth0,
/// or an address), UNISONO_PORT_RANGE (40000-40100), UNISONO_TCP_CONGESTION (reno),
/// UNISONO_TCP_CONNECTIONS (4).

#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/network/framed_endpoint.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/extensions/tcp/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The interface and ports of a rank.
struct TcpOptions {
    /// Name (eth0) or address (10.0.0.1). Empty: UNISONO_INTERFACE; else the loopback if all ranks
    /// are on one host, or the first interface that is up and is no loopback.
    std::string interface = {};
    PortRange port_range = {}; ///< for the port at which this rank listens; empty: as UNISONO_PORT_RANGE says, else any
    /// A congestion control that the system has and allows
    /// (net.ipv4.tcp_allowed_congestion_control). Empty: UNISONO_TCP_CONGESTION, else the system's
    /// default. Measure before you choose. Compared with bbr as the default, reno took between two
    /// name spaces of one machine 0.6 to 0.9 x the time of all_reduce from 512 KiB on, and up to
    /// 1.4 x, once 4 x, at 64 to 256 KiB. Over the loopback both took the same time.
    std::string congestion = {};
    /// Connections to each peer, 1 to 64, equal on all ranks. Messages of 256 KiB and more are cut
    /// over all of them. That pays if the network limits each connection (a flow of a cloud, a
    /// cable of a bond); otherwise it costs time. 0: UNISONO_TCP_CONNECTIONS, else 1.
    int connections = 0;

    friend bool operator==(const TcpOptions&, const TcpOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] TcpOptions with(const Environment& environment) const {
        TcpOptions all = *this;
        const std::string* const name = environment.find("UNISONO_INTERFACE");
        if (all.interface.empty() && name != nullptr) all.interface = *name;
        const std::string* const control = environment.find("UNISONO_TCP_CONGESTION");
        if (all.congestion.empty() && control != nullptr) all.congestion = *control;
        if (all.port_range == PortRange{}) all.port_range = PortRange::of(environment);
        const std::string* const number = environment.find("UNISONO_TCP_CONNECTIONS");
        if (all.connections < 0 || all.connections > most_connections)
            refuse_input({"TcpOptions::connections is ", all.connections, "; expected 1 to ", most_connections,
                          ", or 0 for what UNISONO_TCP_CONNECTIONS says"});
        if (all.connections == 0 && number != nullptr &&
            (!detail::parse_count(*number, most_connections, all.connections) || all.connections == 0))
            refuse_input({"UNISONO_TCP_CONNECTIONS must be a number from 1 to ", most_connections, ", found ",
                          detail::quoted(*number)});
        return all;
    }

private:
    /// With more, the smallest striped message would have an empty stripe.
    static constexpr int most_connections = 64;
};

namespace detail {

/// Opens the socket at which this rank listens. Errors: refused, with interface, address and ports,
/// or the congestion control.
inline TcpEntrance open_entrance(const TcpOptions& options, bool other_hosts) {
    TcpEntrance made{.interface = find_interface(options.interface, other_hosts),
                     .congestion_control = options.congestion,
                     .links = std::max(1, options.connections)};
    made.listener = listen_on(made.interface, options.port_range);
    if (!made.congestion_control.empty() &&
        !set_congestion_control(made.listener.socket.get(), made.congestion_control))
        throw error(ErrorCode::refused, concat({"tcp: no congestion control ", detail::quoted(made.congestion_control),
                                                " on this host, or not for this user: ", errno_text(errno)}));
    return made;
}

} // namespace detail

/// The transport of one rank over sockets. It is made by `run<Tcp>` (group/run.hpp) for threads of
/// this process, or by `join<Tcp>` (unisono/join.hpp) for processes that a launcher has started, on
/// one or several hosts. On its own it is a world of one.
///
/// Errors, with address and interface: refused if sockets, ports or interfaces are not available;
/// peer_lost for a rank whose connection cannot be made or ends without a goodbye; timeout for a
/// silent one.
class Tcp : public detail::FramedEndpoint<detail::TcpWire> {
public:
    static constexpr std::string_view name = "tcp";
    using Options = TcpOptions;
    // See NativeSchedule. Two ranks, on the loopback and between name spaces: one round takes 0.5
    // to 0.75 x the time of two up to 32 KiB, 0.75 to 0.9 x at 48 KiB, 0.85 to 0.95 x at 64 KiB.
    // Chunks of 1 MiB, of which one half is combined while the next arrives, take 0.75 to 0.8 x
    // from 16 MiB on.
    static constexpr std::size_t exchange_bytes = 65536;
    static constexpr std::size_t chunk_bytes = 1048576;

    Tcp() : Tcp(std::make_shared<World>(1), 0) {}
    /// A rank of a world of threads. Errors: refused, bad_input.
    Tcp(const std::shared_ptr<World>& shared, int rank, const TcpOptions& options = {})
        : Tcp(shared, rank,
              shared->size() == 1 ? detail::TcpEntrance{}
                                  : detail::open_entrance(options.with(Environment::of_process()), false)) {}
    /// A rank that listens already.
    Tcp(const std::shared_ptr<World>& shared, int rank, detail::TcpEntrance entrance)
        : FramedEndpoint(shared, rank, announced(shared, rank, std::move(entrance)), {.name = name}) {}

    /// The address at which this rank listens: 127.0.0.1:40000 (interface lo).
    [[nodiscard]] std::string address() const { return wire().address(); }
    /// The number of connections to peers that exist or are being made, by either side.
    [[nodiscard]] std::size_t connections() const { return wire().connections(); }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective.
    template <control_plane Control>
    [[nodiscard]] static Tcp join(Control control, nanoseconds deadline, const TcpOptions& options);

private:
    static detail::TcpWire announced(const std::shared_ptr<World>& shared, int rank, detail::TcpEntrance entrance) {
        const std::string address = entrance.address().text();
        detail::TcpWire wire(shared, rank, std::move(entrance));
        shared->publish(rank, address);
        if (shared->size() > 1) wire.compare_connections();
        return wire;
    }
};

UNISONO_CERTIFY(transport<Tcp>);

template <control_plane Control>
Tcp Tcp::join(Control control, nanoseconds deadline, const TcpOptions& options) {
    const int rank = control.rank();
    const bool alone = control.size() == 1;
    detail::TcpEntrance entrance;
    const auto world = detail::join_network(std::move(control), deadline, [&](bool other_hosts) {
        if (alone) return std::string();
        entrance = detail::open_entrance(options.with(Environment::of_process()), other_hosts);
        return entrance.address().text();
    });
    return {world, rank, std::move(entrance)};
}

UNISONO_NAMESPACE_END
