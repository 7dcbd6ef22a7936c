#pragma once

/// \file
/// The executor of one rank: it drives every operation of every group that shares the rank's
/// transport. Waiting for one operation moves all, so that ranks may wait in different orders.
///
/// It is untyped: data are bytes cut by a Partition, arithmetic is a CombineKernel. It runs the
/// steps of plans, no algorithm.

#include "unisono/core/list.hpp"
#include "unisono/group/engine_base.hpp"
#include "unisono/group/lanes.hpp"
#include "unisono/group/mapped_steps.hpp"
#include "unisono/group/message_steps.hpp"
#include "unisono/group/operation_pool.hpp"
#include "unisono/group/overlaps.hpp"
#include "unisono/group/staged_lanes.hpp"
#include "unisono/group/staging.hpp"
#include "unisono/group/stream_runs.hpp"
#include "unisono/group/suspicion.hpp"
#include "unisono/group/thrown.hpp"

#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <transport Transport>
class Engine final : public EngineBase {
public:
    explicit Engine(Transport&& endpoint) : transport_(std::move(endpoint)) {}

    [[nodiscard]] bool is_idle() const { return active_.empty(); }

    Transport& endpoint() { return transport_; }
    const Transport& endpoint() const { return transport_; }

    /// Starts an operation; it may be done at once. The index is valid until `release`.
    std::uint32_t start(GroupContext& group, OperationRequest& request);

    /// Runs a collective to its end, waiting if necessary, if the same one was run recently and
    /// the peers see its memory. Otherwise returns false and has done nothing. Skips all work of
    /// `start` and `finish` that would be repeated.
    bool repeat(GroupContext& group, std::uint64_t call, std::uint64_t count, const void* input, void* output);

    /// As `repeat`, without waiting: an index as of `start`, or `no_operation`.
    std::uint32_t start_again(GroupContext& group, std::uint64_t call, std::uint64_t count, const void* input,
                              void* output);

    /// Starts a send (`kind` send) or a receive (receive) with the user's tag. Only a receive
    /// writes `output`.
    std::uint32_t start_point_to_point(GroupContext& group, schedule::StepKind kind, int peer, std::uint32_t tag,
                                       const OperationRequest& request);

    OperationState& operation(std::uint32_t index) { return operations_[index]; }

    /// True once the operation and its companion are done; releases nothing.
    bool is_done(std::uint32_t index);

    void release(std::uint32_t index);

    /// Advances every operation that can advance; true if any did. After a fault it does nothing:
    /// posted memory may be gone.
    bool progress();

    bool poll(std::uint32_t index) override;

    void wait(std::uint32_t index, nanoseconds timeout) override;

    std::size_t wait_any(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout) override;

    void follow(std::uint32_t index, void* stream, nanoseconds timeout) override;

    /// An unfinished operation was dropped: its memory may be gone, so the world must not use it
    /// any more.
    void drop(std::uint32_t index) noexcept override;

    void throw_if_faulty();

private:
    static_assert(whole_capabilities<Transport>,
                  "unisono: found a transport that offers part of a capability. Required: all members of it, as "
                  "transport/transport.hpp lists them. Why: the group would leave it unused.");
    static constexpr bool stages = stages_memory<Transport>; ///< peers do not see all memory
    static constexpr bool virtual_time = has_virtual_time<Transport>;
    static constexpr std::uint32_t looks_at_once =
        16;                                     ///< looks at a rank's word per attempt, by a rank that keeps its core
    static constexpr std::uint32_t spins = 512; ///< attempts of a wait in which nothing else is looked at

    struct Sink {
        Engine& engine;
        void sent(Token token) { engine.complete(token); }
        void received(Token token, const Envelope& sent, const std::byte* data) { engine.receive(token, sent, data); }
        /// Its envelope makes it a mismatch, so that its bytes are not needed.
        void too_long(Token token, const Envelope& envelope) { engine.receive(token, envelope, nullptr); }
    };

