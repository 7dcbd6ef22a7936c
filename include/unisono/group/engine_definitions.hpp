#pragma once

/// \file
/// The executor's entry points, outside its class and not `inline`, so that a program in compiled
/// mode takes them from the library (core/config.hpp).

#include "unisono/group/engine.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <transport Transport>
std::uint32_t Engine<Transport>::start(GroupContext& group, OperationRequest& request) {
    check_overlap(group, request);
    const bool on_device = enqueues<Transport> && request.plan->transports_own(); // which has a mode of its own
    request.mode = group.mode_of_next(on_device ? ReductionKind::none : request.reduction.kind, request.count);
    const Entry entry = enter();
    Bounced bounced;
    if constexpr (bounces) bounced = bounce(transport_, group, request);
    const std::uint32_t index = take(group.id, request);
    OperationState& operation = operations_[index];
    if constexpr (bounces) bounced_[index] = bounced;
    if (operation.is_cut_for(group, request)) operation.renew(request), sign_again(operation);
    else cut(group, operation, request, Transport::maps_peers);
    operation.sequence = ++group.sequence;
    if (request.reduction.state_bytes != 0) operation.keep_state(request);
    own_.begin(transport_, group, operation);
    if (request.plan->mapped()) number_mapped(group, operation);
    if (operation.straight) {
        operation.lane_slots[0].cursor = 0;
        remember(group, operation, request);
    }
    return launch(group, index);
}

template <transport Transport>
bool Engine<Transport>::repeat(GroupContext& group, std::uint64_t call, std::uint64_t count, const void* input,
                               void* output) {
    const Entry entry = enter();
    OperationState* const last = active_.empty() ? find_recent(group, call, count) : nullptr;
    if (last == nullptr || !is_seen(*last, input, output)) return false;
    OperationState& operation = *last; // it stays in the free list: nothing else is started meanwhile
    begin_again(group, operation, input, output);
    if (spin(operation)) tell_finished(transport_, operation);
    else wait_for_repeated(operation);
    return true;
}

template <transport Transport>
std::uint32_t Engine<Transport>::start_again(GroupContext& group, std::uint64_t call, std::uint64_t count,
                                             const void* input, void* output) {
    const Entry entry = enter();
    OperationState* const last = find_recent(group, call, count);
    if (last == nullptr || !is_seen(*last, input, output) || !operations_.take(*last)) return no_operation;
    begin_again(group, *last, input, output);
    return launch(group, last->number);
}

template <transport Transport>
std::uint32_t Engine<Transport>::start_point_to_point(GroupContext& group, schedule::StepKind kind, int peer,
                                                      std::uint32_t tag, const OperationRequest& request) {
    const Entry entry = enter();
    const std::uint32_t index = take(0, request);
    OperationState& operation = operations_[index];
    cut_point_to_point(group, operation, request, kind, peer, tag);
    active_.push_back(index);
    advance(index);
    wake_driver();
    return index;
}

template <transport Transport>
bool Engine<Transport>::is_done(std::uint32_t index) {
    OperationState& operation = operations_[index];
    if (!operation.done) return false;
    const OperationState* companion = nullptr;
    if (operation.companion != no_operation) {
        companion = &operations_[operation.companion];
        if (!companion->done) return false;
    }
    if (operation.finish != nullptr) {
        operation.finish(operation, companion);
        operation.finish = nullptr;
    }
    return true;
}

template <transport Transport>
void Engine<Transport>::release(std::uint32_t index) {
    const Entry entry = enter();
    OperationState& operation = operations_[index];
    if (operation.companion != no_operation) release(operation.companion);
    operations_.release(index);
}

template <transport Transport>
bool Engine<Transport>::progress() {
    const Entry entry = enter();
    moved_ = false;
    if (transport_.first_fault() != nullptr) return false;
    Sink sink{*this};
    try {
        transport_.progress(sink);
    } catch (...) {
        return spread(thrown_.note(transport_.rank(), active_.size() == 1 ? &operations_[active_[0]] : nullptr));
    }
    if (blamed_.code != ErrorCode::none) transport_.abort(std::exchange(blamed_, Fault{}));
    for (std::size_t i = 0; i < active_.size();) {
        const std::size_t before = active_.size();
        advance(active_[i]);
        if (active_.size() == before) ++i;
    }
    return moved_;
}

