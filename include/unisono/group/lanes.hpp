#pragma once

/// \file
/// Cuts an operation's data into lanes, and advances a lane from round to round.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/operation_state.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline Partition partition_for(const Partition::Wanted& wanted, std::span<const std::size_t> counts,
                               List<std::size_t>& offsets) {
    if (counts.empty()) return Partition(wanted);
    offsets.assign(counts.size() + 1, 0);
    for (std::size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
    return Partition(offsets);
}

/// Fixes the number of lanes and prepares the partitions.
[[gnu::cold]] inline void cut_into_lanes(OperationState& operation) {
    const OperationRequest& request = operation.request;
    operation.input_partition = partition_for(request.partition, request.input_counts, operation.input_offsets);
    operation.output_partition = partition_for(request.partition, request.output_counts, operation.output_offsets);
    const Plan& plan = *request.plan;
    std::size_t lanes = 1;
    // All ranks must have the same number of lanes; ranks whose counts differ would send different
    // amounts.
    const bool amounts_differ = plan.collective() == Collective::all_to_all && !request.input_counts.empty();
    if (request.chunk_bytes != 0 && plan.can_be_cut() && !amounts_differ) {
        lanes = request.total_bytes / request.chunk_bytes + (request.total_bytes % request.chunk_bytes != 0 ? 1 : 0);
    }
    operation.lanes = static_cast<std::uint32_t>(clamped<std::size_t>(lanes, 1, OperationState::most_lanes));
    operation.input_partition.prepare(plan.blocks(), operation.lanes, request.element_bytes);
    operation.output_partition.prepare(plan.blocks(), operation.lanes, request.element_bytes);
    for (LaneState& lane : operation.lane_slots) lane.cut_for = LaneState::no_lane;
}

inline void load_round(OperationState& operation, LaneState& lane) {
    const Plan& plan = *operation.request.plan;
    lane.cursor = 0;
    if (lane.round >= plan.rounds()) {
        lane.steps = {};
        return;
    }
    lane.steps = plan.round(lane.round, lane.room);
    if (operation.lanes == 1 && plan.keeps_steps()) {
        lane.extents = lane.extent_room.data() + plan.first_step(lane.round);
        return;
    }
    lane.extent_room.clear();
    for (const schedule::Step& step : lane.steps) lane.extent_room.push_back(operation.extents_of(lane, step));
    lane.extents = lane.extent_room.data();
}

/// Prepares a lane; kept while the same request is repeated.
inline void cut_lane(OperationState& operation, LaneState& lane) {
    const Plan& plan = *operation.request.plan;
    lane.cut_for = lane.lane;
    lane.split = operation.input_partition.lane(lane.lane);
    lane.scratch_stride = operation.input_partition.largest_block(lane.split);
    if (operation.lanes != 1 || !plan.keeps_steps()) return;
    lane.extent_room.clear();
    for (const schedule::Step& step : plan.kept_steps()) lane.extent_room.push_back(operation.extents_of(lane, step));
}

inline void begin_lane(OperationState& operation, LaneState& lane) {
    lane.lane = operation.next_lane++;
    lane.round = 0;
    lane.cursor = 0;
    lane.outstanding = 0;
    lane.active = true;
    if (operation.point_to_point) {
        lane.cut_for = LaneState::no_lane;
        lane.split = {};
        lane.steps = {operation.single.data(), 1};
        lane.extent_room.assign(1, operation.extents_of(lane, operation.single[0]));
        lane.extents = lane.extent_room.data();
        return;
    }
    if (lane.cut_for != lane.lane) cut_lane(operation, lane);
    load_round(operation, lane);
}

/// Assigns the first lanes to slots. Lane 0 is the largest, so scratch is sized for it.
inline void begin_lanes(OperationState& operation) {
    operation.slots_used =
        std::min(operation.lanes, operation.request.stream.through_host ? OperationState::bounced_at_once
                                                                        : OperationState::lanes_at_once);
    if (operation.lane_slots.size() < operation.slots_used)
        operation.lane_slots = FixedArray<LaneState>(operation.slots_used);
    if (!operation.point_to_point && operation.request.plan->scratch_slots() != 0) {
        const EvenSplit first = operation.input_partition.lane(0);
        const std::size_t bytes = operation.input_partition.largest_block(first) *
                                  operation.request.plan->scratch_slots() * operation.request.element_bytes;
        operation.scratch_bytes = (bytes + 63) / 64 * 64;
        const std::size_t all = operation.scratch_bytes * operation.slots_used;
        if (operation.scratch.size() < all) operation.scratch.resize(all);
    }
    for (std::uint32_t slot = 0; slot < operation.slots_used; ++slot) begin_lane(operation, operation.lane_slots[slot]);
}

/// A straight operation has one lane, and all of its steps are available.
inline void cut_straight(OperationState& operation) {
    if (operation.lane_slots.size() == 0) operation.lane_slots = FixedArray<LaneState>(1);
    LaneState& lane = operation.lane_slots[0];
    lane.lane = 0;
    cut_lane(operation, lane);
    lane.steps = operation.request.plan->kept_steps();
    lane.extents = lane.extent_room.data();
}

inline PeersView peers_view(const GroupContext& group, const OperationRequest& request) {
    const Plan& plan = *request.plan;
    if (!plan.mapped() || plan.staged() || group.size() == 1) return {};
    const bool root = plan.shape().root == group.rank;
    const std::size_t all = request.total_bytes;
    const auto rank = static_cast<std::size_t>(group.rank);
    const std::size_t own =
        (request.input_counts.empty() ? request.partition.count : request.input_counts[rank]) * request.element_bytes;
    switch (plan.collective()) {
    case Collective::all_reduce: return {.input = all, .output = all, .output_is_written = true};
    case Collective::reduce: return {.input = all, .output = root ? all : 0, .output_is_written = root};
    case Collective::broadcast: return {.output = root ? all : 0, .output_is_read = root};
    case Collective::reduce_scatter:
    case Collective::all_to_all: return {.input = all};
    case Collective::all_gather: return {.input = own};
    case Collective::gather: return {.input = root ? 0 : own};
    case Collective::scatter: return {.input = root ? all : 0};
    default: return {};
    }
}

/// Prepares a free state for this request, with everything that stays the same when the request is
/// repeated.
[[gnu::noinline, gnu::cold]] inline void cut(GroupContext& group, OperationState& operation,
                                             const OperationRequest& request, bool maps_peers) {
    const Plan& plan = *request.plan;
    operation.request = request;
    operation.group = &group;
    operation.point_to_point = false;
    operation.straight = maps_peers && plan.mapped() && plan.keeps_steps();
    cut_into_lanes(operation);
    sign(operation);
    operation.peers_view = peers_view(group, request);
    operation.messages = {};
    operation.rooted = has_root(plan.collective()) && group.size() > 1;
    operation.reads_alone =
        operation.rooted && plan.staged() && plan.collective() == Collective::reduce && plan.shape().root == group.rank;
    if (maps_peers && plan.staged() && group.size() > 1)
        operation.messages =
            group.board.messages(group.size(), posted_bytes(plan.collective(), request), operation.rooted);
    if (operation.straight) cut_straight(operation);
}

/// Turns a free state into a send or a receive.
inline void cut_point_to_point(GroupContext& group, OperationState& operation, const OperationRequest& request,
                               schedule::StepKind kind, int peer, std::uint32_t tag) {
    operation.request = request;
    operation.input_partition = Partition(Partition::uniform(request.count));
    operation.input_partition.prepare(1, 1, request.element_bytes);
    operation.output_partition = operation.input_partition;
    operation.group = &group;
    operation.sequence = 0;
    operation.point_to_point = true;
    operation.straight = false;
    operation.rooted = false;
    operation.lanes = 1;
    operation.single[0] = {.kind = kind,
                           .peer = peer,
                           .source = {schedule::Buffer::input, 0, 1, 0},
                           .target = {schedule::Buffer::output, 0, 1, 0},
                           .part = 0};
    const std::uint64_t number = group.number_of(peer, tag, kind == schedule::StepKind::send);
    operation.single_tag = {group.id, (std::uint64_t{1} << 63) | (std::uint64_t{tag} << 32) | number};
    operation.signature = {.collective = static_cast<std::uint8_t>(Collective::send_receive),
                           .reduction = 0,
                           .element = static_cast<std::uint8_t>(request.element),
                           .caller = 0,
                           .schedule = 0,
                           .count = Signature::counted_in(0, request.count)};
}

/// Begins the next round, or the next lane in this slot.
inline void finish_round(OperationState& operation, LaneState& lane) {
    ++lane.round;
    if (!operation.point_to_point && lane.round < operation.request.plan->rounds()) return load_round(operation, lane);
    ++operation.lanes_done;
    lane.active = false;
    if (operation.next_lane < operation.lanes) begin_lane(operation, lane);
}

} // namespace detail
UNISONO_NAMESPACE_END
