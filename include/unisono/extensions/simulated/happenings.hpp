#pragma once

/// \file
/// The events of a simulated world as its clock advances: messages arrive, timers expire, ranks
/// crash. It finds the next rank that has work; simulated/simulated.hpp runs that rank.

#include "unisono/core/text.hpp"
#include "unisono/extensions/simulated/network.hpp"
#include "unisono/extensions/simulated/state.hpp"

#include <deque>
#include <functional>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class SimulatedHappenings : public SimulatedState {
public:
    SimulatedHappenings(int size, SimulationOptions options)
        : SimulatedState(size, std::move(options)), network_(options_, size) {
        plan_misfortunes();
    }

    /// The next rank for which an event has happened, up to a time; -1 if there is none.
    int next_ready(nanoseconds until = never) {
        for (;;) {
            while (!ready_.empty()) {
                const int rank = ready_.front();
                ready_.pop_front();
                Rank& found = at(rank);
                found.queued = false;
                if (!found.gone) return rank;
            }
            if (events_.empty()) return -1;
            if (events_.next_time() > until) {
                clock_ = std::max(clock_, until);
                return -1;
            }
            pass_time();
        }
    }

    /// Calls `action()` at that time, on the thread of the rank that advances the clock then.
    void later(nanoseconds time, std::function<void()> action) {
        std::uint32_t index = static_cast<std::uint32_t>(actions_.size());
        if (free_actions_.empty()) actions_.emplace_back();
        else {
            index = free_actions_.back();
            free_actions_.pop_back();
        }
        actions_[index] = std::move(action);
        events_.push(std::max(time, clock_), SimulatedEvent::Kind::action, index);
    }
    /// Sets a function that is called for each rank when it crashes.
    void on_crash(std::function<void(int)> call) { on_crash_ = std::move(call); }
    /// Crashes a rank now, instead of at a time from the options.
    void crash_now(int rank) { crash(rank); }
    /// Notes that an event has happened for which the rank may wait.
    void wake(int rank) {
        Rank& me = at(rank);
        if (me.busy_until > clock_) me.wake_at = std::min(me.wake_at, me.busy_until); // else its timer forgets that
        make_ready(rank);
    }
    /// The arrival of a small item that is no message of a group; and of such an item of `bytes`
    /// bytes.
    [[nodiscard]] nanoseconds small_arrival(int from, int to) { return network_.small_arrival(from, to, now(from)); }
    [[nodiscard]] nanoseconds arrival_of(int from, int to, std::size_t bytes) {
        return network_.arrival_of(from, to, bytes, now(from));
    }

    /// Moves the rank to another group of ranks, whose messages carry this number. Drops the
    /// messages of earlier groups, and keeps those that later groups have sent already.
    void enter_view(int rank, std::uint64_t view) {
        Rank& me = at(rank);
        me.view = view;
        for (const Delivery& one : me.inbox)
            if (one.message != departed) messages_.release(one.message);
        me.inbox.clear();
        me.matches.erase_if([&](const SimulatedMatches::Entry& entry) {
            if (entry.kind == SimulatedMatches::Kind::receive) return true;
            const auto index = static_cast<std::uint32_t>(entry.value);
            const bool old = messages_[index].view < view;
            if (old) messages_.release(index);
            return old;
        });
    }
    /// True if no partition separates the two ranks now.
    [[nodiscard]] bool reaches(int from, int to) const { return network_.when_joined(from, to, clock_) == clock_; }
    [[nodiscard]] bool has_messages_under_way(int rank) const { return at(rank).under_way != 0; }

