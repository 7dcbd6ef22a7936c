#pragma once

/// \file
/// Wakes ranks that share memory.
///
/// A rank that is about to sleep sets its bell, makes every other rank pass a fence, and checks its
/// condition once more. That check sees a write before the fence; a writer after the fence sees the
/// bell, and rings it. A writer pays one read of a line that rarely changes: the number of bells
/// that are set.

#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/memory/channel.hpp"
#include "unisono/transport/patience.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The bell of one rank. Zeroed memory is a bell that is not set.
struct alignas(128) MemoryBell {
    std::atomic<std::uint32_t> set{0};
};

/// The number of set bells of a world. Zeroed memory: none.
struct alignas(128) SetBells {
    std::atomic<std::uint32_t> count{0};

    /// True if a rank may sleep. A rank that sets a bell which is not yet counted here sees
    /// everything that this rank wrote before.
    [[gnu::always_inline]] inline bool any(const AsymmetricFence& fence) const noexcept {
        fence.pass_often();
        return count.load(std::memory_order_relaxed) != 0;
    }

    /// Called by the bell's owner before it checks once more and sleeps.
    void set(MemoryBell& bell, const AsymmetricFence& fence) noexcept {
        count.fetch_add(1, std::memory_order_seq_cst);
        if (bell.set.exchange(1, std::memory_order_seq_cst) != 0) count.fetch_sub(1, std::memory_order_relaxed);
        full_fence();
        fence.pay();
    }
    /// Called when the bell's owner is awake. True if the bell was set.
    bool clear(MemoryBell& bell) noexcept {
        if (bell.set.load(std::memory_order_relaxed) == 0 || bell.set.exchange(0, std::memory_order_acq_rel) == 0)
            return false;
        count.fetch_sub(1, std::memory_order_relaxed);
        return true;
    }
    /// Wakes the owner if its bell is set.
    void ring(MemoryBell& bell) noexcept {
        if (!clear(bell)) return;
#if defined(__linux__)
        ::syscall(SYS_futex, &bell.set, FUTEX_WAKE, 1, nullptr, nullptr, 0);
#endif
    }

    /// Sleeps until the bell is rung; false after `longest` without a ring. Spurious wake-ups are
    /// possible.
    static bool sleep(MemoryBell& bell, nanoseconds longest) noexcept {
#if defined(__linux__)
        const timespec time{.tv_sec = longest / 1'000'000'000, .tv_nsec = longest % 1'000'000'000};
        return ::syscall(SYS_futex, &bell.set, FUTEX_WAIT, 1, &time, nullptr, 0) == 0 || errno != ETIMEDOUT;
#else
        sleep_for(std::min<nanoseconds>(longest, 50'000));
        return bell.set.load(std::memory_order_relaxed) == 0;
#endif
    }
};

/// The waiting of a rank whose bell others can ring.
class BellSleeper {
public:
    explicit BellSleeper(bool more_ranks_than_cores) : patience_(more_ranks_than_cores) {}

    /// `World` has `bell(rank)`, `set_bells()` and `fence()`.
    template <class World>
    [[gnu::always_inline]] inline void idle(World& world, int rank, std::uint32_t attempt, nanoseconds until) {
        if (attempt == 0 && has_set_) [[unlikely]]
            wake_up(world, rank);
        if (patience_.stays_awake(attempt)) return;
        sleep(world, rank, until);
    }

private:
    /// Clears the bell: the last wait ended while it was set.
    template <class World>
    [[gnu::noinline]] void wake_up(World& world, int rank) {
        world.set_bells().clear(world.bell(rank));
        has_set_ = false;
    }

    template <class World>
    [[gnu::noinline]] void sleep(World& world, int rank, nanoseconds until) {
        MemoryBell& bell = world.bell(rank);
        if (bell.set.load(std::memory_order_relaxed) == 0) {
            world.set_bells().set(bell, world.fence());
            has_set_ = true;
            return; // to check once more
        }
        // Some events ring no bell: a peer dies or runs another operation, or a control plane
        // learns of a fault.
        const nanoseconds wished = clamped<nanoseconds>(patience_.waited(), 1'000'000, 5'000'000);
        const nanoseconds left = until == never ? wished : std::min(wished, until - steady_now());
        if (left > 0) SetBells::sleep(bell, left);
        patience_.woke();
    }

    Patience patience_;
    bool has_set_ = false; ///< since this rank slept; another rank may have rung it
};

} // namespace detail
UNISONO_NAMESPACE_END
