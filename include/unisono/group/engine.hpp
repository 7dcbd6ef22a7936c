#pragma once

/// \file
/// The executor of one rank: it drives every operation of every group that shares the rank's transport. Waiting for one
/// operation moves all, so that ranks may wait in different orders.
///
/// It is untyped: data are bytes cut by a Partition, arithmetic is a CombineKernel. It runs the steps of plans, no algorithm.

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

    /// Starts an operation; it may be done at once. The index is good until `release`.
    std::uint32_t start(GroupContext& group, OperationRequest& request) {
        check_overlap(request);
        const Entry entry = enter();
        Staging staging;
        if constexpr (stages) staging = stage(transport_, group, request);
        const std::uint32_t index = take(group.id, request);
        OperationState& operation = operations_[index];
        if constexpr (stages) stagings_[index] = staging;
        if (operation.is_cut_for(group, request)) operation.renew(request);
        else cut(group, operation, request, Transport::maps_peers);
        operation.sequence = ++group.sequence;
        if (request.state_bytes != 0) operation.keep_state(request);
        own_.begin(transport_, group, operation);
        if (request.plan->mapped()) number_mapped(group, operation);
        if (operation.straight) {
            operation.slots[0].cursor = 0;
            if (run_straight(operation)) {
                conclude(index, operation);
                return index; // all ranks came to its last flag, so nobody will ask what this one does
            }
            active_.push_back(index);
        } else {
            active_.push_back(index);
            advance(index); // first: what it sends is on its way meanwhile
        }
        if (group.announcements) group.announcements.announce(group.rank, group.sequence, operations_[index].signature);
        wake_driver();
        return index;
    }

    /// Runs a collective to its end, waiting if need be, if it is one that was run not long ago and touches its own memory
    /// only; else returns false and has done nothing. All that `start` and `finish` would do again is skipped.
    bool repeat(GroupContext& group, std::uint64_t call, std::uint64_t count, const void* input, void* output) {
        const Entry entry = enter();
        OperationState* const last = active_.empty() ? find_recent(group, call, count) : nullptr;
        if (last == nullptr) return false;
        OperationState& operation = *last; // it stays among the free ones: nothing else is started meanwhile
        begin_again(group, operation, input, output);
        if (spin(operation)) tell_finished(transport_, operation);
        else wait_for_repeated(operation);
        return true;
    }

    /// Starts a send (`kind` send) or a receive (receive) with the user's tag. `output` is written by a receive only.
    std::uint32_t start_point_to_point(GroupContext& group, schedule::StepKind kind, int peer, std::uint32_t tag,
                                       const OperationRequest& request) {
        const Entry entry = enter();
        const std::uint32_t index = take(0, request);
        OperationState& operation = operations_[index];
        cut_point_to_point(group, operation, request, kind, peer, tag);
        active_.push_back(index);
        advance(index);
        wake_driver();
        return index;
    }

    OperationState& operation(std::uint32_t index) { return operations_[index]; }

    /// True once the operation and its companion are done; releases nothing.
    bool is_done(std::uint32_t index) {
        OperationState& operation = operations_[index];
        if (!operation.done) return false;
        const OperationState* companion = nullptr;
        if (operation.companion != OperationState::no_companion) {
            companion = &operations_[operation.companion];
            if (!companion->done) return false;
        }
        if (operation.finish != nullptr) {
            operation.finish(operation, companion);
            operation.finish = nullptr;
        }
        return true;
    }

    void release(std::uint32_t index) {
        const Entry entry = enter();
        OperationState& operation = operations_[index];
        if (operation.companion != OperationState::no_companion) release(operation.companion);
        operations_.release(index);
    }

    /// Moves everything that can move; true if anything did. After a fault nothing: what was posted may be gone.
    bool progress() {
        const Entry entry = enter();
        moved_ = false;
        if (transport_.first_fault() != nullptr) return false;
        Sink sink{*this};
        transport_.progress(sink);
        if (blamed_.code != ErrorCode::none) transport_.abort(std::exchange(blamed_, Fault{}));
        for (std::size_t i = 0; i < active_.size();) {
            const std::size_t before = active_.size();
            advance(active_[i]);
            if (active_.size() == before) ++i;
        }
        return moved_;
    }

    bool poll(std::uint32_t index) override {
        const Entry entry = enter();
        if (is_done(index)) return true;
        fruitless_ = progress() ? 0 : fruitless_ + 1;
        throw_if_faulty();
        if (fruitless_ == 0) teller_.move(transport_);
        if (!virtual_time && fruitless_ % 256 == 255) suspect(index, never, never);
        return is_done(index);
    }

    void wait(std::uint32_t index, nanoseconds timeout) override {
        const Entry entry = enter();
        if (is_done(index)) return;
        if constexpr (Transport::maps_peers) {
            if (active_.size() == 1 && operations_[active_[0]].straight) {
                const std::uint32_t only = active_[0]; // the one that is waited for, or its companion
                if (spin(operations_[only])) finish(only, operations_[only]);
                if (is_done(index)) return;
                return static_cast<void>(wait_long(std::span(&index, 1), 0, timeout, spins));
            }
        }
        wait_long(std::span(&index, 1), 0, timeout);
    }

    std::size_t wait_any(std::span<const std::uint32_t> indices, std::size_t first, nanoseconds timeout) override {
        const Entry entry = enter();
        return wait_long(indices, first, timeout);
    }

    void follow(std::uint32_t index, void* stream, nanoseconds timeout) override {
        const Entry entry = enter();
        Look look;
        for (std::uint32_t attempt = 1; !own_.follow(transport_, operations_[index], stream); ++attempt) {
            static_cast<void>(progress()); // it is not enqueued yet
            if (look.is_due(transport_, attempt, timeout)) suspect(index, look.until, timeout);
            transport_.idle(attempt, look.until);
        }
    }

    /// An unfinished operation was dropped: its memory may be gone, so the world must not touch it any more.
    void drop(std::uint32_t index) noexcept override {
        const Entry entry = enter();
        OperationState& operation = operations_[index];
        if (!is_done(index) && transport_.first_fault() == nullptr) {
            transport_.abort(dropped(transport_.rank(), operation));
        } else if (!operation.done) {
            transport_.abort(*transport_.first_fault());
        }
        if (is_done(index)) release(index); // else its tokens may still be reported: the slot stays taken
    }

    void throw_if_faulty() {
        const Entry entry = enter();
        const Fault* fault = transport_.first_fault();
        if (fault == nullptr) return;
        transport_.abort(*fault); // nobody touches this rank's memory after this
        thrown_.rethrow(*fault);
        throw error(located(transport_, *fault));
    }