protected:
    ~SimulatedHappenings() = default;

    /// Advances the clock to the next event, and runs all events of that moment.
    void pass_time() {
        clock_ = std::max(clock_, events_.next_time());
        do {
            happen(events_.pop());
        } while (!events_.empty() && events_.next_time() <= clock_);
    }

    void happen(const SimulatedEvent& event) {
        const auto subject = static_cast<int>(event.subject);
        switch (event.kind) {
        case SimulatedEvent::Kind::departure: {
            const SimulatedMessage& message = messages_[event.subject];
            const int from = message.from;
            if (message.view == at(from).view) at(from).inbox.push_back({message.token, departed});
            if (message.acknowledgement) messages_.release(event.subject);
            return make_ready(from);
        }
        case SimulatedEvent::Kind::arrival: return arrive(event.subject);
        case SimulatedEvent::Kind::action: {
            const std::function<void()> action = std::exchange(actions_[event.subject], nullptr);
            free_actions_.push_back(event.subject);
            return action();
        }
        case SimulatedEvent::Kind::timer: return look_at_the_clock(subject, event.time);
        case SimulatedEvent::Kind::crash: return crash(options_.crashes[event.subject].rank);
        case SimulatedEvent::Kind::detection: return detect(subject);
        case SimulatedEvent::Kind::stop: {
            const RankStop& stop = options_.stops[event.subject];
            record(TraceKind::stopped, stop.rank, stop.rank, 0, {});
            Rank& stopped = at(stop.rank);
            stopped.busy_until = std::max(stopped.busy_until, clock_) + stop.for_ns;
            return;
        }
        }
    }

    void arrive(std::uint32_t index) {
        SimulatedMessage& message = messages_[index];
        if (message.lost) {
            --at(message.from).under_way;
            note_loss(message.from, message.to);
            record(TraceKind::lost, message.from, message.to, message.envelope.bytes, message.envelope.tag);
            return messages_.release(index);
        }
        if (!message.in) {
            message.in = true;
            const nanoseconds complete = network_.receive(message, clock_);
            if (complete > clock_) return events_.push(complete, SimulatedEvent::Kind::arrival, index);
        }
        --at(message.from).under_way;
        Rank& receiver = at(message.to);
        record(TraceKind::arrived, message.from, message.to, message.envelope.bytes, message.envelope.tag);
        if (receiver.gone || receiver.statistics.crashed || message.view < receiver.view)
            return messages_.release(index);
        std::uint64_t token = 0;
        if (receiver.matches.take_or_put(SimulatedMatches::Kind::receive, message.from, message.envelope.tag, token,
                                         index)) {
            receiver.inbox.push_back({token, index});
            make_ready(message.to);
        }
    }

    void crash(int rank) {
        Rank& victim = at(rank);
        if (victim.gone || victim.statistics.crashed) return;
        record(TraceKind::crashed, rank, rank, 0, {});
        victim.statistics.crashed = true;
        victim.statistics.finished_at = clock_;
        if (on_crash_) on_crash_(rank);
        if (options_.detection_ns != never)
            events_.push(clock_ + options_.detection_ns, SimulatedEvent::Kind::detection,
                         static_cast<std::uint32_t>(rank));
        make_ready(rank); // its thread has to end
    }

    void detect(int crashed) {
        at(crashed).left = true;
        if (has_fault_ != 0) return;
        int witness = 0;
        while (witness < size_ && (at(witness).gone || at(witness).statistics.crashed)) ++witness;
        if (witness == size_) return;
        spread({.code = ErrorCode::peer_lost,
                .rank = witness,
                .peer = crashed,
                .message = concat({"rank ", crashed, " crashed at ", at(crashed).statistics.finished_at, " ns"})});
    }

    /// Handles a rank's timer, which may have been set for a wait that is over.
    void look_at_the_clock(int rank, nanoseconds time) {
        Rank& me = at(rank);
        if (me.gone || me.timer_at != time) return;
        me.timer_at = never;
        if (me.busy_until > clock_) return arm(rank, me.busy_until);
        if (me.computes || has_fault_ != 0 || !me.inbox.empty() || me.wake_at <= clock_) return make_ready(rank);
        if (me.wake_at != never) arm(rank, me.wake_at);
    }

    void arm(int rank, nanoseconds time) {
        Rank& me = at(rank);
        if (me.timer_at <= time) return; // the earlier timer leads here again
        me.timer_at = time;
        events_.push(time, SimulatedEvent::Kind::timer, static_cast<std::uint32_t>(rank));
    }

    void make_ready(int rank) {
        Rank& me = at(rank);
        if (me.queued || me.gone) return;
        if (!me.statistics.crashed && me.busy_until > clock_) return arm(rank, me.busy_until);
        me.queued = true;
        ready_.push_back(rank);
    }

    void spread(Fault fault) {
        fault_ = std::move(fault);
        has_fault_ = 1;
        for (int rank = 0; rank < size_; ++rank)
            if (!at(rank).computes) make_ready(rank);
    }

    SimulatedNetwork network_;
    SimulatedMessages messages_;
    SimulatedEvents events_;
    std::deque<int> ready_;

private:
    std::vector<std::function<void()>> actions_;
    std::vector<std::uint32_t> free_actions_;
    std::function<void(int)> on_crash_;

    void plan_misfortunes() {
        CounterRandom chance(options_.seed, 3);
        std::vector<int> candidates = options_.ranks_without_crash(size_);
        for (int i = 0; i < options_.random_crashes; ++i) {
            const std::size_t pick = chance() % candidates.size();
            const auto limit = static_cast<std::uint64_t>(options_.random_crashes_before_ns) + 1;
            const std::uint64_t high = chance();
            options_.crashes.push_back({candidates[pick], static_cast<nanoseconds>(((high << 32) | chance()) % limit)});
            candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(pick));
        }
        for (std::size_t i = 0; i < options_.crashes.size(); ++i)
            events_.push(options_.crashes[i].at_ns, SimulatedEvent::Kind::crash, static_cast<std::uint32_t>(i));
        for (std::size_t i = 0; i < options_.stops.size(); ++i)
            events_.push(options_.stops[i].at_ns, SimulatedEvent::Kind::stop, static_cast<std::uint32_t>(i));
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
