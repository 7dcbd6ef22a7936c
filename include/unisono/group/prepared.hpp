#pragma once

/// \file
/// The handle of a collective that is prepared once and started repeatedly.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/group_state.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// A collective on host memory whose arguments were checked, and whose data were cut, once: a start
/// does neither, and allocates nothing. Move-only. All ranks start their collectives, prepared or
/// not, in the same order. What its operation refers to must outlive it. (MPI 4.0, section 6.13)
///
/// It is in flight from a start until `wait` has returned or `poll` has returned true; then it can
/// be started again. Dropping it in flight aborts the world, as dropping an `Operation` does. Its
/// memory must outlive it, and so must its group: if that ends, one in flight aborts the world, and
/// later starts are refused.
class Prepared {
public:
    Prepared(Prepared&&) noexcept;
    Prepared& operator=(Prepared&& other) noexcept;
    ~Prepared();

    /// Starts it. Errors: bad_input if it is in flight, was moved from, or its group has ended;
    /// those of its group.
    void start();
    /// The same on other memory of the same size and type, also for later starts. Errors: also
    /// bad_input for memory of another size, and as when it was prepared.
    void start(const detail::CallBuffer& in, const detail::CallBuffer& out);
    /// Advances operations in flight. True if this one is not in flight, or done. Never blocks.
    /// Throws the world's first fault.
    bool poll();
    /// Blocks until done. Returns at once if it is not in flight. Throws `error`: timeout after the
    /// group's timeout, mismatch, peer_lost, aborted.
    void wait();
    /// `start` and `wait`. Faster for small data.
    void run();
    /// As `Operation::give_up`.
    void give_up(std::chrono::nanoseconds waited);

private:
    friend class GroupCore;
    Prepared(GroupCore& group, detail::GroupState& state, const detail::Call& call, const detail::CallBuffer& in,
             const detail::CallBuffer& out);

    /// Refuses to start it if it cannot, and signs it anew if the thread's floating-point mode has
    /// changed.
    void check(const char* verb);
    [[noreturn]] void refuse(const char* verb) const;
    [[noreturn]] void refuse(const detail::OperationRequest& given, MemorySpace space) const;
    [[nodiscard]] bool in_flight() const { return state_ && !state_->is_free; }

