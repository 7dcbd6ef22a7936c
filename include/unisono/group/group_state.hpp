#pragma once

/// \file
/// A rank's state of one group: its context, and the states of its operations, which stay prepared
/// for the calls that they ran last.

#include "unisono/core/standard.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Engine; // engine.hpp

struct GroupState : GroupContext {
    static constexpr std::size_t enough = 16;             ///< states to make before any is used for another call
    static constexpr std::size_t most_looks = 2 * enough; ///< so that thousands in flight cost a new call nothing

    explicit GroupState(std::shared_ptr<Engine> of) : engine(std::move(of)) {}
    GroupState(const GroupState&) = delete;
    GroupState& operator=(const GroupState&) = delete;
    ~GroupState();

    /// Copies the settings of the group of which this one is a part.
    void take_after(const GroupState& whole);
    /// A free state that is prepared for this call; null: none.
    OperationState* find(const CallKey& wanted);
    /// A free state for this call, which the caller prepares.
    OperationState& take(const CallKey& wanted);

    /// Cuts a state for a request that lacks at most its plan.
    void cut(OperationState& state, GroupCore& group, const Call& call, OperationRequest& request);

    static constexpr std::size_t place_of(std::uint64_t call, std::uint64_t count) { // roots may take turns
        return ((call >> 47) + count + 5 * (call & 0xffffffffu)) % enough;
    }

    std::shared_ptr<Engine> engine;
    OperationState* latest[enough] = {}; ///< by `place_of`: where a repeated call is looked up first
    /// The native schedules that `keep_native` (collective/native.hpp) has left here, by
    /// collective.
    PlanFunction native[static_cast<std::size_t>(Collective::barrier) + 1] = {};

private:
    List<OperationState*> states_; ///< its own
    std::size_t found_ = 0;        ///< the next state to look at: calls often come in the same order
    std::size_t oldest_ = 0;       ///< the state that was used for another call last
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/group/engine.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION GroupState::~GroupState() {
    const Entry entry = engine->enter();
    engine->groups.close(*this);
    for (OperationState* const state : states_) engine->dismiss(Owned(state));
    for (OperationState* const one : engine->enrolled()) {
        if (one == nullptr || one->group != this || one->key.call != 0) continue; // a handle has it (see prepared.hpp)
        if (!one->is_free) engine->drop(one->number);
        one->group = nullptr;
    }
    if (id != world_id && ranks != 0) engine->close_group(id);
}

[[gnu::cold]] UNISONO_DEFINITION void GroupState::take_after(const GroupState& whole) {
    timeout = whole.timeout;
    plans.watch = {whole.plans.watch.see, this};
    std::copy(std::begin(whole.native), std::end(whole.native), native);
}

[[gnu::noinline]] UNISONO_DEFINITION OperationState* GroupState::find(const CallKey& wanted) {
    OperationState*& last = latest[place_of(wanted.call, wanted.count)];
    if (last != nullptr && last->is_free && last->key == wanted) [[likely]]
        return last;
    for (std::size_t looks = std::min(states_.size(), most_looks); looks != 0; --looks) {
        found_ = found_ + 1 < states_.size() ? found_ + 1 : 0;
        OperationState* const one = states_[found_];
        if (!one->is_free || !(one->key == wanted)) continue;
        return last = one;
    }
    return nullptr;
}

[[gnu::cold]] UNISONO_DEFINITION OperationState& GroupState::take(const CallKey& wanted) {
    OperationState* taken = nullptr;
    std::size_t looks = states_.size() < enough ? 0 : std::min(states_.size(), most_looks);
    for (; looks != 0 && taken == nullptr; --looks) {
        oldest_ = oldest_ + 1 < states_.size() ? oldest_ + 1 : 0;
        if (states_[oldest_]->is_free) taken = states_[oldest_];
    }
    if (taken == nullptr) {
        states_.reserve(states_.size() + 1); // else one could be lost
        Owned<OperationState> made(new OperationState);
        engine->enrol(*made);
        states_.push_back(taken = made.release());
    }
    taken->key = wanted;
    return *(latest[place_of(wanted.call, wanted.count)] = taken);
}

[[gnu::cold]] UNISONO_DEFINITION void GroupState::cut(OperationState& state, GroupCore& group, const Call& call,
                                                      OperationRequest& request) {
    const PlanFunction plan = call.by.plan != nullptr ? call.by.plan : native[static_cast<std::size_t>(call.what)];
    if (plan == nullptr) refuse_input({name_of(call.what), ": the group keeps no native schedule of it (keep_native)"});
    if (request.plan == nullptr) plan(group, call, request);
    const TransportExecutor* const own = engine->own();
    if (own != nullptr && own->has_mode() && request.plan->transports_own()) request.mode = {}; // it has its own
    detail::cut(*this, state, request, engine->endpoint().mapped() != nullptr);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
