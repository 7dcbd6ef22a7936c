#pragma once

/// \file
/// Collectives on device memory over a transport that moves host bytes: the host's schedules, lane
/// by lane, through bounce buffers of a few lanes. While lane k is on the network, lane k + 1 comes
/// from the device and lane k - 1 goes back. So all properties of the executor for host memory
/// hold: any schedule, any operation, signatures, deadlines, diagnosis, and the bits.
///
/// A transport `through_host` has a `stream_device()` with
/// - `take_block(bytes, false, true)`, `give_block(block)`: pinned memory at `block.pinned`, kept
///   and reused;
/// - `fetch(to, from, bytes)` and `put(to, from, bytes)` enqueue a copy from and to the device,
///   each kind in its own order; `mark(outward)` marks the copies of a kind that are enqueued so
///   far, and `passed(mark)` is true once, when they have finished;
/// - `order_puts()`: later puts come after all fetches, and after the work on `stream()`, so far;
/// - `take_awaited()`: the streams that the program gave to `wait_for` since the last call;
///   `reached(awaited)`: their work is done;
/// - `follow_puts(stream)`: later work on that stream comes after all puts so far;
/// - `note(fault)`: a missing resource. It becomes the world's fault with the next `progress`, as
///   CUDA's errors of copies do.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/extensions/device/stream_steps.hpp"
#include "unisono/group/lanes.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/transport/transport_executor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

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

template <through_host_transport Transport>
class TransportExecutorOf<Transport> final : public TransportExecutor {
public:
    explicit TransportExecutorOf(Transport& transport) : device_(transport.stream_device()) {}

    /// Begins an operation that has been cut. It starts to copy when all operations before it have
    /// fetched all their data. So streams that it waits for hold up no other operation, and pinned
    /// memory is bounded by the lanes of two operations.
    void begin(GroupContext& group, OperationState& operation) override {
        OperationRequest& request = operation.request;
        if (!request.stream.through_host) return;
        Run& run = new_run(group, operation);
        run.fetches_output = request.plan->collective() == Collective::broadcast;
        run.in_place = request.plan->collective() == Collective::all_reduce || run.fetches_output;
        if (run.fetches_output) {
            run.from.data = request.output;
            if (run.from.bytes != 0) run.to.bytes = 0; // the root has its data
        }
        run.lanes = operation.lanes;
        run.awaited = device_.take_awaited();
        operation.bounce = bounce_sizes_of(operation, group);
        request.input = nullptr;
        request.output = nullptr;
        waiting_.push_back(operation.number);
    }

    [[nodiscard]] bool is_here(OperationState& operation, LaneState& lane) override {
        if (!operation.request.stream.through_host) return true;
        Run& run = runs_[operation.number];
        Piece& piece = run.pieces[slot_of_lane(operation, lane)];
        switch (piece.phase) {
        case Phase::waits:
            if (!may_begin(operation, run)) return false;
            fetch(operation, run, lane, piece);
            return piece.phase == Phase::here && is_here(operation, lane);
        case Phase::comes:
            if (!device_.passed(piece.mark)) return false;
            weigh(operation, lane, operation.request.stream.weigh, operation.request.stream.weight);
            piece.phase = Phase::here;
            return is_here(operation, lane);
        case Phase::here: return true;
        case Phase::goes: break;
        }
        if (piece.marked && !device_.passed(piece.mark)) return false;
        piece.marked = false;
        piece.phase = Phase::waits;
        ++operation.lanes_done;
        lane.active = false;
        if (operation.next_lane < operation.lanes) begin_lane(operation, lane);
        return false;
    }

    void finish(OperationState& operation, LaneState& lane) override {
        if (!operation.request.stream.through_host) return finish_round(operation, lane);
        ++lane.round;
        if (lane.round < operation.request.plan->rounds()) return load_round(operation, lane);
        Run& run = runs_[operation.number];
        Piece& piece = run.pieces[slot_of_lane(operation, lane)];
        piece.phase = Phase::goes;
        piece.marked = run.to.bytes != 0;
        ++run.gone;
        if (!piece.marked) return;
        weigh(operation, lane, operation.request.stream.divide, operation.request.stream.divisor);
        for_each_piece(operation, lane, schedule::Buffer::output,
                       [&](std::size_t bounced, std::size_t at, std::size_t n) {
                           device_.put(run.to.data + at, operation.request.output + bounced, n);
                       });
        piece.mark = device_.mark(false);
    }

