#pragma once

/// \file
/// Collectives on device memory over a transport that moves host bytes: the host's schedules, lane
/// by lane, through bounce buffers of a few lanes. While lane k is on the network, lane k + 1 comes
/// from the device and lane k - 1 goes back. So all properties of the executor for host memory
/// hold: any schedule, any operation, signatures, deadlines, diagnosis, and the bits.
///
/// If the network itself reads and writes device memory, large data that are not combined travel
/// *directly*: the same lanes and messages, without copies. A message is sent, or may be received,
/// once the work that was on `stream()` when the operation began has finished. Work that follows
/// the operation on a stream comes after all arrivals. Ranks need not agree on this, as the
/// messages are the same. Data that arrive in the transport's own host buffers pass through pinned
/// memory.
///
/// A transport `through_host` has, beside what transport/stream_call.hpp says of streams:
/// - `take_block(bytes)`, `give_block(block)`: pinned memory at `block.pinned`, kept and reused;
/// - `fetch(to, from, bytes)` and `put(to, from, bytes)` enqueue a copy from and to the device,
///   each kind in its own order; `mark(outward)` marks the copies of a kind that are enqueued so
///   far, and `passed(mark)` is true once, when they have finished;
/// - `order_puts()`: later puts come after all fetches, and after the work on `stream()`, so far;
/// - `take_awaited()`: the streams that the program gave to `wait_for` since the last call;
///   `reached(awaited)`: their work is done;
/// - `follow_puts(stream)`: later work on that stream comes after all puts so far;
/// - `goes_directly()`: whether the network can access device memory; `direct_from`: the size from
///   which on it should; `reach(data, bytes)`: the network may access this memory as long as the
///   returned object lives (throws error if it cannot); `move(to, from, bytes)` enqueues a copy
///   within the device among the puts, and `see_arrivals()` makes streams see the data that the
///   network has written;
/// - `note(fault)`: a missing resource. It becomes the world's fault with the next `progress`, as
///   CUDA's errors of copies do.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/extensions/device/bounce_buffers.hpp"
#include "unisono/extensions/device/stream_steps.hpp"
#include "unisono/extensions/device/whole_runs.hpp"
#include "unisono/group/lanes.hpp"
#include "unisono/group/own_collectives.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <through_host_transport Transport>
class OwnRunsOf<Transport> : public WholeLanes {
public:
    /// Begins an operation that has been cut. It starts to copy when all operations before it have
    /// fetched all their data. So streams that it waits for hold up no other operation, and pinned
    /// memory is bounded by the lanes of two operations.
    void begin(Transport& transport, GroupContext& group, OperationState& operation) {
        OperationRequest& request = operation.request;
        const bool was_direct = std::exchange(operation.direct, false);
        if (operation.is_transports_own()) {
            if (was_direct) forget_cuts(operation);
            return begin_whole(transport, group, operation);
        }
        if (!request.stream.through_host) return;
        Run& run = new_run(group, operation);
        run.fetches_output = request.plan->collective() == Collective::broadcast;
        run.in_place = request.plan->collective() == Collective::all_reduce || run.fetches_output;
        if (run.fetches_output) {
            run.from.data = request.output;
            if (run.from.bytes != 0) run.to.bytes = 0; // the root has its data
        }
        run.lanes = operation.lanes;
        run.awaited = transport.take_awaited();
        operation.bounce = bounce_sizes_of(operation, group);
        operation.direct = reach(transport, operation, run);
        if (operation.direct != was_direct) forget_cuts(operation);
        if (!operation.direct) {
            request.input = nullptr;
            request.output = nullptr;
        }
        waiting_.push_back(operation.number);
    }

    void copy_own(Transport& transport, OperationState& operation, LaneState& lane) {
        if (!operation.direct) WholeLanes::copy_own(transport, operation, lane); // else done when the round began
    }
    void take(Transport& transport, OperationState& operation, LaneState& lane, std::uint32_t cursor,
              const std::byte* from) {
        if (!operation.direct) return WholeLanes::take(transport, operation, lane, cursor, from);
        const std::size_t bytes = lane.extents[cursor].target_count * operation.request.element_bytes;
        std::byte* const to = operation.target_of(lane, cursor);
        if (bytes == 0 || to == from) return;
        Piece& piece = runs_[operation.number].pieces[slot_of_lane(operation, lane)];
        try {
            piece.bounces.push_back(transport.take_block(bytes));
        } catch (const error& refused) {
            return transport.note(refused.why());
        }
        std::memcpy(piece.bounces.back().pinned, from, bytes);
        transport.put(to, piece.bounces.back().pinned, bytes);
    }

