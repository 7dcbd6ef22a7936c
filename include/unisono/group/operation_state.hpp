#pragma once

/// \file
/// The executor's state of one collective in flight on one rank.

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/core/floating_point.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/partition.hpp"
#include "unisono/group/plan.hpp"
#include "unisono/transport/transport.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The part of a request for a transport whose own collectives run on a device's stream.
struct StreamRequest {
    bool weighted = false;                 ///< multiply each rank's elements by its weight first
    MemorySpace space = MemorySpace::host; ///< of input and output
    const Plan* plan = nullptr;            ///< the library schedule to run; none: the transport's own collective
    StreamKernelFunction kernel = nullptr; ///< the kernel with which that schedule combines
    double weight = 1.0;
    const void* graph = nullptr; ///< a graph to launch instead of all that
    /// Instead of all that: run the host's schedules, lane by lane through bounce buffers
    /// (extensions/device/bounced_lanes.hpp).
    bool through_host = false;
    double divisor = 1.0; ///< of a weighted mean: the sum of all weights
    void (*weigh)(std::byte* data, std::size_t count, double by) = nullptr;  ///< multiplies arrived data,
    void (*divide)(std::byte* data, std::size_t count, double by) = nullptr; ///< and divides data that leave
};

/// A collective's request to the executor. Small, since each call makes one.
struct OperationRequest {
    const Plan* plan = nullptr;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Partition::Wanted partition;                    ///< of input and output
    std::span<const std::size_t> input_counts = {}; ///< of each block, if they differ; replace the partition
    std::span<const std::size_t> output_counts = {};
    ElementType element = ElementType::opaque;
    Caller caller = Caller::none;
    FloatingPointMode mode = FloatingPointMode::standard; ///< of the calling thread, if it matters
    std::uint32_t element_bytes = 1;
    std::uint64_t count = 0; ///< for the signature; with `listed_counts`, a hash of a list of counts
    Reduction reduction;
    std::size_t chunk_bytes = 0; ///< 0: one lane
    std::size_t total_bytes = 0; ///< the bytes that are cut into chunks
    StreamRequest stream;
};

static_assert(!ends_in_padding<StreamRequest> && !ends_in_padding<OperationRequest>);

/// More than any number of elements.
inline constexpr std::uint64_t listed_counts = std::uint64_t{1} << (Signature::count_bits - 1);
inline constexpr std::uint32_t no_operation = 0xffffffffu; ///< instead of an index

/// The largest number of bytes that a rank posts beside its flag if the collective uses a staged
/// schedule. Equal on all ranks.
constexpr std::size_t posted_bytes(Collective what, const OperationRequest& request) {
    if (what == Collective::barrier) return 0;
    const bool own_block = buffer_use(what).input == Holding::own_block;
    return own_block && request.input_counts.empty() ? request.partition.count * request.element_bytes
                                                     : request.total_bytes;
}

/// The bytes of one rank's buffers that the peers read and write.
struct PeersView {
    std::size_t input = 0;
    std::size_t output = 0;
    bool output_is_read = false;
    bool output_is_written = false;
};

/// Copies of an operation's buffers that the peers see; none if they see the buffers themselves.
struct PeersCopies {
    std::shared_ptr<std::byte> input;
    std::shared_ptr<std::byte> output;
    const std::byte* user_input = nullptr;
    std::byte* user_output = nullptr;
    std::size_t copy_back = 0; ///< bytes of the output

    [[nodiscard]] bool used() const { return input != nullptr || output != nullptr; }
    /// As std::swap, without the reference counts of moves.
    void swap(PeersCopies& other) noexcept {
        input.swap(other.input);
        output.swap(other.output);
        std::swap(user_input, other.user_input);
        std::swap(user_output, other.user_output);
        std::swap(copy_back, other.copy_back);
    }
};

/// The memory of a step's blocks: offsets in bytes from the beginning of their buffers, and numbers
/// of elements.
struct StepExtent {
    std::size_t source = 0;
    std::size_t source_count = 0;
    std::size_t target = 0;
    std::size_t target_count = 0;
};

/// The state of one lane.
struct LaneState {
    static constexpr std::uint32_t no_lane = 0xffffffffu;

    std::uint32_t lane = 0;
    std::uint32_t round = 0;
    std::uint32_t cursor = 0;      ///< next step of the round
    std::uint32_t outstanding = 0; ///< sends and receives not yet complete
    bool active = false;
    std::uint32_t cut_for = no_lane; ///< the lane for which `split` and `scratch_stride` were computed
    EvenSplit split;
    std::size_t scratch_stride = 0;      ///< elements of a slot
    Part<const schedule::Step> steps;    ///< of the round
    const StepExtent* extents = nullptr; ///< one for each of them
    List<schedule::Step> room;
    List<StepExtent> extent_room; ///< of all rounds, if the plan keeps its steps and there is one lane
};

