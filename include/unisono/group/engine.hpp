#pragma once

/// \file
/// The executor of one rank. It drives every operation of every group that uses the rank's
/// transport. Waiting for one operation advances all, so that ranks may wait in different orders.
///
/// It is untyped: data are bytes that a Partition cuts, arithmetic is a CombineKernel. It runs the
/// steps of plans and contains no algorithm.

#include "unisono/core/list.hpp"
#include "unisono/group/bounce.hpp"
#include "unisono/group/engine_base.hpp"
#include "unisono/group/lanes.hpp"
#include "unisono/group/mapped_steps.hpp"
#include "unisono/group/message_steps.hpp"
#include "unisono/group/own_collectives.hpp"
#include "unisono/group/suspicion.hpp"
#include "unisono/group/thrown.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Engine final : public EngineBase {
public:
    explicit Engine(std::unique_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)), own_(endpoint_->own_runs()) {}

    [[nodiscard]] bool is_idle() const { return active_.empty(); }

    Endpoint& endpoint() { return *endpoint_; }
    const Endpoint& endpoint() const { return *endpoint_; }
    /// The transport's own collectives; null: it has none.
    [[nodiscard]] OwnRuns* own() const { return own_.get(); }
    /// A group's last use of the transport.
    void close_group(std::uint64_t id) noexcept {
        endpoint_->close(id);
        if (own_ != nullptr) own_->close_group(id);
    }

    /// Gives a new state its number.
    void enrol(OperationState& state);
    /// Takes over a state that its group needs no more. One in flight, or with a handle, stays:
    /// tokens may still name it.
    void dismiss(std::unique_ptr<OperationState> state) noexcept;

    /// Starts a prepared operation, which may complete immediately. Its number is valid until
    /// `release`.
    void start(OperationState& operation);
    /// Runs a prepared operation to its end. Spins first, and tells the peers of it only if that
    /// fails.
    void run(OperationState& operation);

    /// True if the operation and its companion are done. Releases nothing.
    bool is_done(std::uint32_t index);

    void release(std::uint32_t index);

    /// Advances every operation that can advance; true if any did. After a fault it does nothing,
    /// since posted memory may be gone.
    bool progress();

    bool poll(std::uint32_t index) override;

    void wait(std::uint32_t index, nanoseconds timeout) override;

    void give_up(std::uint32_t index, nanoseconds waited) override;

    std::size_t wait_any(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout) override;

    void follow(std::uint32_t index, void* stream, nanoseconds timeout) override;

    /// Handles the drop of an unfinished operation: its memory may be gone, so the world must not
    /// use it any more.
    void drop(std::uint32_t index) noexcept override;

    void throw_if_faulty();

