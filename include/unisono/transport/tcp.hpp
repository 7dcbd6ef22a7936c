#pragma once

/// \file
/// Ranks anywhere, over POSIX sockets: no dependency, and the plain header crosses machines.
///
/// A rank listens at one port of one interface and makes a connection to each peer that it exchanges anything with, on first use: memory
/// (64 KiB a peer, and what messages need until they are asked for) and sockets grow with the peers used. Small messages cost one
/// system call on either side. Large ones are sent from where they lie, and received into memory that is used again.
///
/// Environment, where the program says nothing: UNISONO_INTERFACE (a name as eth0, or an address), UNISONO_PORT_RANGE (40000-40100),
/// UNISONO_TCP_CONGESTION (reno).

#include "unisono/transport/network/framed_endpoint.hpp"
#include "unisono/transport/tcp/wire.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Which interface and ports a rank uses.
struct TcpOptions {
    /// Name (eth0) or address (10.0.0.1). Empty: as UNISONO_INTERFACE says; else the loopback where all ranks are of one host, and
    /// where not, the first one that is up and is no loopback.
    std::string interface = {};
    PortRange port_range = {}; ///< of the port that this rank listens at; none: as UNISONO_PORT_RANGE says, else any
    /// A congestion control that the system has and allows (net.ipv4.tcp_allowed_congestion_control). Empty: as UNISONO_TCP_CONGESTION says,
    /// else the system's own. Where that is bbr, reno took 0.6 to 0.9 x the time of all_reduce from 512 KiB on between two name spaces of one
    /// machine, at 64 to 256 KiB up to 1.4 x and once 4 x, and as long over the loopback: measure.
    std::string congestion = {};

    friend bool operator==(const TcpOptions&, const TcpOptions&) = default;

    /// With what the environment says where these say nothing. Errors: bad_input.
    [[nodiscard]] TcpOptions with(const Environment& environment) const {
        TcpOptions all = *this;
        const std::string* const name = environment.find("UNISONO_INTERFACE");
        if (all.interface.empty() && name != nullptr) all.interface = *name;
        const std::string* const control = environment.find("UNISONO_TCP_CONGESTION");
        if (all.congestion.empty() && control != nullptr) all.congestion = *control;
        const std::string* const ports = environment.find("UNISONO_PORT_RANGE");
        if (all.port_range == PortRange{} && ports != nullptr)
            all.port_range = PortRange::parse(*ports, "UNISONO_PORT_RANGE");
        return all;
    }
};

namespace detail {

/// Listens. Errors: refused, with interface, address and ports, or the congestion control.
inline TcpEntrance open_entrance(const TcpOptions& options, bool other_hosts) {
    TcpEntrance made{.interface = find_interface(options.interface, other_hosts),
                     .congestion_control = options.congestion};
    made.listener = listen_on(made.interface, options.port_range);
    if (!made.congestion_control.empty() &&
        !set_congestion_control(made.listener.socket.get(), made.congestion_control))
        throw error(ErrorCode::refused, concat({"tcp: no congestion control ", detail::quoted(made.congestion_control),
                                                " on this host, or not for this user: ", errno_text(errno)}));
    return made;
}

} // namespace detail

/// The transport of one rank over sockets: made by `run<Tcp>` (group/run.hpp) for threads of this process, or by `join<Tcp>`
/// (join.hpp) where a launcher has started processes, on one host or several; alone, a world of one.
///
/// Errors: refused where sockets, ports or interfaces are not to be had; peer_lost for a rank whose connection ends without a
/// goodbye or cannot be made, timeout for a silent one: with its address and interface.
class Tcp : public detail::FramedEndpoint<detail::TcpWire> {
public:
    static constexpr std::string_view name = "tcp";
    using Options = TcpOptions;
    // See NativeSchedule. Two ranks, on the loopback and between name spaces: up to 32 KiB one round takes 0.5 to 0.75 x the time of two, at
    // 48 KiB 0.75 to 0.9 x, at 64 KiB 0.85 to 0.95 x; parts of 1 MiB, of which one half is combined while the next comes, 0.75 to 0.8 x from
    // 16 MiB.
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
        : FramedEndpoint(shared, rank, announced(shared, rank, std::move(entrance))) {}

    /// Where this rank listens: 127.0.0.1:40000 (interface lo).
    [[nodiscard]] std::string address() const { return wire().address(); }
    /// Peers to which a connection was made, or is being made, by either side.
    [[nodiscard]] std::size_t connections() const { return wire().connections(); }

    /// The world of processes that have this control plane in common, which then belongs to it. Collective. Defined in tcp/join.hpp.
    template <control_plane Control>
    [[nodiscard]] static Tcp join(Control control, nanoseconds deadline, const TcpOptions& options);

private:
    static detail::TcpWire announced(const std::shared_ptr<World>& shared, int rank, detail::TcpEntrance entrance) {
        const std::string address = entrance.address().text();
        detail::TcpWire wire(shared, rank, std::move(entrance));
        shared->publish(rank, address);
        return wire;
    }
};

static_assert(transport<Tcp>);

UNISONO_NAMESPACE_END