struct OperationState {
    static constexpr std::uint32_t most_lanes = 1024;
    static constexpr std::uint32_t lanes_at_once = 8;
    /// Lanes of device memory in flight: one arrives, one is summed, one leaves.
    static constexpr std::uint32_t bounced_at_once = 3;

    /// The bounce buffers of lanes of device memory: each slot has its range of the input's buffer,
    /// and of the output's.
    struct BounceSizes {
        std::size_t input = 0;  ///< elements of a slot's range
        std::size_t output = 0; ///< as `input`
        std::size_t stride = 0; ///< from one block's range to the next one's, if blocks are cut
    };

    using Finish = void (*)(OperationState&, const OperationState* companion);

    OperationRequest request;
    Partition input_partition;
    Partition output_partition;
    GroupContext* group = nullptr;
    std::uint64_t sequence = 0; ///< in its group, from 1
    std::uint64_t mapped_index = 0;
    std::uint32_t posts = 0;        ///< mapped flags raised so far
    std::uint64_t small_number = 0; ///< the operation's number among those by small messages
    std::uint32_t short_signature = 0;
    std::uint32_t history = 0; ///< a hash of its sequence number and its group's history
    bool rooted = false;       ///< a rank may complete it before others have started it
    bool reads_alone = false;  ///< no other rank reads what this rank posts beside its flag
    std::uint32_t number = 0;  ///< in its engine; tokens contain it
    bool is_free = true;       ///< its group may use it
    CallKey key;               ///< of the call for which it is prepared; none: a handle has it, not its group
    PeersCopies copies;
    Signature signature;
    List<std::size_t> input_offsets; ///< of blocks, if counts were given
    List<std::size_t> output_offsets;
    std::uint32_t lanes = 1;
    std::uint32_t next_lane = 0;
    std::uint32_t lanes_done = 0;
    FixedArray<LaneState> lane_slots; ///< lanes in flight; only grows
    std::uint32_t slots_used = 0;
    List<std::byte> scratch;
    std::size_t scratch_bytes = 0; ///< of each slot
    bool done = true;
    bool point_to_point = false;
    PeersView peers_view;
    FlaggedMessages messages;          ///< set if it runs by small messages
    const std::byte* posted = nullptr; ///< the data of which this rank's small message is a copy
    BounceSizes bounce;
    bool straight = false;                  ///< over mapped memory, in one lane whose steps are all kept
    std::array<schedule::Step, 1> single{}; ///< of a send or receive
    Tag single_tag;
    std::uint32_t companion = no_operation; ///< an operation that must be done as well (the weights of a weighted mean)
    Finish finish = nullptr;                ///< runs once, when both are done
    std::array<double, 2> numbers{};        ///< for `finish`: this rank's weight and the sum of all weights
    alignas(Reduction::state_alignment) std::array<std::byte, Reduction::state_capacity> state{};
    Owned<OperationState> after; ///< see Engine::lost_

    /// Keeps a copy of the user's operation.
    void keep_state(const OperationRequest& of) {
        std::memcpy(state.data(), of.reduction.state, of.reduction.state_bytes);
        request.reduction.state = state.data();
    }

    /// The word of a small message's first line: the operation's number, and a hash of its
    /// signature and of the group's history. The hash includes the number's upper half, so that no
    /// word recurs after 2^32 operations.
    [[nodiscard]] std::uint64_t first_word() const {
        return small_number << 32 |
               (short_signature ^ history ^ static_cast<std::uint32_t>(small_number >> 32) * 2654435761u);
    }
    [[nodiscard]] FlaggedMessage message_of(int peer) const { return messages.of(peer, small_number); }

    [[nodiscard]] bool is_transports_own() const { return !point_to_point && request.plan->transports_own(); }

    [[nodiscard]] bool holds_one_block(schedule::Buffer where) const {
        if (point_to_point) return false;
        const BufferUse use = buffer_use(request.plan->collective());
        return (where == schedule::Buffer::input && use.input == Holding::own_block) ||
               (where == schedule::Buffer::output && use.output == Holding::own_block);
    }

    [[nodiscard]] const Partition& partition(schedule::Buffer where) const {
        return where == schedule::Buffer::output ? output_partition : input_partition;
    }

