#pragma once

// A barrier for the threads of a measurement, and the timing of work that they do together.

#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <unistd.h>

namespace bench {

/// A barrier for measurements: threads spin, and yield if there are more threads than cores.
class Meeting {
public:
    explicit Meeting(int threads)
        : threads_(threads), yields_(static_cast<std::size_t>(threads) > cores().size()),
          own_(std::make_unique<Place[]>(static_cast<std::size_t>(threads))), places_(own_.get()) {}

    /// For processes: in a page of zeros that all of them map, for at most 32.
    Meeting(int processes, void* page)
        : threads_(processes), yields_(static_cast<std::size_t>(processes) > cores().size()),
          places_(static_cast<Place*>(page)) {}
    static constexpr std::size_t page_bytes = 4096;

    /// If cores are short, threads that wait `asleep` leave them to threads that still work. Those
    /// may sleep themselves, and would lose their turns to a waiting thread that yields.
    void wait(int me, bool asleep = false) {
        const std::uint64_t turn = places_[static_cast<std::size_t>(me)].turn.load(std::memory_order_relaxed) + 1;
        places_[static_cast<std::size_t>(me)].turn.store(turn, std::memory_order_release);
        for (int other = 0; other < threads_; ++other) {
            while (places_[static_cast<std::size_t>(other)].turn.load(std::memory_order_acquire) < turn) {
                if (yields_ && asleep) usleep(20);
                else if (yields_) sched_yield();
            }
        }
    }

    /// Seconds from the first thread's beginning of `work` to the last thread's end; the same on
    /// every thread.
    template <class Work>
    double time(int me, const Work& work) {
        Place& place = places_[static_cast<std::size_t>(me)];
        wait(me);
        place.begin = now_s();
        work();
        place.end = now_s();
        wait(me);
        return span_of_all(me);
    }

    /// As `time`, but no rank begins before a moment that all ranks know, so it does not matter
    /// which one left the barrier first. If there are more threads than cores, they begin when they
    /// can. (S. Hunold, A. Carpen-Amarie, "Reproducible MPI benchmarking is still not as easy as
    /// you think", TPDS 2016)
    template <class Work>
    double time_together(int me, const Work& work) {
        constexpr double enough_to_be_told = 2e-6;
        Place& place = places_[static_cast<std::size_t>(me)];
        wait(me);
        if (!yields_) {
            if (me == 0) places_[0].told = now_s() + enough_to_be_told;
            wait(me);
            while (now_s() < places_[0].told) {
            }
            place.begin = places_[0].told;
        } else {
            place.begin = now_s();
        }
        work();
        place.end = now_s();
        wait(me, true);
        return span_of_all(me);
    }

    /// A number that the others see, for checks.
    void mark(int me, std::uint64_t number) {
        places_[static_cast<std::size_t>(me)].mark.store(number, std::memory_order_release);
    }
    [[nodiscard]] std::uint64_t marked(int other) const {
        return places_[static_cast<std::size_t>(other)].mark.load(std::memory_order_acquire);
    }

private:
    /// From the first beginning to the last end. All wait until all have read them.
    double span_of_all(int me) {
        double begin = places_[0].begin;
        double end = places_[0].end;
        for (int other = 1; other < threads_; ++other) {
            begin = std::min(begin, places_[static_cast<std::size_t>(other)].begin);
            end = std::max(end, places_[static_cast<std::size_t>(other)].end);
        }
        wait(me);
        return end - begin;
    }

    struct alignas(128) Place {
        std::atomic<std::uint64_t> turn{0};
        double begin = 0;
        double end = 0;
        double told = 0;
        std::atomic<std::uint64_t> mark{0};
    };
    int threads_;
    bool yields_;
    std::unique_ptr<Place[]> own_;
    Place* places_;
};

/// The barriers to which an all_reduce of 8 bytes is compared, for two threads. On one line: the
/// last thread to arrive reverses the sense. (J. Mellor-Crummey, M. Scott, "Algorithms for scalable
/// synchronization", TOCS 1991, section 3.1)
class CentralBarrier {
public:
    void wait() {
        const std::uint32_t sense = sense_.load(std::memory_order_relaxed);
        if (come_.fetch_add(1, std::memory_order_acq_rel) == 1) {
            come_.store(0, std::memory_order_relaxed);
            sense_.store(sense + 1, std::memory_order_release);
            return;
        }
        while (sense_.load(std::memory_order_acquire) == sense) __builtin_ia32_pause();
    }

private:
    alignas(128) std::atomic<std::uint32_t> come_{0};
    std::atomic<std::uint32_t> sense_{0};
};

/// On two lines: each thread counts in its own and waits for the other's.
class PairBarrier {
public:
    void wait(int me) {
        const std::uint64_t turn = lines_[me].turn.load(std::memory_order_relaxed) + 1;
        lines_[me].turn.store(turn, std::memory_order_release);
        while (lines_[1 - me].turn.load(std::memory_order_acquire) < turn) __builtin_ia32_pause();
    }

private:
    struct alignas(128) Line {
        std::atomic<std::uint64_t> turn{0};
    };
    Line lines_[2];
};

} // namespace bench