    [[nodiscard]] bool is_here(Transport& transport, OperationState& operation, LaneState& lane) {
        if (!operation.request.stream.through_host) return true;
        Run& run = runs_[operation.number];
        Piece& piece = run.pieces[slot_of_lane(operation, lane)];
        switch (piece.phase) {
        case Phase::waits:
            if (!may_begin(transport, operation, run)) return false;
            fetch(transport, operation, run, lane, piece);
            return piece.phase == Phase::here && is_here(transport, operation, lane);
        case Phase::comes:
            if (!transport.passed(piece.mark)) return false;
            weigh(operation, lane, operation.request.stream.weigh, operation.request.stream.weight);
            piece.phase = Phase::here;
            return is_here(transport, operation, lane);
        case Phase::here: return !operation.direct || may_send(transport, operation, lane, piece);
        case Phase::goes: break;
        }
        if (piece.marked && !transport.passed(piece.mark)) return false;
        give_bounces(transport, piece);
        piece.marked = false;
        piece.round_begun = 0;
        piece.phase = Phase::waits;
        ++operation.lanes_done;
        lane.active = false;
        if (operation.next_lane < operation.lanes) begin_lane(operation, lane);
        return false;
    }

    void finish(Transport& transport, OperationState& operation, LaneState& lane) {
        if (!operation.request.stream.through_host) return finish_round(operation, lane);
        ++lane.round;
        if (lane.round < operation.request.plan->rounds()) return load_round(operation, lane);
        Run& run = runs_[operation.number];
        Piece& piece = run.pieces[slot_of_lane(operation, lane)];
        piece.phase = Phase::goes;
        piece.marked = operation.direct ? !piece.bounces.empty() : run.to.bytes != 0;
        if (operation.direct && run.to.bytes != 0) transport.see_arrivals();
        ++run.gone;
        if (!piece.marked) return;
        if (operation.direct) {
            piece.mark = transport.mark(false);
            return;
        }
        weigh(operation, lane, operation.request.stream.divide, operation.request.stream.divisor);
        for_each_piece(operation, lane, schedule::Buffer::output,
                       [&](std::size_t bounced, std::size_t at, std::size_t n) {
                           transport.put(run.to.data + at, operation.request.output + bounced, n);
                       });
        piece.mark = transport.mark(false);
    }

    [[nodiscard]] bool done(Transport& transport, OperationState& operation) {
        if (!operation.is_transports_own()) return true;
        return whole_.done(transport, operation, [&] { return may_begin_whole(transport, operation); });
    }

    void end(Transport& transport, OperationState& operation) {
        if (operation.is_transports_own()) whole_.end(operation);
        else if (!operation.request.stream.through_host) return;
        Run& run = runs_[operation.number];
        for (const auto& block : run.blocks) transport.give_block(block);
        for (Piece& piece : run.pieces) give_bounces(transport, piece);
        run = {};
        for (std::size_t i = 0; i < waiting_.size(); ++i) {
            if (waiting_[i] != operation.number) continue;
            waiting_.erase(i);
            break;
        }
    }

    /// Makes later work on `stream` wait for the operation; false while copies remain to be
    /// enqueued.
    [[nodiscard]] bool follow(Transport& transport, const OperationState& operation, void* stream) {
        if (operation.is_transports_own()) return whole_.follow(transport, operation, stream);
        if (operation.point_to_point || !operation.request.stream.through_host)
            refuse_input("then: the operation's data are on the host; expected memory of a device");
        if (operation.done) return true;
        if (runs_[operation.number].gone != operation.lanes) return false;
        transport.follow_puts(stream);
        return true;
    }

private:
    using Buffer = schedule::Buffer;
    using Awaited = decltype(std::declval<Transport&>().take_awaited());
    using Block = decltype(std::declval<Transport&>().take_block(0));

    enum class Phase : std::uint8_t { waits, comes, here, goes };
    struct Piece {
        Phase phase = Phase::waits;
        bool marked = false;
        std::uint32_t mark = 0;
        std::uint32_t round_begun = 0; ///< directly: the rounds whose copies are done
        List<Block> bounces;           ///< directly: pinned copies of data that arrived on the host
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
        bool direct = false;
        std::shared_ptr<void> reached[2]; ///< holds what the network reaches, if direct
        bool whole = false;               ///< see whole_runs.hpp
        std::uint32_t lanes = 0;
        std::uint32_t fetched = 0; ///< of them
        std::uint32_t gone = 0;    ///< lanes whose copies back are enqueued
        Piece pieces[OperationState::bounced_at_once];
        Block blocks[2] = {};
        Awaited awaited = {};

        /// True if one of the two writes memory that the other one reads or writes.
        [[nodiscard]] bool touches(const Run& other) const {
            return to.meets(other.from) || to.meets(other.to) || other.to.meets(from);
        }
    };

