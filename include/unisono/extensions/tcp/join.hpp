#pragma once

/// \file
/// Turns processes that share a control plane into the ranks of a world over sockets.

#include "unisono/extensions/network/join.hpp"
#include "unisono/extensions/tcp/tcp.hpp"

#include <utility>

UNISONO_NAMESPACE_BEGIN

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
