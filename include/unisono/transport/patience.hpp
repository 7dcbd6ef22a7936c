#pragma once

/// \file
/// Waits on a host. A rank stays awake for a while, since falling asleep and being woken costs
/// microseconds, and tens of them on a virtual machine. Then it sleeps, since the program's other
/// threads may want the core.

#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"

#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Decides when a waiting rank goes to sleep.
///
/// - A wait begins with a few attempts that do not read the clock. Then every few attempts yield. A
///   yield that returns late proves that another thread wants this core: that wait no longer stays
///   awake, and neither do the next ones, for a time that grows with each repetition.
/// - A wait stays awake for at most `awake()`. Each short sleep lengthens that time by the cost of
///   a wake-up, and each long one halves it. So ranks that wait for one another often and briefly
///   stay awake, and ranks that wait for others to compute do not.
/// - Ranks that outnumber the cores yield from the first attempt on.
class Patience {
public:
    static constexpr nanoseconds least_awake = 20'000;
    static constexpr nanoseconds most_awake = 1'000'000; ///< also the limit of a short wait
    static constexpr nanoseconds cost_of_waking = 50'000;
    static constexpr nanoseconds late_yield = 100'000;

    /// `few`: the number of attempts that take a few microseconds.
    explicit Patience(bool more_ranks_than_cores, std::uint32_t few = 64)
        : at_once_(more_ranks_than_cores ? 0 : few), every_(more_ranks_than_cores ? 1 : few) {}

    /// Waits a moment and returns true; or returns false: it is time to sleep. `attempt` counts
    /// from 0 in each wait.
    [[gnu::always_inline]] inline bool stays_awake(std::uint32_t attempt) {
        if (attempt < at_once_) [[likely]] {
            pause();
            return true;
        }
        return lingers(attempt);
    }
    /// Called after the rank has slept.
    void woke() {
        slept_ = true;
        woke_ = steady_now();
    }

    /// The time that this wait has lasted, as far as it was observed.
    [[nodiscard]] nanoseconds waited() const { return (slept_ ? woke_ : steady_now()) - began_; }
    /// The longest time that a wait stays awake while no other thread wants the core.
    [[nodiscard]] nanoseconds awake() const { return awake_; }

private:
    [[gnu::noinline]] bool lingers(std::uint32_t attempt) {
        if (attempt < few_yields && every_ == 1) {
            yield_core();
            return true;
        }
        const bool is_first = !watched_ || attempt <= last_attempt_;
        last_attempt_ = attempt;
        if (!is_first && attempt % every_ != 0) {
            pause();
            return true;
        }
        const nanoseconds before = steady_now();
        if (is_first) begin(before);
        if (slept_ || before < wanted_until_ || before - began_ >= awake_) return false;
        if (is_first && every_ != 1) {
            pause();
            return true;
        }
        yield_core();
        const nanoseconds after = steady_now();
        if (after - before < late_yield) return true;
        wanted_for_ = before - wanted_until_ < 4 * wanted_for_ ? std::min(2 * wanted_for_, most_wanted) : least_wanted;
        wanted_until_ = after + wanted_for_;
        return false;
    }

    /// Begins a new wait, and learns from the last one.
    void begin(nanoseconds now) {
        if (slept_ && began_ >= wanted_until_) {
            const bool was_short = woke_ - began_ < most_awake;
            awake_ = was_short ? std::min(awake_ + cost_of_waking, most_awake) : std::max(awake_ / 2, least_awake);
        }
        watched_ = true;
        slept_ = false;
        began_ = now;
    }

    static constexpr std::uint32_t few_yields = 8;
    static constexpr nanoseconds least_wanted = 5'000'000;
    static constexpr nanoseconds most_wanted = 500'000'000;

    std::uint32_t at_once_;
    std::uint32_t every_;
    std::uint32_t last_attempt_ = 0;
    bool watched_ = false; ///< a wait has begun
    bool slept_ = false;   ///< in this wait
    nanoseconds awake_ = 2 * cost_of_waking;
    nanoseconds began_ = 0;
    nanoseconds woke_ = 0;
    nanoseconds wanted_until_ = 0; ///< until this time the rank assumes that other threads want the core
    nanoseconds wanted_for_ = least_wanted;
};

/// The time to sleep before the next look at a condition that wakes no rank, after a wait of
/// `waited`. The sleep is waited / 8, from 50 us to 1 ms, or waited / 128, up to 4 ms, whichever is
/// longer. A schedule of many rounds is late once per round, so a long wait must not be late by an
/// eighth. A look costs a network's library up to 100 us, which would be a tenth of a core if it
/// came each millisecond.
[[nodiscard]] inline nanoseconds sleep_after(nanoseconds waited) {
    const nanoseconds briefly = clamped<nanoseconds>(waited / 8, 50'000, 1'000'000);
    return std::max(briefly, std::min<nanoseconds>(waited / 128, 4'000'000));
}

/// Waits a moment for a condition that wakes no rank.
inline void idle_on_host(Patience& patience, std::uint32_t attempt, nanoseconds until) {
    if (patience.stays_awake(attempt)) return;
    const nanoseconds wished = sleep_after(patience.waited());
    const nanoseconds left = until == never ? wished : std::min(wished, until - steady_now());
    if (left > 0) sleep_for(left);
    patience.woke();
}

} // namespace detail
UNISONO_NAMESPACE_END