template <transport Transport>
bool Engine<Transport>::poll(std::uint32_t index) {
    const Entry entry = enter();
    if (is_done(index)) return true;
    fruitless_ = progress() ? 0 : fruitless_ + 1;
    throw_if_faulty();
    if (fruitless_ == 0) teller_.move(transport_);
    if (!virtual_time && fruitless_ % 256 == 255) suspect(index, never, never);
    return is_done(index);
}

template <transport Transport>
void Engine<Transport>::wait(std::uint32_t index, nanoseconds timeout) {
    const Entry entry = enter();
    if (is_done(index)) return;
    if constexpr (Transport::maps_peers) {
        if (active_.size() == 1 && operations_[active_[0]].straight) {
            const std::uint32_t only = active_[0]; // the operation that is waited for, or its companion
            if (spin(operations_[only])) finish(only, operations_[only]);
            if (is_done(index)) return;
            return static_cast<void>(wait_long({&index, 1}, 0, timeout, spins));
        }
    }
    wait_long({&index, 1}, 0, timeout);
}

template <transport Transport>
std::size_t Engine<Transport>::wait_any(Part<const std::uint32_t> indices, std::size_t first, nanoseconds timeout) {
    const Entry entry = enter();
    return wait_long(indices, first, timeout);
}

template <transport Transport>
void Engine<Transport>::follow(std::uint32_t index, void* stream, nanoseconds timeout) {
    const Entry entry = enter();
    Look look;
    for (std::uint32_t attempt = 1; !own_.follow(transport_, operations_[index], stream); ++attempt) {
        static_cast<void>(progress()); // it is not enqueued yet
        if (look.is_due(transport_, attempt, timeout)) suspect(index, look.until, timeout);
        transport_.idle(attempt, look.until);
    }
}

template <transport Transport>
void Engine<Transport>::drop(std::uint32_t index) noexcept {
    const Entry entry = enter();
    OperationState& operation = operations_[index];
    operation.finish = nullptr; // the caller did not wait for it, and its memory may be gone
    if (!is_done(index) && transport_.first_fault() == nullptr) {
        transport_.abort(dropped(transport_.rank(), operation));
    } else if (!operation.done) {
        transport_.abort(*transport_.first_fault());
    }
    if (is_done(index)) release(index); // else its tokens may still be reported: the slot stays taken
}

template <transport Transport>
void Engine<Transport>::throw_if_faulty() {
    const Entry entry = enter();
    const Fault* fault = transport_.first_fault();
    if (fault == nullptr) return;
    transport_.abort(*fault); // no rank accesses this rank's memory after this
    thrown_.rethrow(*fault);
    throw error(located(transport_, *fault));
}

template <transport Transport>
[[gnu::noinline]] std::size_t Engine<Transport>::wait_long(Part<const std::uint32_t> indices, std::size_t first,
                                                           nanoseconds timeout, std::uint32_t attempt) {
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

template <transport Transport>
bool Engine<Transport>::find_difference_behind(bool all, Fault& found) {
    for (std::size_t looks = all ? active_.size() : std::min<std::size_t>(active_.size(), 1); looks != 0; --looks)
        if (find_difference(transport_, operations_[active_[++looked_at_ % active_.size()]], found)) return true;
    return false;
}

template <transport Transport>
void Engine<Transport>::suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout) {
    const OperationState& operation = operations_[index];
    teller_.wait(transport_, operation);
    const bool late = transport_.now() >= until;
    if (Fault found; find_culprit(transport_, operation, found) || find_difference_behind(late, found)) {
        if (found.code == ErrorCode::peer_lost && progress()) return; // it left just now, after it had sent
        transport_.abort(found);
    } else if (late) {
        transport_.abort(timed_out(transport_, operation, timeout));
    }
    throw_if_faulty();
}

} // namespace detail
UNISONO_NAMESPACE_END
