#pragma once

/// \file
/// The steps that use only this rank's memory: copies and combinations.

#include "unisono/core/list.hpp"
#include "unisono/core/streamed_copy.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory for the addresses of a combination, kept so that no step allocates.
struct AddressRoom {
    struct alignas(16) Chunk {
        std::byte bytes[64];
    };
    List<const std::byte*> sources;
    List<std::byte*> targets;
    List<Chunk> payloads; ///< small messages of several lines, put together

    void resize(std::size_t ranks) {
        if (sources.size() < ranks) sources.resize(ranks), targets.resize(ranks);
    }
    void resize_payloads(std::size_t ranks, std::size_t bytes) {
        if (payloads.size() < ranks * chunks(bytes)) payloads.resize(ranks * chunks(bytes));
    }
    [[nodiscard]] std::byte* payload(std::size_t rank, std::size_t bytes) {
        return reinterpret_cast<std::byte*>(payloads.data() + rank * chunks(bytes));
    }
    static std::size_t chunks(std::size_t bytes) { return (bytes + sizeof(Chunk) - 1) / sizeof(Chunk); }
};

/// True if a copy bypasses the caches: the data to which it belongs exceed every cache, and it is
/// not a chunk that ranks pass on (bench/RESULTS.md, "Large copies").
constexpr bool is_streamed(std::size_t whole, std::size_t bytes) {
    return has_streamed_stores && whole >= std::size_t{16} << 20 && bytes >= std::size_t{4} << 20;
}

/// The round's `index`-th step: target = the source at `from`. Does nothing if both are the same
/// memory.
inline void copy(OperationState& operation, LaneState& lane, std::uint32_t index, const std::byte* from) {
    const std::size_t bytes = lane.extents[index].target_count * operation.request.element_bytes;
    if (bytes == 0) return;
    std::byte* to = operation.target_of(lane, index);
    if (to == from) return;
    if (is_streamed(operation.request.total_bytes, bytes) && (to + bytes <= from || from + bytes <= to))
        return copy_past_caches(to, from, bytes);
    std::memmove(to, from, bytes);
}

/// target = source combined with the block at `other`.
inline void combine(OperationState& operation, LaneState& lane, std::uint32_t index, const std::byte* other) {
    const std::size_t count = lane.extents[index].target_count;
    if (count == 0) return;
    std::byte* to = operation.target_of(lane, index);
    const std::byte* sources[2] = {operation.source_of(lane, index), other};
    const Reduction& reduction = operation.request.reduction;
    reduction.combine(reduction.state, sources, 2, &to, 1, count);
}

/// target = the ranks' blocks combined in rank order. This rank's block is `source`, the others are
/// in scratch.
inline void combine_ranks(OperationState& operation, LaneState& lane, std::uint32_t index, AddressRoom& room) {
    const std::size_t count = lane.extents[index].target_count;
    if (count == 0) return;
    const schedule::Step& step = lane.steps[index];
    const auto ranks = static_cast<std::uint32_t>(operation.group->size());
    const auto own = static_cast<std::uint32_t>(operation.group->rank);
    const std::size_t each = operation.request.element_bytes;
    room.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::uint32_t slot = step.source.slot + (rank < own ? rank : rank - 1);
        const schedule::Blocks blocks = schedule::scratch_blocks(step.source.first, step.source.count, slot);
        room.sources[rank] = rank == own ? operation.source_of(lane, index)
                                         : operation.source_base(lane, schedule::Buffer::scratch) +
                                               operation.extent(lane, blocks).begin * each;
    }
    std::byte* to = operation.target_of(lane, index);
    const Reduction& reduction = operation.request.reduction;
    reduction.combine(reduction.state, room.sources.data(), ranks, &to, 1, count);
}

} // namespace detail
UNISONO_NAMESPACE_END