    /// The range of blocks in their buffer, in elements.
    [[nodiscard]] Extent extent(const LaneState& lane, const schedule::Blocks& blocks) const {
        const Partition& cut = partition(blocks.where);
        Extent found = cut.extent(lane.lane, lane.split, blocks.first, blocks.count);
        if (blocks.where == schedule::Buffer::scratch) {
            found.begin = blocks.slot * lane.scratch_stride;
            if (blocks.ahead != 0) {
                found.begin += cut.extent(lane.lane, lane.split, blocks.first - blocks.ahead, blocks.ahead).count;
            }
        } else if (blocks.where == schedule::Buffer::posted) {
            found.begin = cut.extent(lane.lane, lane.split, blocks.first - blocks.ahead, blocks.ahead).count;
        } else if (request.stream.through_host) {
            found.begin = found.count == 0 ? 0 : bounce_begin(lane, blocks, found.begin); // there may be no copy
        } else if (holds_one_block(blocks.where)) {
            found.begin -= cut.block_begin(blocks.first);
        }
        return found;
    }

    /// The position of a lane's blocks in the bounce buffer; `begin` is their position in the
    /// program's buffer.
    [[nodiscard]] std::size_t bounce_begin(const LaneState& lane, const schedule::Blocks& blocks,
                                           std::size_t begin) const {
        const Partition& cut = partition(blocks.where);
        const auto slot = static_cast<std::size_t>(&lane - lane_slots.data());
        const std::size_t slot_begin = slot * (blocks.where == schedule::Buffer::output ? bounce.output : bounce.input);
        if (cut.is_vector()) return slot_begin + begin - cut.vector_lane(lane.lane).begin;
        if (holds_one_block(blocks.where)) return slot_begin;
        return slot_begin + (lanes == 1 ? begin : blocks.first * bounce.stride);
    }

    [[nodiscard]] StepExtent extents_of(const LaneState& lane, const schedule::Step& step) const {
        const Extent source = extent(lane, step.source);
        const Extent target = extent(lane, step.target);
        return {source.begin * request.element_bytes, source.count, target.begin * request.element_bytes, target.count};
    }

    /// The address of the source of the round's `index`-th step, in this rank's memory.
    [[nodiscard]] const std::byte* source_of(const LaneState& lane, std::uint32_t index) const {
        return source_base(lane, lane.steps[index].source.where) + lane.extents[index].source;
    }
    [[nodiscard]] const std::byte* source_base(const LaneState& lane, schedule::Buffer where) const {
        if (where == schedule::Buffer::input) return request.input;
        if (where == schedule::Buffer::output) return request.output;
        return scratch.data() + scratch_offset(lane);
    }
    [[nodiscard]] std::byte* target_of(const LaneState& lane, std::uint32_t index) {
        const std::size_t begin = lane.extents[index].target;
        const schedule::Buffer where = lane.steps[index].target.where;
        if (where == schedule::Buffer::output) return request.output + begin;
        UNISONO_ASSERT(where == schedule::Buffer::scratch, "a schedule may write to output and scratch only");
        return scratch.data() + scratch_offset(lane) + begin;
    }

    /// The scratch of a lane; each lane in flight has its own.
    [[nodiscard]] std::size_t scratch_offset(const LaneState& lane) const {
        return static_cast<std::size_t>(&lane - lane_slots.data()) * scratch_bytes;
    }
};

/// This rank's description of the operation, which must be equal on all ranks. Properties without a
/// field are mixed into the schedule's hash: the number of lanes, the size of untyped elements, and
/// the type of the user's operation.
inline Signature signature_of(const OperationState& operation) {
    const OperationRequest& request = operation.request;
    const std::uint32_t size = request.element == ElementType::opaque ? request.element_bytes * 2246822519u : 0;
    return {
        .collective = static_cast<std::uint8_t>(request.plan->collective()),
        .reduction = static_cast<std::uint8_t>(request.reduction.kind),
        .element = static_cast<std::uint8_t>(request.element),
        .caller =
            static_cast<std::uint8_t>(static_cast<unsigned>(request.caller) | static_cast<unsigned>(request.mode) << 4),
        .schedule = request.plan->hash() ^ (operation.lanes * 2654435761u) ^ size ^ request.reduction.user_operation,
        .count = Signature::counted_in(operation.group->trainer, request.count)};
}

/// The signature in 32 bits, for flags without room for more: FNV-1a of its words.
inline std::uint32_t hash_of(const Signature& signature) {
    std::uint64_t hash = fnv_basis;
    for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, 2>>(signature)) hash = fnv1a(hash, word);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

/// Signs an operation that is prepared.
inline void sign(OperationState& operation) {
    operation.signature = signature_of(operation);
    operation.short_signature = hash_of(operation.signature);
}

/// Tells the peers of the group's latest operation.
inline void announce(const OperationState& operation) {
    const GroupContext& group = *operation.group;
    if (group.announcements) group.announcements.announce(group.rank, group.sequence, operation.signature);
}
/// The same for one that this rank completes at once. Another rank may start something else in its
/// place.
inline void announce_rooted(const OperationState& operation) {
    if (operation.rooted) announce(operation);
}

} // namespace detail
UNISONO_NAMESPACE_END