    std::shared_ptr<detail::Engine> engine_;
    detail::Owned<detail::OperationState> state_; ///< has no group once the group has ended
    detail::List<std::size_t> counts_;            ///< of the input's blocks, then of the output's
    bool runs_ = false;                           ///< in `run`; if its thread ends there, that is no drop
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/text.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/sizes.hpp"

UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION Prepared::Prepared(GroupCore& group, detail::GroupState& state,
                                                    const detail::Call& call, const detail::CallBuffer& in,
                                                    const detail::CallBuffer& out)
    : engine_(state.engine), state_(new detail::OperationState) {
    if (in.space == MemorySpace::device || out.space == MemorySpace::device)
        refuse_input({"prepare: found memory of a device for ", name_of(call.what),
                      "; expected memory of the host. Why: each call on a device uses the stream of that moment"});
    detail::OperationRequest request = request_of(state, call, in, out);
    if (call.op.kind != ReductionKind::none) request.mode = state.mode; // each start reads it
    for (const std::size_t count : call.input_counts) counts_.push_back(count);
    for (const std::size_t count : call.output_counts) counts_.push_back(count);
    const detail::Counts counts(counts_.data(), counts_.size());
    request.input_counts = counts.first(call.input_counts.size());
    request.output_counts = counts.last(call.output_counts.size());
    state.cut(*state_, group, call, request);
    if (call.op.state_bytes != 0) state_->keep_state(state_->request);
    engine_->enrol(*state_);
}

UNISONO_DEFINITION Prepared::Prepared(Prepared&&) noexcept = default;

UNISONO_DEFINITION Prepared& Prepared::operator=(Prepared&& other) noexcept {
    Prepared taken(std::move(other));
    engine_.swap(taken.engine_);
    state_.swap(taken.state_);
    counts_ = std::move(taken.counts_);
    std::swap(runs_, taken.runs_);
    return *this;
}

[[gnu::cold]] UNISONO_DEFINITION Prepared::~Prepared() {
    if (!state_) return;
    const detail::Entry entry = engine_->enter();
    if (!state_->is_free && !runs_) engine_->drop(state_->number);
    state_->request.input_counts = state_->request.output_counts = {}; // the lists end here
    engine_->dismiss(std::move(state_));
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void Prepared::refuse(const char* verb) const {
    if (!state_) refuse_input({"Prepared::", verb, ": this handle was moved from; expected one of `prepare`"});
    if (state_->group == nullptr)
        refuse_input({"Prepared::", verb, ": its group has ended; expected a group that outlives what it prepared"});
    engine_->throw_if_faulty(); // if it is in flight because of that
    refuse_input({"Prepared::", verb, " of ", name_of(state_->request.plan->collective()), " on rank ",
                  state_->group->world_rank(state_->group->rank),
                  ": it is in flight; expected a wait, or a poll that returned true, since it was started"});
}

[[gnu::noinline]] UNISONO_DEFINITION void Prepared::check(const char* verb) {
    if (!state_ || state_->group == nullptr || !state_->is_free) [[unlikely]]
        refuse(verb);
    detail::OperationRequest& request = state_->request;
    const detail::FloatingPointMode mode = state_->group->mode_of_next(request.reduction.kind, request.count);
    if (mode == request.mode) [[likely]]
        return;
    if (engine_->own() != nullptr && engine_->own()->has_mode() && state_->is_transports_own()) return;
    request.mode = mode;
    sign(*state_);
}

UNISONO_DEFINITION void Prepared::start() {
    check("start");
    engine_->start(*state_);
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void Prepared::refuse(const detail::OperationRequest& given,
                                                                      MemorySpace space) const {
    const detail::OperationRequest& known = state_->request;
    refuse_input({"Prepared::start of ", name_of(known.plan->collective()), " on rank ",
                  state_->group->world_rank(state_->group->rank), ": found ", given.total_bytes, " bytes of ",
                  name_of(given.element), space == MemorySpace::device ? " on a device" : "", ", expected ",
                  known.total_bytes, " bytes of ", name_of(known.element), ", as it was prepared"});
}

UNISONO_DEFINITION void Prepared::start(const detail::CallBuffer& in, const detail::CallBuffer& out) {
    check("start");
    detail::OperationRequest& known = state_->request;
    const Collective what = known.plan->collective();
    const detail::Call call{.what = what,
                            .root = known.plan->shape().root,
                            .input_counts = known.input_counts,
                            .output_counts = known.output_counts};
    const detail::OperationRequest given = request_of(*state_->group, call, in, out);
    if (in.space == MemorySpace::device || out.space == MemorySpace::device || given.count != known.count ||
        given.total_bytes != known.total_bytes || given.element != known.element) [[unlikely]]
        refuse(given, out.space);
    known.input = in.data;
    known.output = out.data;
    engine_->start(*state_);
}

UNISONO_DEFINITION bool Prepared::poll() {
    if (!in_flight()) return true;
    if (!engine_->poll(state_->number)) return false;
    engine_->release(state_->number);
    return true;
}

UNISONO_DEFINITION void Prepared::wait() {
    if (!in_flight()) return;
    engine_->wait(state_->number, state_->group != nullptr ? state_->group->timeout : 0);
    engine_->release(state_->number);
}

UNISONO_DEFINITION void Prepared::run() {
    check("run");
    runs_ = true;
    engine_->run(*state_);
    runs_ = false;
}

UNISONO_DEFINITION void Prepared::give_up(std::chrono::nanoseconds waited) {
    if (in_flight()) engine_->give_up(state_->number, waited.count());
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
