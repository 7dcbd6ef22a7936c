#pragma once

/// \file
/// The steps that touch this rank's memory only: copies and combinations.

#include "unisono/group/operation_state.hpp"

#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Room for the addresses of a combination, kept so that none is allocated in a step.
struct AddressRoom {
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> targets;

    void resize(std::size_t ranks) {
        if (sources.size() < ranks) {
            sources.resize(ranks);
            targets.resize(ranks);
        }
    }
};

/// target = what lies at `from`; nothing where both are the same place.
inline void copy(OperationState& operation, LaneState& lane, const schedule::Step& step, const std::byte* from) {
    const std::size_t bytes = operation.extent(lane, step.target).count * operation.request.element_bytes;
    if (bytes == 0) return;
    std::byte* to = operation.target_address(lane, step.target);
    if (to != from) std::memmove(to, from, bytes);
}

/// target = source combined with what lies at `other`.
inline void combine(OperationState& operation, LaneState& lane, const schedule::Step& step, const std::byte* other) {
    const std::size_t count = operation.extent(lane, step.target).count;
    if (count == 0) return;
    std::byte* to = operation.target_address(lane, step.target);
    const std::byte* sources[2] = {operation.source_address(lane, step.source), other};
    const Reduction& reduction = operation.request.reduction;
    reduction.combine(reduction.state, sources, 2, &to, 1, count);
}

/// target = the ranks' blocks combined in rank order: the own one from `source`, the others from scratch.
inline void combine_ranks(OperationState& operation, LaneState& lane, const schedule::Step& step, AddressRoom& room) {
    const std::size_t count = operation.extent(lane, step.target).count;
    if (count == 0) return;
    const auto ranks = static_cast<std::uint32_t>(operation.group->size());
    const auto own = static_cast<std::uint32_t>(operation.group->rank);
    room.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::uint32_t slot = step.source.slot + (rank < own ? rank : rank - 1);
        room.sources[rank] = operation.source_address(
            lane, rank == own ? step.source : schedule::scratch_blocks(step.source.first, step.source.count, slot));
    }
    std::byte* to = operation.target_address(lane, step.target);
    const Reduction& reduction = operation.request.reduction;
    reduction.combine(reduction.state, room.sources.data(), ranks, &to, 1, count);
}

} // namespace detail
UNISONO_NAMESPACE_END
