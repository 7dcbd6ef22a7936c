#pragma once

/// \file
/// The turns of the threads of a simulated world. A mutex passes the shared state from one to the
/// next.

#include "unisono/core/config.hpp"

#include <condition_variable>
#include <mutex>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class SimulatedTurns {
public:
    explicit SimulatedTurns(int ranks) : expected_(ranks), mine_(static_cast<std::size_t>(ranks)) {}

    /// Adds a rank's thread, and returns when it is its turn. The last thread to enter calls
    /// `begin(ranks)`, which returns the rank that runs first.
    template <class Begin>
    void enter(int rank, Begin begin) {
        std::unique_lock lock(mutex_);
        if (++entered_ == expected_) give(begin(expected_));
        wait(lock, rank);
    }

    /// Says that no thread will come for `rank` and the ranks after it; false if all have come
    /// already.
    template <class Begin>
    bool expect_only(int rank, Begin begin) {
        const std::lock_guard lock(mutex_);
        if (entered_ == expected_) return false;
        expected_ = rank;
        if (entered_ == expected_ && expected_ != 0) give(begin(expected_));
        return true;
    }

    /// Lets `next` run (-1: no rank is left), and makes `rank` wait for its next turn.
    void pass(int next, int rank) {
        std::unique_lock lock(mutex_);
        give(next);
        wait(lock, rank);
    }
    void pass_for_good(int next) {
        const std::lock_guard lock(mutex_);
        give(next);
    }

private:
    void give(int rank) {
        running_ = rank;
        if (rank >= 0) mine_[static_cast<std::size_t>(rank)].notify_one();
    }
    void wait(std::unique_lock<std::mutex>& lock, int rank) {
        mine_[static_cast<std::size_t>(rank)].wait(lock, [&] { return running_ == rank; });
    }

    std::mutex mutex_;
    int running_ = -1;
    int entered_ = 0;
    int expected_;
    std::vector<std::condition_variable> mine_;
};

} // namespace detail
UNISONO_NAMESPACE_END
