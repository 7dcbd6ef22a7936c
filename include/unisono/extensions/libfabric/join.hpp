#pragma once

/// \file
/// Turns processes that share a control plane into the ranks of a world over libfabric.

#include "unisono/extensions/libfabric/libfabric.hpp"
#include "unisono/extensions/network/join.hpp"

#include <memory>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

template <control_plane Control>
Libfabric Libfabric::join(Control control, nanoseconds deadline, const LibfabricOptions& options) {
    const int rank = control.rank();
    const bool alone = control.size() == 1;
    detail::FabricDevice device;
    detail::FabricCard card;
    const auto world = detail::join_network(std::move(control), deadline, [&](bool other_hosts) {
        if (alone) return std::string();
        const LibfabricOptions all = options.with(Environment::of_process());
        device = detail::FabricDevice(all, other_hosts, rank);
        card = detail::card_of(device, all);
        return card.text();
    });
    if (alone) return {world, rank, detail::LibfabricWire(world, rank)};
    const std::string first = detail::FabricCard::read(world->address(0)).provider;
    for (int other = 0; other < world->size(); ++other) { // the same error on all ranks
        const std::string theirs = detail::FabricCard::read(world->address(other)).provider;
        if (theirs == first) continue;
        throw error(
            Fault{.code = ErrorCode::refused,
                  .rank = other,
                  .peer = 0,
                  .operation = "join",
                  .sequence = 0,
                  .message = concat({"libfabric: rank ", other, " has the provider ", detail::quoted(theirs),
                                     ", rank 0 has ", detail::quoted(first), " (name one by UNISONO_PROVIDER)"})});
    }
    return {world, rank, detail::LibfabricWire(world, rank, std::move(device), card.eager_bytes)};
}

UNISONO_NAMESPACE_END
