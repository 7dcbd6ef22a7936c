#pragma once

/// \file
/// The bounce buffers of a few lanes, in pinned memory, through which a device's data travel
/// (bounced_lanes.hpp): their sizes, and the bytes of a lane in them and in the device's memory.

#include "unisono/group/lanes.hpp"
#include "unisono/group/operation_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline std::size_t slot_of_lane(const OperationState& operation, const LaneState& lane) {
    return static_cast<std::size_t>(&lane - operation.lane_slots.data());
}

/// The sizes of a lane's bounce buffers, in elements.
inline OperationState::BounceSizes bounce_sizes_of(const OperationState& operation, const GroupContext& group) {
    const auto ranks = static_cast<std::uint32_t>(group.size());
    OperationState::BounceSizes made;
    made.stride = std::max(operation.input_partition.largest_piece(), operation.output_partition.largest_piece());
    const auto size_of = [&](schedule::Buffer where) {
        const Partition& cut = operation.partition(where);
        if (cut.is_vector() || operation.holds_one_block(where)) return cut.largest_piece();
        return operation.lanes == 1 ? cut.extent(0, {}, 0, ranks).count : made.stride * ranks;
    };
    made.input = size_of(schedule::Buffer::input);
    made.output = size_of(schedule::Buffer::output);
    return made;
}

/// Calls `visit` for each range of a lane: its position in the bounce buffers, its position in the
/// device's memory, and its bytes.
template <class Visit>
void for_each_piece(const OperationState& operation, const LaneState& lane, schedule::Buffer where, Visit visit) {
    const std::size_t each = operation.request.element_bytes;
    const Partition& cut = operation.partition(where);
    const std::size_t slot = slot_of_lane(operation, lane);
    const std::size_t slot_begin =
        slot * (where == schedule::Buffer::output ? operation.bounce.output : operation.bounce.input);
    const auto give = [&](std::size_t at, const Extent& part) {
        if (part.count != 0) visit((slot_begin + at) * each, part.begin * each, part.count * each);
    };
    const auto ranks = static_cast<std::uint32_t>(operation.group->size());
    if (cut.is_vector()) return give(0, cut.vector_lane(lane.lane));
    if (operation.holds_one_block(where)) {
        const auto own = static_cast<std::uint32_t>(operation.group->rank);
        Extent part = cut.extent(lane.lane, lane.split, own, 1);
        part.begin -= cut.block_begin(own);
        return give(0, part);
    }
    if (operation.lanes == 1) return give(0, cut.extent(0, {}, 0, ranks));
    for (std::uint32_t block = 0; block < ranks; ++block)
        give(block * operation.bounce.stride, cut.extent(lane.lane, lane.split, block, 1));
}

/// Multiplies a lane of the output's bounce buffer by a number: for weighted means, whose data are
/// vectors.
inline void weigh(const OperationState& operation, const LaneState& lane,
                  void (*change)(std::byte*, std::size_t, double), double by) {
    if (change == nullptr) return;
    const std::size_t slot_begin = slot_of_lane(operation, lane) * operation.bounce.output;
    change(operation.request.output + slot_begin * operation.request.element_bytes,
           operation.output_partition.vector_lane(lane.lane).count, by);
}

} // namespace detail
UNISONO_NAMESPACE_END
