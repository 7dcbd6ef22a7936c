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

/// Raises this rank's flag; false while somebody still needs the older operation that used the same line.
inline bool post(OperationState& operation, LaneState& lane, const schedule::Step& step) {
    GroupContext& group = *operation.group;
    const std::uint64_t index = operation.mapped_index;
    if (operation.posts == 0 && index >= group.known_completed + MappedBoard::depth) {
        std::uint64_t least = group.mapped_started;
        for (int peer = 0; peer < group.size(); ++peer) {
            least = std::min(least, group.board->completed(peer).load(std::memory_order_acquire));
        }
        group.known_completed = least;
        if (index >= least + MappedBoard::depth) return false;
    }
    MappedLine& line = group.board->line(group.rank, index);
    if (operation.posts == 0) {
        line.signature = operation.signature;
        line.input = operation.request.input;
        line.output = operation.request.output;
        if (step.source.count != 0) {
            const std::size_t bytes = operation.extent(lane, step.source).count * operation.request.element_bytes;
            UNISONO_ASSERT(bytes <= MappedLine::payload_bytes, "a posted payload must fit the line");
            if (bytes != 0) std::memcpy(line.payload, operation.source_address(lane, step.source), bytes);
            group.traffic.bytes_sent += bytes;
        }
    }
    ++operation.posts;
    line.turn.store(turn_of(operation), std::memory_order_release);
    return true;
}

inline constexpr int nobody = -1;
inline constexpr int not_yet = -2;

/// `not_yet`, or the rank whose signature differs, or `nobody`: all have come.
inline int awaited(const OperationState& operation) {
    const GroupContext& group = *operation.group;
    const std::uint64_t wanted = turn_of(operation);
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        const MappedLine& line = group.board->line(peer, operation.mapped_index);
        if (line.turn.load(std::memory_order_acquire) < wanted) return not_yet;
        if (operation.posts == 1 && !(line.signature == operation.signature)) return peer;
    }
    return nobody;
}

/// All ranks' source blocks combined in rank order into one rank's output, or into everybody's.
inline void combine_peers(OperationState& operation, const LaneState& lane, const schedule::Step& step,
                          AddressRoom& room) {
    GroupContext& group = *operation.group;
    const Extent from = operation.extent(lane, step.source);
    if (from.count == 0) return;
    const Extent to = operation.extent(lane, step.target);
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t each = operation.request.element_bytes;
    room.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
        MappedLine& line = group.board->line(static_cast<int>(peer), operation.mapped_index);
        const bool posted = step.source.where == schedule::Buffer::posted;
        room.sources[peer] = (posted ? line.payload : line.input) + from.begin * each;
        room.targets[peer] = line.output + to.begin * each;
    }
    const std::size_t bytes = from.count * each;
    const bool to_all = step.peer == schedule::everyone;
    group.traffic.bytes_received += bytes * (ranks - 1);
    group.traffic.bytes_sent += to_all ? bytes * (ranks - 1) : step.peer != group.rank ? bytes : 0;
    const Reduction& reduction = operation.request.reduction;
    std::byte* const* targets = room.targets.data() + (to_all ? 0 : step.peer);
    reduction.combine(reduction.state, room.sources.data(), ranks, targets, to_all ? ranks : 1, from.count);
}

inline void copy_from_peer(OperationState& operation, LaneState& lane, const schedule::Step& step) {
    GroupContext& group = *operation.group;
    const MappedLine& line = group.board->line(step.peer, operation.mapped_index);
    const std::byte* base = step.source.where == schedule::Buffer::input    ? line.input
                            : step.source.where == schedule::Buffer::output ? line.output
                                                                            : line.payload;
    const Extent from = operation.extent(lane, step.source);
    if (step.peer != group.rank) group.traffic.bytes_received += from.count * operation.request.element_bytes;
    copy(operation, lane, step, base + from.begin * operation.request.element_bytes);
}

/// Tells the others how far this rank is, so that they may use the lines again.
inline void complete_mapped(const OperationState& operation) {
    GroupContext& group = *operation.group;
    group.mapped_ahead |= std::uint64_t{1} << (operation.mapped_index - group.mapped_completed);
    while ((group.mapped_ahead & 1) != 0) {
        group.mapped_ahead >>= 1;
        ++group.mapped_completed;
    }
    group.board->completed(group.rank).store(group.mapped_completed, std::memory_order_release);
}

} // namespace detail
UNISONO_NAMESPACE_END
