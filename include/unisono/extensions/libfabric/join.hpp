#pragma once

/// \file
/// Turns processes that share a control plane into the ranks of a world over libfabric.

#include "unisono/extensions/libfabric/libfabric.hpp"
#include "unisono/extensions/network/join.hpp"

#include <memory>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// Refuses: one rank requires direct transfers of device memory, and another rank, the first of
/// which is named, cannot do them.
[[noreturn, gnu::cold]] inline void refuse_device_memory(const NetworkWorld& world) {
    int other = 0;
    while (FabricCard::read(world.address(other)).reaches_device_memory()) ++other;
    const FabricCard card = FabricCard::read(world.address(other));
    const bool wished = card.device_memory != FabricCard::none;
    throw error(Fault{.code = ErrorCode::refused,
                      .rank = other,
                      .peer = -1,
                      .operation = "join",
                      .sequence = 0,
                      .message = concat({"libfabric: direct transfers of memory of devices are asked for, but rank ",
                                         other, wished ? " cannot: " : " has none to offer", card.problem})});
}

} // namespace detail

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
    bool all = true; // all ranks reach their device memory, if any rank asks for that
    for (int other = 0; other < world->size(); ++other)
        all = all && detail::FabricCard::read(world->address(other)).reaches_device_memory();
    for (int other = 0; other < world->size() && !all; ++other) {
        const detail::FabricCard theirs = detail::FabricCard::read(world->address(other));
        if (theirs.device_memory == detail::FabricCard::required) detail::refuse_device_memory(*world);
    }
    if (!all && device.moves_device_memory())
        device.give_up_device_memory("not all ranks reach memory of their devices");
    return {world, rank, detail::LibfabricWire(world, rank, std::move(device), card.eager_bytes)};
}

UNISONO_NAMESPACE_END
