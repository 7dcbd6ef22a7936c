#pragma once

/// \file
/// Duties of an elastic trainer when its world changes.
///
/// - `ChangeTracer` keeps the record of the policy `Trace` over changes. The trainer of the next
///   world continues the record, after the change and its phases.
/// - `Probation`: added ranks may train something else: another model, other policies, other calls.
///   If ranks disagree (`mismatch`), those that were added last leave, and the others continue
///   without them. If they disagree again, those that were added before leave, and so on. The ranks
///   of the first world report the difference, as without elastic worlds.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/elastic/world.hpp"
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
    /// Takes the record of a trainer that ends. If a trainer could not begin because ranks were
    /// lost, it has not received the earlier record, which stays here.
    void take(TraceLog& log) {
        if (has_log_) return;
        log_ = std::move(log);
        has_log_ = true;
    }
    /// Called when the next world has been formed and its trainer begins. `began`: when this rank
    /// began to leave the last world, after `updates` updates.
    void formed(nanoseconds began, const WorldChange& change) {
        interrupted(began);
        changes_.push_back({.at = began, .epoch = change.epoch, .lost = change.lost, .joined = change.joined});
        began_ = began;
        updates_ = change.updates;
        starting_ = began + change.took.count();
        const nanoseconds ended = began + change.ending.count(), agreed = ended + change.agreeing.count();
        add(Activity::ending, began, ended);
        add(Activity::agreeing, ended, agreed);
        add(Activity::forming, agreed, starting_);
    }
    /// Called when this rank was added as `number` and its trainer begins.
    void added(std::uint64_t epoch, int number) {
        if (starting_ != 0) return; // the trainer begins again, because ranks were lost in the meantime
        began_ = starting_ = steady_now();
        changes_.push_back({.at = began_, .epoch = epoch, .joined = {number}});
    }
    /// Called when the trainer with the record `next` has begun, on rank `number`.
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
    std::vector<TraceEvent> events_; ///< events for the next record
    std::vector<TraceChange> changes_;
    nanoseconds began_ = 0, starting_ = 0; ///< times of the change in progress; 0: none
    std::uint64_t updates_ = 0;
};
/// Records nothing.
template <>
class ChangeTracer<false> {};

class Probation {
public:
    /// `was_added`: to a running world. `last`: the highest number of a member of this rank's first
    /// world. Ranks that are added later have higher ones.
    Probation(bool was_added, int last) : was_added_(was_added), last_(last) {}

    /// True if the world ends because ranks disagree, and this rank continues without those that
    /// were added later. A rank that was added, and has none after it, leaves.
    template <class World>
    bool ends(World& world, const error& failed) const {
        if (failed.code() != ErrorCode::mismatch || world.rank() < 0) return false;
        if (world.members().back() > last_) {
            world.abort({.code = ErrorCode::mismatch,
                         .rank = failed.rank(),
                         .peer = failed.peer(),
                         .operation = failed.operation(),
                         .sequence = failed.sequence(),
                         .message = concat({"the ranks that were added last leave again: ", failed.why().message})});
            return true;
        }
        if (was_added_) world.leave();
        return false;
    }

private:
    bool was_added_;
    int last_;
};

} // namespace detail
UNISONO_NAMESPACE_END