private:
    static constexpr bool stages = requires { requires Transport::stages; }; ///< peers do not see all memory
    static constexpr bool virtual_time = requires { requires Transport::virtual_time; };
    static constexpr std::uint32_t spins = 512; ///< attempts of a wait in which nothing else is looked at

    struct Sink {
        Engine& engine;
        void sent(Token token) { engine.complete(token); }
        void received(Token token, const Envelope& sent, const std::byte* data) { engine.receive(token, sent, data); }
        /// By its envelope it is a mismatch, so that nothing asks for its bytes.
        void too_long(Token token, const Envelope& envelope) { engine.receive(token, envelope, nullptr); }
    };

    /// Runs what it can of a straight operation; true when nothing is left.
    bool run_straight(OperationState& operation) try {
        if constexpr (Transport::maps_peers) {
            LaneState& lane = operation.slots[0];
            for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
                const int met = run_mapped_step(transport_, operation, lane, room_);
                if (met != nobody) return blame(operation, met);
                moved_ = true;
            }
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(transport_.rank(), operation));
    }

    /// Waits a moment for a straight operation, the only one in flight, and looks at nothing else meanwhile; true when nothing
    /// of it is left. Nothing is delivered after a fault.
    [[gnu::always_inline]] inline bool spin(OperationState& operation) {
        Look patience(100'000);
        for (std::uint32_t attempt = 0; attempt < spins && transport_.first_fault() == nullptr; ++attempt) {
            if (run_straight(operation)) return true;
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

    /// Runs the steps that are left of a round; false where it has to wait for a flag.
    bool issue_round(std::uint32_t index, OperationState& operation, std::uint32_t slot, LaneState& lane) {
        for (; lane.cursor < lane.steps.size(); ++lane.cursor) {
            if (!issue(index, operation, slot, lane)) return false;
        }
        return true;
    }

    /// Drives everything until one of these is done, a fault comes or the time is over. Its place, looked for from `first` on, in a circle.
    [[gnu::noinline]] std::size_t wait_long(std::span<const std::uint32_t> indices, std::size_t first,
                                            nanoseconds timeout, std::uint32_t attempt = 0) {
        Look look;
        for (;;) {
            for (std::size_t i = 0; i < indices.size(); ++i) {
                const std::size_t place = first + i - (first + i < indices.size() ? 0 : indices.size());
                if (!is_done(indices[place])) continue;
                teller_.move(transport_);
                return place;
            }
            if (progress()) {
                attempt = 0;
                continue;
            }
            throw_if_faulty();
            if (look.is_due(transport_, attempt, timeout)) {
                for (std::size_t i = 1; i < indices.size(); ++i) suspect(indices[i], never, timeout);
                suspect(indices[0], look.until, timeout);
            }
            transport_.idle(attempt++, look.until);
        }
    }

    void wait_for_repeated(OperationState& operation) {
        operation.done = false;
        operation.companion = OperationState::no_companion;
        operation.finish = nullptr;
        active_.push_back(operation.number);
        GroupContext& group = *operation.group;
        if (group.announcements) group.announcements.announce(group.rank, group.sequence, operation.signature);
        wait_long(std::span(&operation.number, 1), 0, group.timeout, spins);
    }

    std::uint32_t take(std::uint64_t group, const OperationRequest& request) {
        const std::uint32_t index = operations_.take(group, request);
        if constexpr (stages)
            if (stagings_.size() < operations_.size()) stagings_.resize(operations_.size());
        return index;
    }

    /// Nothing is left to do: results go where they belong, and others may use the flags again.
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

    /// A mapped step could not be run: `met` is the rank whose signature differs, or there is somebody to wait for.
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
            return met == nobody || blame(operation, met);
        }
        return true;
    } catch (...) {
        return spread(thrown_.note(transport_.rank(), operation));
    }

    void complete(Token token) {
        --operations_[operation_of(token)].slots[slot_of(token)].outstanding;
        moved_ = true;
    }

    void receive(Token token, const Envelope& envelope, const std::byte* data) {
        // Not aborted here: that waits for ranks that touch foreign memory, and this one may be doing so now.
        if (blamed_.code != ErrorCode::none) return;
        OperationState& operation = operations_[operation_of(token)];
        try {
            moved_ |= take_message(transport_, own_, operation, token, envelope, data, blamed_);
        } catch (...) {
            blamed_ = thrown_.note(transport_.rank(), operation);
        }
    }

    /// After a while without progress: does a peer do something else, has one left, has the deadline passed?
    void suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout) {
        const OperationState& operation = operations_[index];
        teller_.wait(transport_, operation);
        if (Fault found; find_culprit(transport_, operation, found)) {
            if (found.code == ErrorCode::peer_lost && progress()) return; // it left just now, and had sent before
            transport_.abort(found);
        } else if (transport_.now() >= until) {
            transport_.abort(timed_out(transport_, *operation.group, timeout, operation.sequence, operation.signature,
                                       operation.point_to_point ? operation.single[0].peer : -1));
        }
        throw_if_faulty();
    }

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
};

} // namespace detail
UNISONO_NAMESPACE_END