    void end(OperationState& operation) override {
        if (!operation.request.stream.through_host) return;
        Run& run = runs_[operation.number];
        for (const auto& block : run.blocks) device_.give_block(block);
        run = {};
        for (std::size_t i = 0; i < waiting_.size(); ++i) {
            if (waiting_[i] != operation.number) continue;
            waiting_.erase(i);
            break;
        }
    }

    /// Makes later work on `stream` wait for the operation; false while copies remain to be
    /// enqueued.
    [[nodiscard]] bool follow(const OperationState& operation, void* stream) override {
        if (operation.point_to_point || !operation.request.stream.through_host)
            refuse_input("then: the operation's data are on the host; expected memory of a device");
        if (operation.done) return true;
        if (runs_[operation.number].gone != operation.lanes) return false;
        device_.follow_puts(stream);
        return true;
    }

private:
    using Buffer = schedule::Buffer;
    using Device = std::remove_reference_t<decltype(std::declval<Transport&>().stream_device())>;
    using Awaited = decltype(std::declval<Device&>().take_awaited());
    using Block = decltype(std::declval<Device&>().take_block(0, false, true));

    enum class Phase : std::uint8_t { waits, comes, here, goes };
    struct Piece {
        Phase phase = Phase::waits;
        bool marked = false;
        std::uint32_t mark = 0;
    };
    /// Memory of the device.
    template <class Byte>
    struct Range {
        Byte* data = nullptr;
        std::size_t bytes = 0;

        template <class Other>
        [[nodiscard]] bool meets(const Range<Other>& other) const {
            return bytes != 0 && other.bytes != 0 && data < other.data + other.bytes && other.data < data + bytes;
        }
    };
    struct Run {
        Range<const std::byte> from;
        Range<std::byte> to;
        bool fetches_output = false; ///< at the root of a broadcast
        bool in_place = false;       ///< one bounce buffer for input and output
        bool begun = false;
        std::uint32_t lanes = 0;
        std::uint32_t fetched = 0; ///< of them
        std::uint32_t gone = 0;    ///< lanes whose copies back are enqueued
        Piece pieces[OperationState::bounced_at_once];
        Block blocks[2] = {};
        Awaited awaited = {};
    };

    /// True if all operations before this one have fetched their data, and none in flight writes
    /// memory that this one reads or writes.
    bool may_begin(OperationState& operation, Run& run) {
        if (run.begun) return true;
        for (const std::uint32_t number : waiting_) {
            if (number == operation.number) break;
            const Run& before = runs_[number];
            if (!before.begun || before.fetched != before.lanes || before.to.meets(run.from) || before.to.meets(run.to))
                return false;
        }
        if (!device_.reached(run.awaited)) return false;
        const std::size_t slot_bytes = std::size_t{operation.slots_used} * operation.request.element_bytes;
        try {
            if (run.in_place || run.to.bytes != 0)
                run.blocks[1] = device_.take_block(operation.bounce.output * slot_bytes, false, true);
            if (!run.in_place && run.from.bytes != 0)
                run.blocks[0] = device_.take_block(operation.bounce.input * slot_bytes, false, true);
        } catch (const error& refused) {
            device_.note(refused.why());
            return false;
        }
        operation.request.output = run.blocks[1].pinned;
        operation.request.input = run.in_place ? run.blocks[1].pinned : run.blocks[0].pinned;
        run.begun = true;
        device_.order_puts();
        return true;
    }

    /// The operation's run, which so far knows only where the data are.
    Run& new_run(GroupContext& group, const OperationState& operation) {
        const OperationRequest& request = operation.request;
        if (runs_.size() <= operation.number) runs_.resize(operation.number + 1);
        Run& run = runs_[operation.number];
        run = {};
        const StreamExtents extents = StreamShape(group, request).extents();
        run.from = {request.input, extents.input};
        run.to = {request.output, extents.output};
        return run;
    }
    void fetch(OperationState& operation, Run& run, const LaneState& lane, Piece& piece) {
        ++run.fetched;
        piece.phase = Phase::here;
        if (run.from.bytes == 0) return;
        auto* const data = const_cast<std::byte*>(operation.request.input); // pinned, and this rank's own
        const Buffer where = run.fetches_output ? Buffer::output : Buffer::input;
        for_each_piece(operation, lane, where, [&](std::size_t bounced, std::size_t at, std::size_t n) {
            device_.fetch(data + bounced, run.from.data + at, n);
        });
        piece.mark = device_.mark(true);
        piece.phase = Phase::comes;
    }

    Device& device_;
    std::vector<Run> runs_;       ///< by operation
    List<std::uint32_t> waiting_; ///< operations in flight, in the order in which they were started
};

} // namespace detail
UNISONO_NAMESPACE_END
