#pragma once

/// \file
/// The executor of one rank. It drives every operation of every group that uses the rank's
/// transport. Waiting for one operation advances all, so that ranks may wait in different orders.
///
/// It is untyped: data are bytes that a Partition cuts, arithmetic is a CombineKernel. It runs the
/// steps of plans and contains no algorithm.

#include "unisono/core/list.hpp"
#include "unisono/group/bounce.hpp"
#include "unisono/group/driver.hpp"
#include "unisono/group/lanes.hpp"
#include "unisono/group/mapped_steps.hpp"
#include "unisono/group/message_steps.hpp"
#include "unisono/group/suspicion.hpp"
#include "unisono/group/thrown.hpp"

#include <memory>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Engine {
public:
    OpenGroups groups; ///< of this rank
    explicit Engine(Owned<Endpoint> endpoint) : endpoint_(std::move(endpoint)), own_(endpoint_->transport_executor()) {}
    [[gnu::cold]] ~Engine() {
        while (lost_) lost_.take(lost_->after.release()); // one by one: there may be many
    }

    [[nodiscard]] bool is_idle() const { return active_.empty(); }

    /// Held by every caller of the engine or its endpoint.
    [[nodiscard]] Entry enter() { return Entry(driver_); }
    [[nodiscard]] Driver* driver() const { return driver_; }
    /// Call only while no other thread is in the engine.
    void set_driver(Driver* driver) { driver_ = driver; }

    Endpoint& endpoint() { return *endpoint_; }
    /// The transport's own collectives; null: it has none.
    [[nodiscard]] TransportExecutor* own() const { return own_.get(); }
    /// A group's last use of the transport.
    void close_group(std::uint64_t id) noexcept {
        endpoint_->close(id);
        if (own_ != nullptr) own_->close_group(id);
    }

    /// Gives a new state its number.
    [[gnu::cold]] void enrol(OperationState& state) {
        const Entry entry = enter(); // another thread may drive the operations in flight
        if (unused_.empty()) {
            operations_.push_back(nullptr);
            active_.reserve(operations_.size()); // however many are in flight later, no start allocates
            unused_.push_back(static_cast<std::uint32_t>(operations_.size() - 1));
        }
        state.number = unused_.back();
        unused_.pop_back();
        operations_[state.number] = &state;
    }
    [[nodiscard]] Part<OperationState* const> enrolled() const { return operations_; } ///< null: unused
    /// Takes over a state that its owner needs no more. One in flight, or with a handle, stays:
    /// tokens may still name it.
    [[gnu::cold]] void dismiss(Owned<OperationState> state) noexcept {
        const Entry entry = enter();
        if (!state->is_free || !state->done) return state->after.swap(lost_), lost_.swap(state);
        operations_[state->number] = nullptr;
        unused_.push_back(state->number);
    }

    /// Starts a prepared operation, which may complete immediately. Its number is valid until
    /// `release`.
    void start(OperationState& operation) {
        const Entry entry = enter();
        begin(operation);
        operation.is_free = false; // before anything can throw: then it stays in flight
        if (operation.straight && run_straight(operation)) return announce_rooted(operation), conclude(operation);
        active_.push_back(operation.number);
        if (!operation.straight) advance(operation.number); // first, so that its sends travel meanwhile
        if (!operation.point_to_point) announce(operation);
        if (driver_ != nullptr) driver_->wake();
    }
    /// Runs a prepared operation to its end. Spins first, and tells the peers of it only if that
    /// fails.
    void run(OperationState& operation) {
        const Entry entry = enter();
        std::uint32_t attempt = 0;
        if (operation.straight && active_.empty()) [[likely]] {
            begin(operation);
            if (spin(operation)) return announce_rooted(operation), conclude(operation);
            operation.is_free = false;
            active_.push_back(operation.number);
            announce(operation);
            attempt = spins;
        } else {
            start(operation);
        }
        wait_long({&operation.number, 1}, 0, operation.group->timeout, attempt);
        release(operation.number); // if the wait throws, it stays in flight
    }

    /// True if the operation and its companion are done. Releases nothing.
    bool is_done(std::uint32_t index) {
        OperationState& operation = *operations_[index];
        if (!operation.done) return false;
        const bool alone = operation.companion == no_operation;
        const OperationState* const companion = alone ? nullptr : operations_[operation.companion];
        if (companion != nullptr && !companion->done) return false;
        if (operation.finish != nullptr) {
            operation.finish(operation, companion);
            operation.finish = nullptr;
        }
        return true;
    }

    void release(std::uint32_t index) {
        const Entry entry = enter();
        while (index != no_operation) { // and its companion
            OperationState& operation = *operations_[index];
            operation.is_free = true;
            index = std::exchange(operation.companion, no_operation);
        }
    }

    /// Advances every operation that can advance; true if any did. After a fault it does nothing,
    /// since posted memory may be gone.
    bool progress() {
        const Entry entry = enter();
        moved_ = false;
        if (endpoint_->first_fault() != nullptr) return false;
        Sink sink(*this);
        try {
            endpoint_->progress(sink);
        } catch (...) {
            return spread(thrown_.note(endpoint_->rank(), active_.size() == 1 ? operations_[active_[0]] : nullptr));
        }
        if (blamed_.code != ErrorCode::none) abort_blamed();
        for (std::size_t i = 0, before = 0; i < active_.size(); i += active_.size() == before ? 1 : 0) {
            before = active_.size();
            advance(active_[i]);
        }
        return moved_;
    }

    bool poll(std::uint32_t index) {
        const Entry entry = enter();
        if (is_done(index)) return true;
        fruitless_ = progress() ? 0 : fruitless_ + 1;
        throw_if_faulty();
        if (fruitless_ == 0) teller_.move(*endpoint_);
        if (fruitless_ % 256 == 255 && !endpoint_->facts().virtual_time) suspect(index, never, never);
        return is_done(index);
    }

    void wait(std::uint32_t index, nanoseconds timeout) {
        const Entry entry = enter();
        if (is_done(index)) return;
        std::uint32_t attempt = 0;
        if (active_.size() == 1 && operations_[active_[0]]->straight) {
            OperationState& only = *operations_[active_[0]]; // the one that is waited for, or its companion
            if (spin(only)) finish(only);
            attempt = spins;
        }
        wait_long({&index, 1}, 0, timeout, attempt);
    }

    [[gnu::cold]] void give_up(std::uint32_t index, nanoseconds waited) {
        const Entry entry = enter();
        if (!is_done(index)) suspect(index, 0, waited);
    }

    /// Drives all operations until one of these is done, a fault arrives or the timeout passes.
    /// Returns the index of the one that is done, searched cyclically from `first` on.
    [[gnu::noinline]] std::size_t wait_long(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout,
                                            std::uint32_t attempt = 0) {
        const Entry entry = enter();
        Look look;
        for (;;) {
            for (std::size_t i = 0; i < indices.size(); ++i) {
                const std::size_t place = first + i - (first + i < indices.size() ? 0 : indices.size());
                if (!is_done(indices[place])) continue;
                teller_.move(*endpoint_);
                return place;
            }
            if (progress()) {
                attempt = 0;
                continue;
            }
            throw_if_faulty();
            if (look.is_due(*endpoint_, attempt, timeout)) {
                for (std::size_t i = 1; i < indices.size(); ++i) suspect(indices[i], never, timeout);
                suspect(indices[0], look.until, timeout);
            }
            endpoint_->idle(attempt++, look.until);
        }
    }

    /// Makes work that is enqueued later on this stream of a device wait for the operation.
    [[gnu::cold]] void follow(std::uint32_t index, void* stream, nanoseconds timeout) {
        const Entry entry = enter();
        Look look;
        if (own_ == nullptr) refuse_input("then: the transport has no streams; expected one whose ranks have devices");
        for (std::uint32_t attempt = 1; !own_->follow(*operations_[index], stream); ++attempt) {
            static_cast<void>(progress()); // it is not enqueued yet
            if (look.is_due(*endpoint_, attempt, timeout)) suspect(index, look.until, timeout);
            endpoint_->idle(attempt, look.until);
        }
    }

    /// Handles the drop of an unfinished operation: its memory may be gone, so the world must not
    /// use it any more.
    void drop(std::uint32_t index) noexcept {
        const Entry entry = enter();
        OperationState& operation = *operations_[index];
        operation.finish = nullptr;                // the caller did not wait for it, and its memory may be gone
        if (is_done(index)) return release(index); // else its tokens may still be reported: the slot stays taken
        abort_dropped(*endpoint_, operation);
    }

    /// The caller has entered.
    void throw_if_faulty() {
        const Fault* fault = endpoint_->first_fault();
        if (fault == nullptr) return;
        endpoint_->abort(*fault); // no rank accesses this rank's memory after this
        thrown_.rethrow(*fault);
        throw error(located(*endpoint_, *fault));
    }

