#pragma once

/// \file
/// How an operation's data are cut into lanes, and how a lane goes from round to round.

#include "unisono/group/operation_state.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline Partition with_counts(std::span<const std::size_t> counts, std::vector<std::size_t>& offsets,
                             const Partition& otherwise) {
    if (counts.empty()) return otherwise;
    offsets.assign(counts.size() + 1, 0);
    for (std::size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
    return Partition::table(offsets);
}

/// Fixes the number of lanes and prepares the partitions.
inline void cut_into_lanes(OperationState& operation) {
    OperationRequest& request = operation.request;
    request.input_partition = with_counts(request.input_counts, operation.input_offsets, request.input_partition);
    request.output_partition = with_counts(request.output_counts, operation.output_offsets, request.output_partition);
    const Plan& plan = *request.plan;
    std::size_t lanes = 1;
    if (request.chunk_bytes != 0 && plan.can_be_cut()) {
        lanes = request.total_bytes / request.chunk_bytes + (request.total_bytes % request.chunk_bytes != 0 ? 1 : 0);
    }
    operation.lanes = static_cast<std::uint32_t>(std::clamp<std::size_t>(lanes, 1, OperationState::most_lanes));
    request.input_partition.prepare(plan.blocks(), operation.lanes, request.element_bytes);
    request.output_partition.prepare(plan.blocks(), operation.lanes, request.element_bytes);
}

inline void load_round(OperationState& operation, LaneState& lane) {
    const Plan& plan = *operation.request.plan;
    lane.cursor = 0;
    lane.steps = lane.round < plan.rounds() ? plan.round(lane.round, lane.room) : std::span<const schedule::Step>{};
}

inline void begin_lane(OperationState& operation, LaneState& lane) {
    lane.lane = operation.next_lane++;
    lane.round = 0;
    lane.cursor = 0;
    lane.outstanding = 0;
    lane.active = true;
    if (operation.point_to_point) {
        lane.split = {};
        lane.steps = operation.single;
        return;
    }
    lane.split = operation.request.input_partition.lane(lane.lane);
    if (operation.request.plan->scratch_slots() != 0) {
        lane.scratch_stride = operation.request.input_partition.largest_block(lane.split);
    }
    load_round(operation, lane);
}

/// Gives every lane slot its first lane, and scratch for the largest of them, which is lane 0.
inline void begin_lanes(OperationState& operation) {
    operation.slots_used = std::min(operation.lanes, OperationState::lanes_at_once);
    if (operation.slots.size() < operation.slots_used) operation.slots.resize(operation.slots_used);
    if (!operation.point_to_point && operation.request.plan->scratch_slots() != 0) {
        const EvenSplit first = operation.request.input_partition.lane(0);
        const std::size_t bytes = operation.request.input_partition.largest_block(first) *
                                  operation.request.plan->scratch_slots() * operation.request.element_bytes;
        operation.scratch_bytes = (bytes + 63) / 64 * 64;
        const std::size_t all = operation.scratch_bytes * operation.slots_used;
        if (operation.scratch.size() < all) operation.scratch.resize(all);
    }
    for (std::uint32_t slot = 0; slot < operation.slots_used; ++slot) begin_lane(operation, operation.slots[slot]);
}

/// The next round, or the next lane in this slot.
inline void finish_round(OperationState& operation, LaneState& lane) {
    ++lane.round;
    if (!operation.point_to_point && lane.round < operation.request.plan->rounds()) return load_round(operation, lane);
    ++operation.lanes_done;
    lane.active = false;
    if (operation.next_lane < operation.lanes) begin_lane(operation, lane);
}

} // namespace detail
UNISONO_NAMESPACE_END