    /// Runs as much as possible of a straight operation; true when nothing is left. `attempts`: see
    /// `awaited_small`.
    bool run_straight(OperationState& operation, std::uint32_t attempts = 0) try {
        if constexpr (Transport::maps_peers) {
            LaneState& lane = operation.slots[0];
            if (operation.messages) {
                const std::uint32_t before = lane.cursor;
                const int met = run_small(transport_, operation, lane, room_, attempts);
                moved_ |= lane.cursor != before;
                return met == no_rank;
            }
            for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
                const int met = run_mapped_step(transport_, operation, lane, room_);
                if (met != no_rank) return blame(operation, met);
                moved_ = true;
            }
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(transport_.rank(), &operation));
    }

    /// Waits a moment for a straight operation, the only one in flight, and looks at nothing else
    /// meanwhile; true when nothing of it is left. Delivers nothing after a fault.
    [[gnu::always_inline]] inline bool spin(OperationState& operation) {
        Look patience(100'000);
        std::uint32_t attempts = 0;
        if constexpr (knows_cores<Transport>) attempts = transport_.has_core_of_its_own() ? looks_at_once : 0;
        for (std::uint32_t attempt = 0; attempt < spins && transport_.first_fault() == nullptr; ++attempt) {
            if (run_straight(operation, attempts)) return true;
            if (!virtual_time && patience.is_due(transport_, attempt, never)) break;
            transport_.idle(attempt, never);
        }
        return false;
    }

    void advance(std::uint32_t index) {
        OperationState& operation = operations_[index];
        if (operation.straight) {
            if (run_straight(operation)) finish(index, operation);
            return;
        }
        if (operation.next_lane == 0) begin_lanes(operation);
        for (std::uint32_t slot = 0; slot < operation.slots_used; ++slot) {
            LaneState& lane = operation.slots[slot];
            while (lane.active && lane.outstanding == 0 && own_.is_here(transport_, operation, lane)) {
                if (!issue_round(index, operation, slot, lane)) break;
                if (lane.outstanding != 0) break;
                moved_ = true;
                own_.finish(transport_, operation, lane);
            }
        }
        if (operation.lanes_done == operation.lanes && own_.done(transport_, operation)) finish(index, operation);
    }

    /// Runs the remaining steps of a round; false where it must wait for a flag.
    bool issue_round(std::uint32_t index, OperationState& operation, std::uint32_t slot, LaneState& lane) {
        for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
            if (!issue(index, operation, slot, lane)) return false;
        }
        return true;
    }

    /// Drives everything until one of these is done, a fault arrives or the time is over. Returns
    /// the index of the one that is done, searched cyclically from `first` on.
    [[gnu::noinline]] std::size_t wait_long(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout,
                                            std::uint32_t attempt = 0);

    void wait_for_repeated(OperationState& operation) {
        operation.done = false;
        operation.companion = no_operation;
        operation.finish = nullptr;
        active_.push_back(operation.number);
        GroupContext& group = *operation.group;
        if (group.announcements) group.announcements.announce(group.rank, group.sequence, operation.signature);
        wait_long({&operation.number, 1}, 0, group.timeout, spins);
    }

    /// Runs as much of an operation as can be run now.
    std::uint32_t launch(GroupContext& group, std::uint32_t index) {
        OperationState& operation = operations_[index];
        if (operation.straight && run_straight(operation)) {
            conclude(index, operation);
            return index; // all ranks have seen its last flag, so that none asks for this rank's progress
        }
        active_.push_back(index);
        if (!operation.straight) advance(index); // first, so that its sends travel meanwhile
        if (group.announcements) group.announcements.announce(group.rank, group.sequence, operation.signature);
        wake_driver();
        return index;
    }

    /// True if the peers see what they access of this memory.
    bool is_seen(const OperationState& operation, const void* input, const void* output) const {
        if constexpr (stages) {
            const PeersView& view = operation.peers_view;
            return (view.input == 0 || transport_.reaches(input, view.input)) &&
                   (view.output == 0 || transport_.reaches(output, view.output));
        }
        return true;
    }

    std::uint32_t take(std::uint64_t group, const OperationRequest& request) {
        const std::uint32_t index = operations_.take(group, request);
        if constexpr (stages)
            if (stagings_.size() < operations_.size()) stagings_.resize(operations_.size());
        return index;
    }

    /// All steps are done: moves results to their destination, and releases the flags.
    void conclude(std::uint32_t index, OperationState& operation) {
        operation.done = true;
        moved_ = true;
        if (!operation.point_to_point) tell_finished(transport_, operation);
        own_.end(transport_, operation);
        if constexpr (stages) {
            if (stagings_[index].used()) unstage(transport_, std::exchange(stagings_[index], {}), operation.request);
        }
    }

    void finish(std::uint32_t index, OperationState& operation) {
        conclude(index, operation);
        for (std::size_t i = 0; i < active_.size(); ++i) {
            if (active_[i] != index) continue;
            active_.erase(i);
            break;
        }
    }

    /// A mapped step could not be run: `differs` is the rank whose signature differs, or there are
    /// ranks to wait for.
    [[gnu::noinline, gnu::cold]] bool blame(OperationState& operation, int differs) {
        return differs < 0 ? false : spread(mismatch_in_flags(operation, differs));
    }
    [[gnu::cold]] bool spread(const Fault& found) {
        transport_.abort(found);
        return false;
    }

    bool issue(std::uint32_t index, OperationState& operation, std::uint32_t slot, LaneState& lane) try {
        using schedule::StepKind;
        const schedule::Step& step = lane.steps[lane.cursor];
        UNISONO_ASSERT(Transport::maps_peers || step.kind <= StepKind::combine_ranks, "it maps no peers' memory");
        // Messages first, by comparisons that are well predicted, where a jump table is not.
        if (step.kind == StepKind::send) {
            send_step(transport_, operation, lane, token_of(index, slot, lane.cursor));
        } else if (step.kind == StepKind::receive || step.kind == StepKind::receive_combine) {
            receive_step(transport_, operation, lane, token_of(index, slot, lane.cursor));
        } else if (step.kind == StepKind::copy) {
            own_.copy_own(transport_, operation, lane);
        } else if (step.kind == StepKind::combine_ranks) {
            combine_ranks(operation, lane, lane.cursor, room_);
        } else if constexpr (Transport::maps_peers) {
            const int met = run_mapped_step(transport_, operation, lane, room_);
            return met == no_rank || blame(operation, met);
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(transport_.rank(), &operation));
    }

    void complete(Token token) {
        --operations_[operation_of(token)].slots[slot_of(token)].outstanding;
        moved_ = true;
    }

    void receive(Token token, const Envelope& envelope, const std::byte* data) {
        // Not aborted here: that waits for ranks that touch foreign memory, and this one may be
        // doing so now.
        if (blamed_.code != ErrorCode::none) return;
        OperationState& operation = operations_[operation_of(token)];
        try {
            moved_ |= take_message(transport_, own_, operation, token, envelope, data, blamed_);
        } catch (...) {
            blamed_ = thrown_.note(transport_.rank(), &operation);
        }
    }

    /// After a while without progress: checks whether a peer runs something else, has left, or the
    /// deadline has passed.
    void suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout);

    /// Whether a peer runs something else in place of another operation in flight, for which the
    /// rank will wait later. Looks at all of them, or at the next one.
    bool find_difference_behind(bool all, Fault& found);

    Transport transport_;
    OperationPool operations_;
    List<Staging> stagings_; ///< of each operation, where the transport stages
    OwnRuns<Transport> own_;
    List<std::uint32_t> active_;
    AddressRoom room_;
    Fault blamed_; ///< found while peers' memory was being touched; spread after that
    Thrown thrown_;
    WaitTeller<Transport> teller_;
    bool moved_ = false;
    std::uint32_t fruitless_ = 0; ///< polls in a row that moved nothing
    std::size_t looked_at_ = 0;   ///< of the operations in flight, for what peers do in their place
};
} // namespace detail
UNISONO_NAMESPACE_END
