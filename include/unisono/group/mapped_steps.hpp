#pragma once

/// \file
/// The steps over mapped memory: flags, and combinations and copies straight from and to the peers' buffers.

#include "unisono/group/local_steps.hpp"

#include <algorithm>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline std::uint64_t turn_of(const OperationState& operation) {
    return (operation.mapped_index + 1) * 4 + operation.posts;
}

/// Puts the step's elements beside the flag.
template <std::size_t N>
[[gnu::always_inline]] inline void post_payload(OperationState& operation, const LaneState& lane, std::uint32_t step,
                                                std::byte (&payload)[N]) {
    const std::size_t count = lane.extents[step].source_count;
    if (count == 0) return;
    const std::size_t bytes = count * operation.request.element_bytes;
    UNISONO_ASSERT(bytes <= N, "a posted payload must fit the line");
    copy_small(payload, operation.source_of(lane, step), bytes);
    operation.group->traffic.bytes_sent += bytes;
}

/// Raises this rank's flag in the crowded line: word and payload side by side with those of the others.
inline bool post_crowded(OperationState& operation, const LaneState& lane, std::uint32_t step) {
    GroupContext& group = *operation.group;
    if (group.mapped_completed != operation.mapped_index) return false; // the others may still read the place
    CrowdedLine::Entry& entry = group.board.crowded(group.rank, group.size(), operation.crowded_number);
    post_payload(operation, lane, step, entry.payload);
    operation.posts = 1;
    entry.word.store(std::uint64_t{operation.crowded_number} << 32 | operation.short_signature,
                     std::memory_order_release);
    return true;
}

/// Raises this rank's flag in a line of its own; false while somebody still needs the older operation that used the same line.
inline bool post(OperationState& operation, LaneState& lane, std::uint32_t step) {
    GroupContext& group = *operation.group;
    const std::uint64_t index = operation.mapped_index;
    if (operation.posts == 0 && index >= group.known_completed + MappedBoard::depth) {
        std::uint64_t least = group.mapped_started;
        for (int peer = 0; peer < group.size(); ++peer) {
            least = std::min(least, group.board.completed(peer).load(std::memory_order_acquire));
        }
        group.known_completed = least;
        if (index >= least + MappedBoard::depth) return false;
    }
    MappedLine& line = group.board.line(group.rank, index);
    if (operation.posts == 0) {
        post_payload(operation, lane, step, line.payload);
        line.signature = operation.signature;
        line.input = operation.request.input;
        line.output = operation.request.output;
        line.completed = group.mapped_completed;
    }
    ++operation.posts;
    line.turn.store(turn_of(operation), std::memory_order_release);
    // The next one is likely to be as long. Stores go out one after another: without this each line would be a trip.
    const auto* next = reinterpret_cast<const std::byte*>(&group.board.line(group.rank, index + 1));
    const std::size_t bytes =
        offsetof(MappedLine, payload) + lane.extents[step].source_count * operation.request.element_bytes;
    for (std::size_t at = 0; at < bytes; at += 64) prefetch_to_write(next + at);
    return true;
}

inline constexpr int nobody = -1;
inline constexpr int not_yet = -2;

/// `not_yet` or `nobody`. Where a hash differs it waits, until somebody asks what the others do and finds out.
inline int awaited_crowded(const OperationState& operation) {
    GroupContext& group = *operation.group;
    const std::uint64_t wanted = std::uint64_t{operation.crowded_number} << 32 | operation.short_signature;
    const int ranks = group.size();
    for (int peer = 0; peer < ranks; ++peer) {
        const auto& entry = group.board.crowded(peer, ranks, operation.crowded_number);
        if (entry.word.load(std::memory_order_acquire) != wanted) return not_yet;
    }
    group.known_completed = operation.mapped_index; // all completed what was before, or they could not have posted
    return nobody;
}

/// `not_yet`, or the rank whose signature differs, or `nobody`: all have come. Then it is also known how far they were.
inline int awaited(const OperationState& operation) {
    GroupContext& group = *operation.group;
    const std::uint64_t wanted = turn_of(operation);
    std::uint64_t least = group.mapped_completed;
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        const MappedLine& line = group.board.line(peer, operation.mapped_index);
        if (line.turn.load(std::memory_order_acquire) < wanted) return not_yet;
        if (operation.posts == 1 && !(line.signature == operation.signature)) return peer;
        least = std::min(least, line.completed);
    }
    group.known_completed = std::max(group.known_completed, least);
    return nobody;
}

/// All ranks' elements into the targets.
inline void combine_all(const OperationState& operation, const StepExtent& extent, const AddressRoom& room,
                        std::byte* const* targets, std::size_t target_count) {
    const Reduction& reduction = operation.request.reduction;
    const auto ranks = static_cast<std::size_t>(operation.group->size());
    const std::byte* const* const sources = room.sources.data();
    if (reduction.combine_at == nullptr)
        return reduction.combine(reduction.state, sources, ranks, targets, target_count, extent.source_count);
    reduction.combine_at(reduction.state, sources, ranks, targets, target_count, extent.source_count,
                         extent.source / operation.request.element_bytes);
}

/// What a rank put beside its flag.
inline const std::byte* posted_by(const OperationState& operation, int peer) {
    const GroupContext& group = *operation.group;
    return operation.crowded ? group.board.crowded(peer, group.size(), operation.crowded_number).payload
                             : group.board.line(peer, operation.mapped_index).payload;
}