private:
    static constexpr std::uint32_t spins = 512; ///< attempts of a wait that look at one operation only

    struct Sink final : EndpointSink {
        explicit Sink(Engine& of) : engine(of) {}
        void sent(Token token) override {
            --engine.operations_[operation_of(token)]->lane_slots[slot_of(token)].outstanding;
            engine.moved_ = true;
        }
        void received(Token token, const Envelope& envelope, const std::byte* data) override {
            engine.receive(token, envelope, data);
        }
        Engine& engine;
    };

    [[gnu::noinline, gnu::cold]] void abort_blamed() { endpoint_->abort(std::exchange(blamed_, Fault{})); }

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
            if (run_straight(operation)) finish(operation);
            return;
        }
        if (operation.next_lane == 0) begin_lanes(operation);
        for (std::uint32_t slot = 0; slot < operation.slots_used; ++slot) {
            LaneState& lane = operation.lane_slots[slot];
            while (lane.active && lane.outstanding == 0 && (own_ == nullptr || own_->is_here(operation, lane))) {
                while (lane.cursor < lane.steps.size() && issue(index, operation, slot, lane)) ++lane.cursor;
                if (lane.cursor < lane.steps.size() || lane.outstanding != 0) break; // waits for a flag, or messages
                moved_ = true;
                if (own_ == nullptr) finish_round(operation, lane);
                else own_->finish(operation, lane);
            }
        }
        if (operation.lanes_done == operation.lanes && (own_ == nullptr || own_->done(operation))) finish(operation);
    }

    /// Makes an operation its group's next one.
    [[gnu::always_inline]] inline void begin(OperationState& operation) {
        GroupContext& group = *operation.group;
        const bool mapped = operation.straight || (!operation.point_to_point && operation.request.plan->mapped());
        const PeersView& view = operation.peers_view;
        if (mapped && !(endpoint_->mapped()->reaches(operation.request.input, view.input) &&
                        endpoint_->mapped()->reaches(operation.request.output, view.output))) [[unlikely]]
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
        operation.history = group.history + static_cast<std::uint32_t>(operation.sequence);
        if (operation.rooted) group.history = (group.history ^ operation.short_signature) * 2654435761u + 1;
        if (own_ != nullptr) own_->begin(group, operation);
        if (!mapped) return;
        operation.mapped_index = group.mapped_started++;
        if (operation.messages) operation.small_number = ++group.small_started;
    }

    /// Ends an operation whose steps are all done: tells the peers this rank's progress, so that
    /// they may reuse the lines, and moves results to their destination.
    void conclude(OperationState& operation) {
        GroupContext& group = *operation.group;
        operation.done = true;
        moved_ = true;
        if (!operation.point_to_point && operation.request.plan->mapped()) {
            group.mapped_ahead |= std::uint64_t{1} << (operation.mapped_index - group.mapped_completed);
            for (; (group.mapped_ahead & 1) != 0; group.mapped_ahead >>= 1) ++group.mapped_completed;
            group.board.completed(group.rank).store(group.mapped_completed, std::memory_order_release);
            wake_group(*endpoint_, group); // another rank may wait for the line
        }
        if (!operation.point_to_point && group.announcements)
            group.announcements.finish(group.rank, group.done_up_to(operation.sequence));
        if (own_ != nullptr) own_->end(operation);
        if (operation.copies.used()) copy_back(operation);
    }

    void finish(OperationState& operation) {
        conclude(operation);
        for (std::size_t i = 0; i < active_.size(); ++i)
            if (active_[i] == operation.number) return active_.erase(i);
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

    /// Processes the message that arrived for the token's step.
    void receive(Token token, const Envelope& envelope, const std::byte* data) {
        // Does not abort here: abort waits for ranks that access foreign memory, and this rank may
        // be doing so now.
        if (blamed_.code != ErrorCode::none) return;
        OperationState& operation = *operations_[operation_of(token)];
        try {
            if (!is_expected(operation, token, envelope, blamed_)) return;
            LaneState& lane = operation.lane_slots[slot_of(token)];
            const std::uint32_t cursor = step_of(token);
            operation.group->traffic.bytes_received += envelope.bytes;
            if (lane.steps[cursor].kind == schedule::StepKind::receive_combine) combine(operation, lane, cursor, data);
            else copy(operation, lane, cursor, data);
            --lane.outstanding;
            moved_ = true;
        } catch (...) {
            blamed_ = thrown_.note(endpoint_->rank(), &operation);
        }
    }

    /// After a while without progress: checks whether a peer runs another operation, has left, or
    /// the deadline has passed.
    [[gnu::cold]] void suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout) {
        throw_if_faulty(); // then an operation in flight may have lost its group
        const OperationState& operation = *operations_[index];
        teller_.wait(*endpoint_, operation);
        const bool late = endpoint_->now() >= until;
        Fault found;
        bool is_found = find_culprit(*endpoint_, operation, found);
        // Does a peer run another operation in place of one that this rank will wait for later? All
        // in flight are checked, or only the next one.
        for (std::size_t looks = late ? active_.size() : !active_.empty(); looks != 0 && !is_found; --looks)
            is_found = find_difference(*endpoint_, *operations_[active_[++looked_at_ % active_.size()]], found);
        if (late || is_found || looked_at_ % 16 == 0) is_found = find_earlier_difference(operation, found) || is_found;
        // A rank that never comes, or has left, may have had other data of any group.
        if ((late || is_found) && found.code != ErrorCode::mismatch)
            is_found = groups.find_difference(found) || is_found;
        if (is_found && found.code == ErrorCode::peer_lost && progress()) return; // it left after it had sent
        if (is_found || late) endpoint_->abort(is_found ? found : timed_out(*endpoint_, operation, timeout));
        throw_if_faulty();
    }

    Driver* driver_ = nullptr; ///< another thread that advances operations
    Owned<Endpoint> endpoint_;
    std::unique_ptr<TransportExecutor> own_; ///< null: the transport has no collectives of its own, and no device
    List<OperationState*> operations_;       ///< by number
    List<std::uint32_t> unused_;             ///< numbers
    Owned<OperationState> lost_;             ///< and those after it: dismissed, and perhaps still in flight
    List<std::uint32_t> active_;
    AddressRoom room_;
    Fault blamed_; ///< found while this rank accessed peers' memory; reported to all ranks after that
    Thrown thrown_;
    WaitTeller teller_;
    bool moved_ = false;
    std::uint32_t fruitless_ = 0; ///< consecutive polls that moved nothing
    std::size_t looked_at_ = 0;   ///< the operation in flight that `suspect` checked last
};
} // namespace detail
UNISONO_NAMESPACE_END
