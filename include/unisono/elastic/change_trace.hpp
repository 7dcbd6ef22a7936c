#pragma once

/// \file
/// The record of the policy `Trace` over changes of an elastic world: the trainer of the next world
/// continues it, after the change and its phases.

#include "unisono/elastic/world.hpp"
#include "unisono/observe/trace.hpp"

#include <cstdint>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Keeps one rank's record while there is no trainer.
template <bool Traces>
class ChangeTracer {
public:
    /// The trainer with this record ends. One that could not begin, as others were lost meanwhile,
    /// has not got the record of before: that stays here.
    void take(TraceLog& log) {
        if (has_log_) return;
        log_ = std::move(log);
        has_log_ = true;
    }
    /// The next world is there, and its trainer begins. `began`: this rank began to leave the world
    /// before, after `updates` updates.
    void formed(nanoseconds began, const WorldChange& change) {
        interrupted(began);
        changes_.push_back({.at = began, .epoch = change.epoch, .lost = change.lost, .joined = change.joined});
        began_ = began;
        updates_ = change.updates;
        starting_ = began + change.took.count();
        const nanoseconds ended = began + change.ending.count(), agreed = ended + change.agreeing.count();
        add(Activity::ending, began, ended);
        add(Activity::agreeing, ended, agreed);
        add(Activity::meeting, agreed, starting_);
    }
    /// This rank was added as `number`, and its trainer begins.
    void added(std::uint64_t epoch, int number) {
        if (starting_ != 0) return; // it begins again: others were lost meanwhile
        began_ = starting_ = steady_now();
        changes_.push_back({.at = began_, .epoch = epoch, .joined = {number}});
    }
    /// The trainer with the record `next` has begun, on the rank `number`.
    void begun(TraceLog& next, int number) {
        interrupted(steady_now());
        if (std::exchange(has_log_, false)) next = std::move(log_);
        next.set_number(number);
        for (TraceChange& change : std::exchange(changes_, {})) next.add(std::move(change));
        for (const TraceEvent& event : std::exchange(events_, {})) next.add(event);
    }
    [[nodiscard]] const TraceLog& log() const { return log_; }

private:
    void add(Activity what, nanoseconds begin, nanoseconds end) {
        events_.push_back({.begin = begin, .end = end, .update = updates_, .what = what});
    }
    /// Ends the spans of the last change.
    void interrupted(nanoseconds now) {
        if (starting_ == 0) return;
        add(Activity::starting, std::exchange(starting_, 0), now);
        add(Activity::change, began_, now);
    }

    TraceLog log_;
    bool has_log_ = false;
    std::vector<TraceEvent> events_; ///< for the next record
    std::vector<TraceChange> changes_;
    nanoseconds began_ = 0, starting_ = 0; ///< of the change under way; 0: none
    std::uint64_t updates_ = 0;
};
/// Records nothing.
template <>
class ChangeTracer<false> {};

} // namespace detail
UNISONO_NAMESPACE_END