/// All ranks' posted blocks combined in rank order into the own output.
inline void combine_posted(OperationState& operation, LaneState& lane, std::uint32_t index, AddressRoom& room) {
    GroupContext& group = *operation.group;
    const StepExtent& extent = lane.extents[index];
    if (extent.source_count == 0) return;
    const auto ranks = static_cast<std::size_t>(group.size());
    room.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer)
        room.sources[peer] = posted_by(operation, static_cast<int>(peer)) + extent.source;
    group.traffic.bytes_received += extent.source_count * operation.request.element_bytes * (ranks - 1);
    std::byte* const target = operation.target_of(lane, index);
    combine_all(operation, extent, room, &target, 1);
}

/// All ranks' source blocks combined in rank order into one rank's output, or into everybody's.
inline void combine_peers(OperationState& operation, const LaneState& lane, std::uint32_t index, AddressRoom& room) {
    GroupContext& group = *operation.group;
    const schedule::Step& step = lane.steps[index];
    const StepExtent& extent = lane.extents[index];
    if (extent.source_count == 0) return;
    const auto ranks = static_cast<std::size_t>(group.size());
    const bool to_all = step.peer == schedule::everyone;
    room.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
        const MappedLine& line = group.board.line(static_cast<int>(peer), operation.mapped_index);
        const std::ptrdiff_t here = group.shifts[peer];
        room.sources[peer] = line.input + here + extent.source;
        if (to_all || static_cast<int>(peer) == step.peer) room.targets[peer] = line.output + here + extent.target;
    }
    const std::size_t bytes = extent.source_count * operation.request.element_bytes;
    group.traffic.bytes_received += bytes * (ranks - 1);
    group.traffic.bytes_sent += to_all ? bytes * (ranks - 1) : step.peer != group.rank ? bytes : 0;
    combine_all(operation, extent, room, room.targets.data() + (to_all ? 0 : step.peer), to_all ? ranks : 1);
}

inline void copy_from_peer(OperationState& operation, LaneState& lane, std::uint32_t index) {
    GroupContext& group = *operation.group;
    const schedule::Step& step = lane.steps[index];
    const StepExtent& extent = lane.extents[index];
    const std::byte* base = nullptr;
    if (step.source.where == schedule::Buffer::posted) {
        base = posted_by(operation, step.peer);
    } else {
        const MappedLine& line = group.board.line(step.peer, operation.mapped_index);
        base = (step.source.where == schedule::Buffer::input ? line.input : line.output) +
               group.shifts[static_cast<std::size_t>(step.peer)];
    }
    if (step.peer != group.rank) group.traffic.bytes_received += extent.source_count * operation.request.element_bytes;
    copy(operation, lane, index, base + extent.source);
}

/// Wakes the ranks that sleep until this one has written what it just wrote on the group's board.
template <class Transport>
[[gnu::always_inline]] inline void wake_group(Transport& transport, const GroupContext& group) {
    if constexpr (requires { transport.one_sleeps(); }) {
        if (!transport.one_sleeps()) [[likely]]
            return;
        for (int peer = 0; peer < group.size(); ++peer) {
            if (peer != group.rank) transport.wake(group.world_rank(peer));
        }
    }
}

/// Runs the lane's next step: `nobody` if it is done, `not_yet` if there is somebody to wait for or the world has ended, or
/// the rank whose signature differs.
template <class Transport>
int run_mapped_step(Transport& transport, OperationState& operation, LaneState& lane, AddressRoom& room) {
    using schedule::StepKind;
    const std::uint32_t index = lane.cursor;
    const schedule::Step& step = lane.steps[index];
    if (step.kind == StepKind::post) {
        const bool done = operation.crowded ? post_crowded(operation, lane, index) : post(operation, lane, index);
        if (!done) return not_yet;
        wake_group(transport, *operation.group);
        return nobody;
    }
    if (step.kind == StepKind::await) return operation.crowded ? awaited_crowded(operation) : awaited(operation);
    if (step.kind == StepKind::copy) {
        copy(operation, lane, index, operation.source_of(lane, index));
        return nobody;
    }
    if (step.source.where == schedule::Buffer::posted) { // the world's memory, not that of the peers' programs
        if (transport.first_fault() != nullptr) return not_yet;
        if (step.kind == StepKind::combine_peers) combine_posted(operation, lane, index, room);
        else copy_from_peer(operation, lane, index);
        return nobody;
    }
    const Touching touching(transport);
    if (!touching) return not_yet;
    if (step.kind == StepKind::combine_peers) combine_peers(operation, lane, index, room);
    else copy_from_peer(operation, lane, index);
    return nobody;
}

/// Tells the others how far this rank is, so that they may use the lines again.
inline void complete_mapped(const OperationState& operation) {
    GroupContext& group = *operation.group;
    group.mapped_ahead |= std::uint64_t{1} << (operation.mapped_index - group.mapped_completed);
    while ((group.mapped_ahead & 1) != 0) {
        group.mapped_ahead >>= 1;
        ++group.mapped_completed;
    }
    group.board.completed(group.rank).store(group.mapped_completed, std::memory_order_release);
}

/// A collective is done on this rank.
template <class Transport>
void tell_finished(Transport& transport, const OperationState& operation) {
    GroupContext& group = *operation.group;
    if (operation.request.plan->mapped()) {
        complete_mapped(operation);
        wake_group(transport, group); // one may wait for the line
    }
    if (group.announcements) group.announcements.finish(group.rank, group.done_up_to(operation.sequence));
}

} // namespace detail
UNISONO_NAMESPACE_END
