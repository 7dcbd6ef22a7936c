#pragma once

/// \file
/// The executor's entry points, outside its class and not `inline`, so that a program in compiled
/// mode takes them from the library (core/config.hpp).

#include "unisono/group/engine.hpp"

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void Engine::enrol(OperationState& state) {
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

UNISONO_DEFINITION void Engine::dismiss(std::unique_ptr<OperationState> state) noexcept {
    if (!state->is_free || !state->done) return lost_.push_back(std::move(state));
    operations_[state->number] = nullptr;
    unused_.push_back(state->number);
}

UNISONO_DEFINITION void Engine::start(OperationState& operation) {
    const Entry entry = enter();
    begin(operation);
    operation.is_free = false; // before anything can throw: then it stays in flight
    if (operation.straight && run_straight(operation))
        return conclude(operation); // all ranks have seen its last flag, so none waits for this rank's progress
    active_.push_back(operation.number);
    if (!operation.straight) advance(operation.number); // first, so that its sends travel meanwhile
    if (!operation.point_to_point) announce(operation);
    wake_driver();
}

UNISONO_DEFINITION void Engine::run(OperationState& operation) {
    const Entry entry = enter();
    if (!operation.straight || !active_.empty()) {
        start(operation);
        return wait_for_run(operation, 0);
    }
    begin(operation);
    if (spin(operation)) return conclude(operation);
    operation.is_free = false;
    active_.push_back(operation.number);
    announce(operation);
    wait_for_run(operation, spins);
}

UNISONO_DEFINITION bool Engine::is_done(std::uint32_t index) {
    OperationState& operation = *operations_[index];
    if (!operation.done) return false;
    const OperationState* companion = nullptr;
    if (operation.companion != no_operation) {
        companion = operations_[operation.companion];
        if (!companion->done) return false;
    }
    if (operation.finish != nullptr) {
        operation.finish(operation, companion);
        operation.finish = nullptr;
    }
    return true;
}

UNISONO_DEFINITION void Engine::release(std::uint32_t index) {
    const Entry entry = enter();
    OperationState& operation = *operations_[index];
    operation.is_free = true;
    if (operation.companion != no_operation) release(std::exchange(operation.companion, no_operation));
}

UNISONO_DEFINITION bool Engine::progress() {
    const Entry entry = enter();
    moved_ = false;
    if (endpoint_->first_fault() != nullptr) return false;
    Sink sink(*this);
    try {
        endpoint_->progress(sink);
    } catch (...) {
        return spread(thrown_.note(endpoint_->rank(), active_.size() == 1 ? operations_[active_[0]] : nullptr));
    }
    if (blamed_.code != ErrorCode::none) endpoint_->abort(std::exchange(blamed_, Fault{}));
    for (std::size_t i = 0; i < active_.size();) {
        const std::size_t before = active_.size();
        advance(active_[i]);
        if (active_.size() == before) ++i;
    }
    return moved_;
}

UNISONO_DEFINITION bool Engine::poll(std::uint32_t index) {
    const Entry entry = enter();
    if (is_done(index)) return true;
    fruitless_ = progress() ? 0 : fruitless_ + 1;
    throw_if_faulty();
    if (fruitless_ == 0) teller_.move(*endpoint_);
    if (fruitless_ % 256 == 255 && !endpoint_->facts().virtual_time) suspect(index, never, never);
    return is_done(index);
}

UNISONO_DEFINITION void Engine::wait(std::uint32_t index, nanoseconds timeout) {
    const Entry entry = enter();
    if (is_done(index)) return;
    if (active_.size() == 1 && operations_[active_[0]]->straight) {
        const std::uint32_t only = active_[0]; // the operation that is waited for, or its companion
        if (spin(*operations_[only])) finish(only, *operations_[only]);
        if (is_done(index)) return;
        return static_cast<void>(wait_long({&index, 1}, 0, timeout, spins));
    }
    wait_long({&index, 1}, 0, timeout);
}

UNISONO_DEFINITION void Engine::give_up(std::uint32_t index, nanoseconds waited) {
    const Entry entry = enter();
    if (!is_done(index)) suspect(index, 0, waited);
}

UNISONO_DEFINITION std::size_t Engine::wait_any(Part<const std::uint32_t> indices, std::size_t first,
                                                nanoseconds timeout) {
    const Entry entry = enter();
    return wait_long(indices, first, timeout);
}

UNISONO_DEFINITION void Engine::follow(std::uint32_t index, void* stream, nanoseconds timeout) {
    const Entry entry = enter();
    Look look;
    if (own_ == nullptr) refuse_input("then: the transport has no streams; expected one whose ranks have devices");
    for (std::uint32_t attempt = 1; !own_->follow(*operations_[index], stream); ++attempt) {
        static_cast<void>(progress()); // it is not enqueued yet
        if (look.is_due(*endpoint_, attempt, timeout)) suspect(index, look.until, timeout);
        endpoint_->idle(attempt, look.until);
    }
}

UNISONO_DEFINITION void Engine::drop(std::uint32_t index) noexcept {
    const Entry entry = enter();
    OperationState& operation = *operations_[index];
    operation.finish = nullptr; // the caller did not wait for it, and its memory may be gone
    if (!is_done(index) && endpoint_->first_fault() == nullptr) {
        endpoint_->abort(dropped(endpoint_->rank(), operation));
    } else if (!operation.done) {
        endpoint_->abort(*endpoint_->first_fault());
    }
    if (is_done(index)) release(index); // else its tokens may still be reported: the slot stays taken
}

UNISONO_DEFINITION void Engine::throw_if_faulty() {
    const Entry entry = enter();
    const Fault* fault = endpoint_->first_fault();
    if (fault == nullptr) return;
    endpoint_->abort(*fault); // no rank accesses this rank's memory after this
    thrown_.rethrow(*fault);
    throw error(located(*endpoint_, *fault));
}

[[gnu::noinline]] UNISONO_DEFINITION std::size_t Engine::wait_long(Part<const std::uint32_t> indices, std::size_t first,
                                                                   nanoseconds timeout, std::uint32_t attempt) {
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

UNISONO_DEFINITION bool Engine::find_difference_behind(bool all, Fault& found) {
    for (std::size_t looks = all ? active_.size() : std::min<std::size_t>(active_.size(), 1); looks != 0; --looks)
        if (find_difference(*endpoint_, *operations_[active_[++looked_at_ % active_.size()]], found)) return true;
    return false;
}

UNISONO_DEFINITION void Engine::suspect(std::uint32_t index, nanoseconds until, nanoseconds timeout) {
    const OperationState& operation = *operations_[index];
    teller_.wait(*endpoint_, operation);
    const bool late = endpoint_->now() >= until;
    if (Fault found; find_culprit(*endpoint_, operation, found) || find_difference_behind(late, found)) {
        if (found.code == ErrorCode::peer_lost && progress()) return; // it left just now, after it had sent
        endpoint_->abort(found);
    } else if (late) {
        endpoint_->abort(timed_out(*endpoint_, operation, timeout));
    }
    throw_if_faulty();
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
