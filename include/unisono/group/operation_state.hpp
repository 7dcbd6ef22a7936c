#pragma once

/// \file
/// One collective in flight on one rank: what the executor keeps of it.

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/partition.hpp"
#include "unisono/group/plan.hpp"
#include "unisono/transport/transport.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// What a collective asks of the executor.
struct OperationRequest {
    const Plan* plan = nullptr;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Partition input_partition;
    Partition output_partition;
    std::span<const std::size_t> input_counts = {}; ///< a block each, where they differ: replace the partitions; copied
    std::span<const std::size_t> output_counts = {};
    ElementType element = ElementType::opaque;
    std::size_t element_bytes = 1;
    std::uint64_t count = 0; ///< for the signature
    Reduction reduction;
    std::size_t state_bytes = 0; ///< of reduction.state, copied; at most `OperationState::state_capacity`
    std::size_t chunk_bytes = 0; ///< 0: one lane
    std::size_t total_bytes = 0; ///< what is cut into chunks
};

/// One piece of the data on its way through the rounds.
struct LaneState {
    std::uint32_t lane = 0;
    std::uint32_t round = 0;
    std::uint32_t cursor = 0;      ///< next step of the round
    std::uint32_t outstanding = 0; ///< sends and receives not yet complete
    bool active = false;
    EvenSplit split;
    std::size_t scratch_stride = 0; ///< elements of a slot
    std::span<const schedule::Step> steps;
    std::vector<schedule::Step> room;
};

struct OperationState {
    static constexpr std::size_t state_capacity = 64;
    static constexpr std::uint32_t most_lanes = 1024;
    static constexpr std::uint32_t lanes_at_once = 8;
    static constexpr std::uint32_t no_companion = 0xffffffffu;

    using Finish = void (*)(OperationState&, const OperationState* companion);

    OperationRequest request;
    GroupContext* group = nullptr;
    std::uint64_t sequence = 0; ///< in its group, from 1
    std::uint64_t mapped_index = 0;
    std::uint32_t posts = 0; ///< mapped flags raised so far
    Signature signature;
    std::vector<std::size_t> input_offsets; ///< of blocks with counts of their own
    std::vector<std::size_t> output_offsets;
    std::uint32_t lanes = 1;
    std::uint32_t next_lane = 0;
    std::uint32_t lanes_done = 0;
    std::vector<LaneState> slots; ///< lanes in flight; only grows
    std::uint32_t slots_used = 0;
    std::vector<std::byte> scratch;
    std::size_t scratch_bytes = 0; ///< of each slot
    bool in_use = false;
    bool done = false;
    bool point_to_point = false;
    std::array<schedule::Step, 1> single{}; ///< of a send or receive
    Tag single_tag;
    std::uint32_t companion = no_companion; ///< an operation that must be done too (the weights of a weighted mean)
    Finish finish = nullptr;                ///< runs once, when both are done
    std::array<double, 2> numbers{};        ///< for `finish`: own weight and the sum of all
    alignas(16) std::array<std::byte, state_capacity> state{};

    [[nodiscard]] bool holds_one_block(schedule::Buffer where) const {
        if (point_to_point) return false;
        switch (request.plan->collective()) {
        case Collective::all_gather:
        case Collective::gather: return where == schedule::Buffer::input;
        case Collective::reduce_scatter:
        case Collective::scatter: return where == schedule::Buffer::output;
        default: return false;
        }
    }

    [[nodiscard]] const Partition& partition(schedule::Buffer where) const {
        return where == schedule::Buffer::output ? request.output_partition : request.input_partition;
    }

    /// Where blocks lie relative to the beginning of their buffer, in elements.
    [[nodiscard]] Extent extent(const LaneState& lane, const schedule::Blocks& blocks) const {
        const Partition& cut = partition(blocks.where);
        Extent found = cut.extent(lane.lane, lane.split, blocks.first, blocks.count);
        if (blocks.where == schedule::Buffer::scratch) {
            found.begin = blocks.slot * lane.scratch_stride;
            if (blocks.ahead != 0) {
                found.begin += cut.extent(lane.lane, lane.split, blocks.first - blocks.ahead, blocks.ahead).count;
            }
        } else if (blocks.where == schedule::Buffer::posted) {
            found.begin = 0;
        } else if (holds_one_block(blocks.where)) {
            found.begin -= cut.block_begin(blocks.first);
        }
        return found;
    }

    [[nodiscard]] const std::byte* source_address(const LaneState& lane, const schedule::Blocks& blocks) const {
        const std::size_t begin = extent(lane, blocks).begin * request.element_bytes;
        if (blocks.where == schedule::Buffer::input) return request.input + begin;
        if (blocks.where == schedule::Buffer::output) return request.output + begin;
        return scratch.data() + scratch_offset(lane) + begin;
    }
    [[nodiscard]] std::byte* target_address(const LaneState& lane, const schedule::Blocks& blocks) {
        const std::size_t begin = extent(lane, blocks).begin * request.element_bytes;
        if (blocks.where == schedule::Buffer::output) return request.output + begin;
        UNISONO_ASSERT(blocks.where == schedule::Buffer::scratch, "a schedule may write to output and scratch only");
        return scratch.data() + scratch_offset(lane) + begin;
    }

    /// Each lane in flight has scratch of its own.
    [[nodiscard]] std::size_t scratch_offset(const LaneState& lane) const {
        return static_cast<std::size_t>(&lane - slots.data()) * scratch_bytes;
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