private:
    static constexpr std::uint32_t spins = 512; ///< attempts of a wait that look at one operation only

    struct Sink final : EndpointSink {
        explicit Sink(Engine& of) : engine(of) {}
        void sent(Token token) override { engine.complete(token); }
        void received(Token token, const Envelope& envelope, const std::byte* data) override {
            engine.receive(token, envelope, data);
        }
        Engine& engine;
    };

    /// Runs as many steps of a straight operation as possible; true if all are done. `attempts`:
    /// see `awaited_small`.
    bool run_straight(OperationState& operation, std::uint32_t attempts = 0) try {
        LaneState& lane = operation.lane_slots[0];
        if (operation.messages) {
            const std::uint32_t before = lane.cursor;
            const int met = run_small(*endpoint_, operation, lane, room_, attempts);
            moved_ |= lane.cursor != before;
            return met == no_rank;
        }
        for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
            const int met = run_mapped_step(*endpoint_, operation, lane, room_);
            if (met != no_rank) return blame(operation, met);
            moved_ = true;
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(endpoint_->rank(), &operation));
    }

    /// Waits briefly for a straight operation, the only one in flight, and polls nothing else
    /// meanwhile; true if all its steps are done. Delivers nothing after a fault.
    [[gnu::always_inline]] inline bool spin(OperationState& operation) {
        const Mapped& mapped = *endpoint_->mapped();
        Look patience(100'000);
        for (std::uint32_t attempt = 0; attempt < spins && endpoint_->first_fault() == nullptr; ++attempt) {
            if (run_straight(operation, mapped.looks)) return true;
            if (patience.is_due(*endpoint_, attempt, never)) break;
            if (attempt - 1 < mapped.pauses) detail::pause(); // the first idling clears this rank's bell
            else endpoint_->idle(attempt, never);
        }
        return false;
    }

    void advance(std::uint32_t index) {
        OperationState& operation = *operations_[index];
        if (operation.straight) {
            if (run_straight(operation)) finish(index, operation);
            return;
        }
        if (operation.next_lane == 0) begin_lanes(operation);
        for (std::uint32_t slot = 0; slot < operation.slots_used; ++slot) {
            LaneState& lane = operation.lane_slots[slot];
            while (lane.active && lane.outstanding == 0 && (own_ == nullptr || own_->is_here(operation, lane))) {
                if (!issue_round(index, operation, slot, lane)) break;
                if (lane.outstanding != 0) break;
                moved_ = true;
                if (own_ == nullptr) finish_round(operation, lane);
                else own_->finish(operation, lane);
            }
        }
        if (operation.lanes_done == operation.lanes && (own_ == nullptr || own_->done(operation)))
            finish(index, operation);
    }

    /// Runs the remaining steps of a round; false if it must wait for a flag.
    bool issue_round(std::uint32_t index, OperationState& operation, std::uint32_t slot, LaneState& lane) {
        for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
            if (!issue(index, operation, slot, lane)) return false;
        }
        return true;
    }

    /// Drives all operations until one of these is done, a fault arrives or the timeout passes.
    /// Returns the index of the one that is done, searched cyclically from `first` on.
    std::size_t wait_long(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout,
                          std::uint32_t attempt = 0);

    /// Makes an operation its group's next one.
    [[gnu::always_inline]] inline void begin(OperationState& operation) {
        GroupContext& group = *operation.group;
        const bool mapped = operation.straight || (!operation.point_to_point && operation.request.plan->mapped());
        if (mapped && !is_seen(*endpoint_, operation)) [[unlikely]]
            copy_to_peers(*endpoint_, operation);
        operation.done = false;
        operation.posts = 0;
        if (operation.straight) [[likely]] {
            operation.lane_slots[0].cursor = 0;
        } else {
            operation.next_lane = operation.lanes_done = 0;
            if (operation.point_to_point) return;
        }
        operation.sequence = ++group.sequence;
        if (operation.signature.trainer() != group.trainer) [[unlikely]]
            sign(operation); // it was prepared in a call of another trainer
        if (own_ != nullptr) own_->begin(group, operation);
        if (!mapped) return;
        operation.mapped_index = group.mapped_started++;
        if (operation.messages) operation.small_number = ++group.small_started;
    }

    void wait_for_run(OperationState& operation, std::uint32_t attempt) {
        wait_long({&operation.number, 1}, 0, operation.group->timeout, attempt); // if it throws, it stays in flight
        release(operation.number);
    }

    void announce(const OperationState& operation) {
        const GroupContext& group = *operation.group;
        if (group.announcements) group.announcements.announce(group.rank, group.sequence, operation.signature);
    }

    /// Ends an operation whose steps are all done: moves results to their destination, and releases
    /// the flags.
    void conclude(OperationState& operation) {
        operation.done = true;
        moved_ = true;
        if (!operation.point_to_point) tell_finished(*endpoint_, operation);
        if (own_ != nullptr) own_->end(operation);
        if (operation.copies.used()) [[unlikely]]
            copy_back(operation);
    }

    void finish(std::uint32_t index, OperationState& operation) {
        conclude(operation);
        for (std::size_t i = 0; i < active_.size(); ++i) {
            if (active_[i] != index) continue;
            active_.erase(i);
            break;
        }
    }

    /// Handles a mapped step that could not run: rank `differs` has another signature, or (below 0)
    /// there are ranks to wait for.
    [[gnu::noinline, gnu::cold]] bool blame(OperationState& operation, int differs) {
        return differs < 0 ? false : spread(mismatch_in_flags(operation, differs));
    }
    [[gnu::cold]] bool spread(const Fault& found) {
        endpoint_->abort(found);
        return false;
    }

    bool issue(std::uint32_t index, OperationState& operation, std::uint32_t slot, LaneState& lane) try {
        using schedule::StepKind;
        const schedule::Step& step = lane.steps[lane.cursor];
        UNISONO_ASSERT(endpoint_->mapped() != nullptr || step.kind <= StepKind::combine_ranks,
                       "this transport does not map peers' memory");
        // Messages first: the branches are predicted well, a jump table is not.
        if (step.kind == StepKind::send) {
            send_step(*endpoint_, operation, lane, token_of(index, slot, lane.cursor));
        } else if (step.kind == StepKind::receive || step.kind == StepKind::receive_combine) {
            receive_step(*endpoint_, operation, lane, token_of(index, slot, lane.cursor));
        } else if (step.kind == StepKind::copy) {
            copy(operation, lane, lane.cursor, operation.source_of(lane, lane.cursor));
        } else if (step.kind == StepKind::combine_ranks) {
            combine_ranks(operation, lane, lane.cursor, room_);
        } else {
            const int met = run_mapped_step(*endpoint_, operation, lane, room_);
            return met == no_rank || blame(operation, met);
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(endpoint_->rank(), &operation));
    }

    void complete(Token token) {
        --operations_[operation_of(token)]->lane_slots[slot_of(token)].outstanding;
        moved_ = true;
    }

    /// Processes the message that arrived for the token's step; false if it is another one.
    bool take_message(OperationState& operation, Token token, const Envelope& envelope, const std::byte* data) {
        if (!is_expected(operation, token, envelope, blamed_)) return false;
        LaneState& lane = operation.lane_slots[slot_of(token)];
        const std::uint32_t cursor = step_of(token);
        operation.group->traffic.bytes_received += envelope.bytes;
        if (lane.steps[cursor].kind == schedule::StepKind::receive_combine) combine(operation, lane, cursor, data);
        else copy(operation, lane, cursor, data);
        --lane.outstanding;
        return true;
    }

    void receive(Token token, const Envelope& envelope, const std::byte* data) {
        // Does not abort here: abort waits for ranks that access foreign memory, and this rank may
        // be doing so now.
        if (blamed_.code != ErrorCode::none) return;
        OperationState& operation = *operations_[operation_of(token)];
        try {
            moved_ |= take_message(operation, token, envelope, data);
        } catch (...) {
            blamed_ = thrown_.note(endpoint_->rank(), &operation);
        }
    }

    /// After a while without progress: checks whether a peer runs another operation, has left, or
    /// the deadline has passed.
    void suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout);

    /// True if a peer runs another operation in place of one that this rank has in flight and will
    /// wait for later. Checks all operations in flight, or only the next one.
    bool find_difference_behind(bool all, Fault& found);

    std::unique_ptr<Endpoint> endpoint_;
    std::unique_ptr<OwnRuns> own_;     ///< null: the transport has no collectives of its own, and no device
    List<OperationState*> operations_; ///< by number
    List<std::uint32_t> unused_;       ///< numbers
    std::vector<std::unique_ptr<OperationState>> lost_;
    List<std::uint32_t> active_;
    AddressRoom room_;
    Fault blamed_; ///< found while this rank accessed peers' memory; reported to all ranks after that
    Thrown thrown_;
    WaitTeller teller_;
    bool moved_ = false;
    std::uint32_t fruitless_ = 0; ///< consecutive polls that moved nothing
    std::size_t looked_at_ = 0;   ///< the operation in flight that `find_difference_behind` checked last
};
} // namespace detail
UNISONO_NAMESPACE_END
