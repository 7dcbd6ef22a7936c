#pragma once

/// \file
/// Records where the time of a training goes: each rank's activities with their times. A policy of
/// the trainer; without it nothing is measured.
///
///     un::Trainer trainer{world, model, un::Trace{}, un::Sgd{.learning_rate = 0.1}};
///     trainer.fit(data, {.epochs = 1});
///     const un::TraceReport report = un::report_trace(trainer);      //
///     extensions/trainers/trace.hpp
///     if (world.rank() == 0) std::fputs(report.text().c_str(), stderr);
///     un::write_trace(trainer, "trace.json");                        // for Perfetto

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/time.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// An activity of a rank. The time between activities (reading data, the program's own calls) is
/// not recorded.
enum class Activity : std::uint8_t {
    compute,  ///< the model's call; exchanges may run beside it once it reports gradients as ready
    exchange, ///< sums, verdict and publication, as far as they do not overlap with computation
    apply,    ///< clipping and the optimizer
    change,   ///< of an elastic world: from a fault until the training continues; the activities below are its phases
    ending,   ///< the old group ends
    agreeing, ///< its members agree on the members of the next world
    forming,  ///< the new members form a group
    starting, ///< ranks that are behind get the state, and the trainer starts
};
/// The number of activities.
inline constexpr std::size_t activity_count = 8;

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view activity_names[] = {"compute", "exchange", "apply",   "change",
                                                      "ending",  "agreeing", "forming", "starting"};
} // namespace detail

constexpr std::string_view name_of(Activity what) { return detail::activity_names[static_cast<std::size_t>(what)]; }

/// One interval of a rank's time.
struct TraceEvent {
    nanoseconds begin = 0;
    nanoseconds end = 0;
    std::uint64_t update = 0; ///< updates committed before it
    Activity what = Activity::compute;
};

/// A change of an elastic world. Ranks are given by their permanent numbers.
struct TraceChange {
    nanoseconds at = 0; ///< the time at which the training continued
    std::uint64_t epoch = 0;
    std::vector<int> lost = {};
    std::vector<int> joined = {}; ///< ranks that this rank knows to be new: an added rank knows only of itself
};

/// The record of one rank: the first `capacity` events, the sums of all events, and every change of
/// an elastic world. It continues after changes.
class TraceLog {
public:
    TraceLog() = default;
    explicit TraceLog(std::size_t capacity) : capacity_(capacity) { events_.reserve(capacity); }

    void add(const TraceEvent& event) {
        totals_[static_cast<std::size_t>(event.what)] += event.end - event.begin;
        if (first_ == 0) first_ = event.begin;
        last_ = event.end;
        if (events_.size() < capacity_) events_.push_back(event);
        else ++dropped_;
    }
    void add(TraceChange change) { changes_.push_back(std::move(change)); }
    [[nodiscard]] std::span<const TraceEvent> events() const { return {events_.data(), events_.size()}; }
    [[nodiscard]] const std::vector<TraceChange>& changes() const { return changes_; }
    [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
    [[nodiscard]] nanoseconds total(Activity what) const { return totals_[static_cast<std::size_t>(what)]; }
    /// Time from the begin of the first event to the end of the last.
    [[nodiscard]] nanoseconds elapsed() const { return last_ - first_; }
    /// In an elastic world, this rank's permanent number; else -1.
    [[nodiscard]] int number() const { return number_; }
    void set_number(int number) { number_ = number; }

private:
    std::size_t capacity_ = 0;
    int number_ = -1;
    detail::List<TraceEvent> events_;
    std::vector<TraceChange> changes_;
    std::array<nanoseconds, activity_count> totals_ = {};
    nanoseconds first_ = 0, last_ = 0;
    std::uint64_t dropped_ = 0;
};

/// Measures nothing.
struct NoTrace {
    static constexpr std::string_view name = "no trace";
    static constexpr Family family = Family::trace;
    static constexpr bool traces = false;
    friend bool operator==(const NoTrace&, const NoTrace&) = default;
};

/// Each rank records its activities. Memory: 32 bytes per event, allocated when the trainer is
/// made; an update has one event per micro-batch and three more. Cost: eight readings of the clock
/// per update. When the memory is full, only the sums continue.
struct Trace {
    std::int64_t events = 65536; ///< number of events that a rank keeps

    static constexpr std::string_view name = "trace";
    static constexpr Family family = Family::trace;
    static constexpr bool traces = true;
    friend bool operator==(const Trace&, const Trace&) = default;

    void check() const {
        if (events < 0 || events > std::int64_t{1} << 32)
            refuse_input({"Trace.events is ", events, "; expected 0 to 2^32"});
    }
};

namespace detail {

/// Records the time from its construction to its destruction. `log`: null if nothing is recorded.
class TraceSpan {
public:
    TraceSpan(TraceLog* log, Activity what, std::uint64_t update) : log_(log) {
        if (log_ != nullptr) begin(what, update);
    }
    TraceSpan(const TraceSpan&) = delete;
    TraceSpan& operator=(const TraceSpan&) = delete;
    ~TraceSpan() {
        if (log_ != nullptr) end();
    }

private:
    [[gnu::noinline, gnu::cold]] void begin(Activity what, std::uint64_t update) {
        event_.event = {steady_now(), 0, update, what};
    }
    [[gnu::noinline, gnu::cold]] void end() {
        event_.event.end = steady_now();
        log_->add(event_.event);
    }

    TraceLog* log_;
    union Event { ///< written only with a log
        Event() {}
        TraceEvent event;
    } event_;
};

} // namespace detail
UNISONO_NAMESPACE_END