    /// True if all operations before this one have fetched their data, and none in flight writes
    /// memory that this one reads or writes.
    bool may_begin(Transport& transport, OperationState& operation, Run& run) {
        if (run.begun) return true;
        for (const std::uint32_t number : waiting_) {
            if (number == operation.number) break;
            const Run& before = runs_[number];
            if (before.whole) {
                if (before.touches(run)) return false;
                continue;
            }
            if (!before.begun || before.fetched != before.lanes || before.to.meets(run.from) || before.to.meets(run.to))
                return false;
            if (before.direct && run.to.meets(before.from)) return false; // the network reads it until the end
        }
        if (!transport.reached(run.awaited)) return false;
        if (operation.direct) {
            run.begun = true;
            run.fetched = run.lanes; // it holds up no other operation
            return true;
        }
        const std::size_t slot_bytes = std::size_t{operation.slots_used} * operation.request.element_bytes;
        try {
            if (run.in_place || run.to.bytes != 0)
                run.blocks[1] = transport.take_block(operation.bounce.output * slot_bytes);
            if (!run.in_place && run.from.bytes != 0)
                run.blocks[0] = transport.take_block(operation.bounce.input * slot_bytes);
        } catch (const error& refused) {
            transport.note(refused.why());
            return false;
        }
        operation.request.output = run.blocks[1].pinned;
        operation.request.input = run.in_place ? run.blocks[1].pinned : run.blocks[0].pinned;
        run.begun = true;
        transport.order_puts();
        return true;
    }

    /// True if the operation goes directly: its data are not combined, need no scratch, are large,
    /// and the network reaches them.
    static bool reach(Transport& transport, const OperationState& operation, Run& run) {
        const Plan& plan = *operation.request.plan;
        const Collective what = plan.collective();
        const bool moves = what == Collective::broadcast || what == Collective::all_gather ||
                           what == Collective::gather || what == Collective::scatter || what == Collective::all_to_all;
        if (!moves || plan.scratch_slots() != 0 || !transport.goes_directly() ||
            std::max(run.from.bytes, run.to.bytes) < Transport::direct_from)
            return false;
        try {
            if (run.from.bytes != 0) run.reached[0] = transport.reach(run.from.data, run.from.bytes);
            if (run.to.bytes != 0) run.reached[1] = transport.reach(run.to.data, run.to.bytes);
        } catch (const error&) { // the network has no room for more: use bounce buffers
            run.reached[0] = nullptr;
            return false;
        }
        run.direct = true;
        return true;
    }

    /// True if the copies of the round are done, and the data of the round before have been put, so
    /// that messages may be sent.
    static bool may_send(Transport& transport, OperationState& operation, LaneState& lane, Piece& piece) {
        if (piece.round_begun == lane.round + 1) return true;
        if (!piece.marked) {
            bool enqueued = !piece.bounces.empty();
            for (std::uint32_t step = 0; step < lane.steps.size(); ++step) {
                const std::size_t bytes = lane.extents[step].target_count * operation.request.element_bytes;
                if (lane.steps[step].kind != schedule::StepKind::copy || bytes == 0) continue;
                const std::byte* const from = operation.source_of(lane, step);
                std::byte* const to = operation.target_of(lane, step);
                if (to == from) continue;
                transport.move(to, from, bytes);
                enqueued = true;
            }
            if (enqueued) piece.mark = transport.mark(false);
            piece.marked = enqueued;
        }
        if (piece.marked && !transport.passed(piece.mark)) return false;
        piece.marked = false;
        piece.round_begun = lane.round + 1;
        give_bounces(transport, piece);
        return true;
    }
    /// Discards the lanes' cached positions of blocks.
    static void forget_cuts(OperationState& operation) {
        for (LaneState& lane : operation.lane_slots) lane.cut_for = LaneState::no_lane;
    }
    static void give_bounces(Transport& transport, Piece& piece) {
        for (const Block& block : piece.bounces) transport.give_block(block);
        piece.bounces = {};
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
    void begin_whole(Transport& transport, GroupContext& group, OperationState& operation) {
        Run& run = new_run(group, operation);
        run.whole = true;
        run.awaited = transport.take_awaited();
        waiting_.push_back(operation.number);
        whole_.begin(transport, operation);
    }
    /// True if no operation that was started before still uses this one's memory.
    bool may_begin_whole(Transport& transport, const OperationState& operation) {
        Run& run = runs_[operation.number];
        for (const std::uint32_t number : waiting_) {
            if (number == operation.number) break;
            if (runs_[number].touches(run)) return false;
        }
        return transport.reached(run.awaited);
    }

    void fetch(Transport& transport, OperationState& operation, Run& run, const LaneState& lane, Piece& piece) {
        if (operation.direct) { // after the work that others have enqueued
            piece.mark = transport.mark(true);
            piece.phase = Phase::comes;
            return;
        }
        ++run.fetched;
        piece.phase = Phase::here;
        if (run.from.bytes == 0) return;
        auto* const data = const_cast<std::byte*>(operation.request.input); // pinned, and this rank's own
        const Buffer where = run.fetches_output ? Buffer::output : Buffer::input;
        for_each_piece(operation, lane, where, [&](std::size_t bounced, std::size_t at, std::size_t n) {
            transport.fetch(data + bounced, run.from.data + at, n);
        });
        piece.mark = transport.mark(true);
        piece.phase = Phase::comes;
    }

    std::vector<Run> runs_; ///< by operation
    WholeRuns<Transport> whole_;
    List<std::uint32_t> waiting_; ///< operations in flight, in the order in which they were started
};

} // namespace detail
UNISONO_NAMESPACE_END
