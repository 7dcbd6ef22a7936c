#include "callbacks.hpp"

#include "process.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace unisono_torch {
namespace {

constexpr un::nanoseconds shortest_patience = 1'000'000;
constexpr std::size_t patient_from = 8;      ///< callbacks at a time; for each further one the patience doubles
constexpr std::chrono::seconds idle_for{10}; ///< then a thread without work ends

thread_local int level_here = 0;

class Threads {
public:
    void run(int level, std::function<void()> callback) {
        {
            const std::lock_guard guard(mutex_);
            queue_.push_back({level, std::move(callback)});
            if (have_watcher()) {
                news_.notify_one();
                return;
            }
            if (!running_.empty()) return; // a thread that ends its callback takes it
        }
        work();
    }

    bool await(un::nanoseconds until) {
        std::unique_lock lock(mutex_);
        return over_.wait_until(lock, time_point(until), [&] { return queue_.empty() && running_.empty(); });
    }

private:
    struct Entry {
        int level;
        std::function<void()> callback;
    };

    static std::chrono::steady_clock::time_point time_point(un::nanoseconds at) {
        return std::chrono::steady_clock::now() + std::chrono::nanoseconds(at - un::steady_now());
    }

    /// With the lock held: whether a thread waits for turns, or has been made to.
    bool have_watcher() {
        if (watchers_ > 0) return true;
        try {
            std::thread([this] { watch(); }).detach();
        } catch (const std::system_error&) {
            return false;
        }
        ++watchers_;
        return true;
    }

    /// The first entry whose turn it is.
    [[nodiscard]] std::deque<Entry>::iterator next() {
        if (running_.empty() || un::steady_now() >= turn()) return queue_.begin();
        return std::find_if(queue_.begin(), queue_.end(),
                            [&](const Entry& entry) { return entry.level > *running_.rbegin(); });
    }
    /// When the eldest entry may begin although others run.
    [[nodiscard]] un::nanoseconds turn() const {
        const std::size_t more = running_.size() < patient_from ? 0 : running_.size() - patient_from + 1;
        return begun_ + (shortest_patience << std::min<std::size_t>(more, 20));
    }

    void begin(std::unique_lock<std::mutex>& lock, std::deque<Entry>::iterator entry) {
        const int level = entry->level;
        std::function<void()> callback = std::move(entry->callback);
        queue_.erase(entry);
        const auto mine = running_.insert(level);
        begun_ = un::steady_now();
        if (!queue_.empty() && have_watcher()) news_.notify_one();
        lock.unlock();
        const int before = std::exchange(level_here, level + 1);
        callback();
        callback = nullptr; // what it holds ends without the lock
        level_here = before;
        lock.lock();
        running_.erase(mine);
        news_.notify_one();
        if (queue_.empty() && running_.empty()) over_.notify_all();
    }

    void watch() {
        ::pthread_setname_np(::pthread_self(), "unisono-future"); // otherwise that of the thread that made it
        std::unique_lock lock(mutex_);
        for (;;) {
            if (queue_.empty()) {
                if (!news_.wait_for(lock, idle_for, [&] { return !queue_.empty(); })) break;
            }
            const auto entry = next();
            if (entry == queue_.end()) {
                news_.wait_until(lock, time_point(turn()));
                continue;
            }
            --watchers_;
            begin(lock, entry);
            ++watchers_;
        }
        --watchers_;
    }

    /// Without a thread of its own.
    void work() {
        std::unique_lock lock(mutex_);
        while (!queue_.empty()) begin(lock, queue_.begin());
    }

    std::mutex mutex_;
    std::condition_variable news_;
    std::condition_variable over_;
    std::deque<Entry> queue_;
    std::multiset<int> running_; ///< levels of callbacks that run
    un::nanoseconds begun_ = 0;  ///< when the latest of them began
    std::size_t watchers_ = 0;   ///< threads that run no callback
};

} // namespace

void run_callback(int level, std::function<void()> callback) {
    of_this_process<Threads>().run(level, std::move(callback));
}

int callback_level() { return level_here; }

bool await_callbacks(un::nanoseconds until) { return of_this_process<Threads>().await(until); }

} // namespace unisono_torch
