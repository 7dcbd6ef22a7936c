#pragma once

/// \file
/// The system's threads, locks and conditions, since `<thread>`, `<mutex>` and
/// `<condition_variable>` take a compiler longer than the code that uses them. ThreadSanitizer
/// knows all of these calls.

#include "unisono/core/time.hpp"

#include <pthread.h>
#include <sched.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// While it lives, this thread is not cancelled; pthread_cancel takes effect after it. For waits in
/// destructors and other functions from which nothing may unwind.
class [[nodiscard]] NotCancelled {
public:
    NotCancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    NotCancelled(const NotCancelled&) = delete;
    NotCancelled& operator=(const NotCancelled&) = delete;
    ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

/// As std::mutex.
class Mutex {
public:
    Mutex() = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() noexcept { ::pthread_mutex_lock(&mutex_); }
    void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

private:
    friend class Condition;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a mutex from its construction to its end, except between `unlock` and `lock`.
class [[nodiscard]] Lock {
public:
    explicit Lock(Mutex& mutex) noexcept : mutex_(mutex) { lock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() {
        if (holds_) mutex_.unlock();
    }

    void lock() noexcept {
        mutex_.lock();
        holds_ = true;
    }
    void unlock() noexcept {
        mutex_.unlock();
        holds_ = false;
    }

private:
    friend class Condition;
    Mutex& mutex_;
    bool holds_ = false;
};

/// As std::condition_variable; deadlines are times of `steady_now`.
class Condition {
public:
    Condition() noexcept;
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;
    ~Condition() { ::pthread_cond_destroy(&condition_); }

    void wake_one() noexcept { ::pthread_cond_signal(&condition_); }

    template <class Holds>
    void wait(Lock& lock, const Holds& holds) {
        const NotCancelled whole;
        while (!holds()) ::pthread_cond_wait(&condition_, &lock.mutex_.mutex_);
    }
    /// Waits until `holds()` is true. False if it is not at the deadline.
    template <class Holds>
    bool wait(Lock& lock, nanoseconds deadline, const Holds& holds) {
        while (!holds())
            if (!sleep(lock, deadline)) return holds();
        return true;
    }

private:
    /// False at the deadline, and immediately for a deadline before the machine's start, which no
    /// clock can express.
    bool sleep(Lock& lock, nanoseconds deadline) noexcept;

    pthread_cond_t condition_;
};

/// A thread that its owner joins.
class Thread {
public:
    Thread() = default;
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    ~Thread() { join(); }

    /// Runs `call(of)`, which must not throw, but may end its thread. Returns 0, or the system's
    /// error number, which `no_thread_for` explains.
    [[nodiscard]] int start(void (*call)(void*), void* of) noexcept;
    /// Waits for its end, if it was started.
    void join() noexcept;
    /// True from its start until `join`.
    [[nodiscard]] bool is_started() const noexcept { return call_ != nullptr; }

private:
    static void* run(void* self);

    void (*call_)(void*) = nullptr; ///< null: it does not run
    void* of_ = nullptr;
    pthread_t thread_ = {};
};

inline void yield_core() noexcept { ::sched_yield(); }
void sleep_for(nanoseconds time) noexcept;

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include <cerrno>
#include <ctime>

UNISONO_NAMESPACE_BEGIN
namespace detail {

constexpr timespec timespec_of(nanoseconds time) {
    return {.tv_sec = time / 1'000'000'000, .tv_nsec = time % 1'000'000'000};
}

UNISONO_DEFINITION Condition::Condition() noexcept {
    pthread_condattr_t steady;
    ::pthread_condattr_init(&steady);
    ::pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    ::pthread_cond_init(&condition_, &steady);
    ::pthread_condattr_destroy(&steady);
}

UNISONO_DEFINITION bool Condition::sleep(Lock& lock, nanoseconds deadline) noexcept {
    const NotCancelled whole;
    const timespec until = timespec_of(deadline);
    return ::pthread_cond_timedwait(&condition_, &lock.mutex_.mutex_, &until) == 0;
}

UNISONO_DEFINITION void* Thread::run(void* self) { // not noexcept: pthread_exit unwinds it
    const Thread& thread = *static_cast<Thread*>(self);
    thread.call_(thread.of_);
    return nullptr;
}

UNISONO_DEFINITION int Thread::start(void (*call)(void*), void* of) noexcept {
    call_ = call;
    of_ = of;
    const int failed = ::pthread_create(&thread_, nullptr, run, this);
    if (failed != 0) call_ = nullptr;
    return failed;
}

UNISONO_DEFINITION void Thread::join() noexcept {
    if (call_ == nullptr) return;
    const NotCancelled whole;
    ::pthread_join(thread_, nullptr);
    call_ = nullptr;
}

UNISONO_DEFINITION void sleep_for(nanoseconds time) noexcept {
    const NotCancelled whole;
    timespec left = timespec_of(time);
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
