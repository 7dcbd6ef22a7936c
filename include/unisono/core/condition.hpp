#pragma once

/// \file
/// A bounded sleep on a condition variable.

#include "unisono/core/time.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Sleeps until the condition is notified, at most for the given time; spurious wake-ups are
/// possible. Uses the steady clock, so steps of the system's clock have no effect. ThreadSanitizer
/// of g++ 12 and clang 14 does not know such waits, and gets the system's clock.
inline void sleep_on(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, nanoseconds longest) {
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::nanoseconds(longest));
#if UNISONO_UNDER_THREAD_SANITIZER
    condition.wait_until(lock, std::chrono::system_clock::now() + time);
#else
    condition.wait_until(lock, std::chrono::steady_clock::now() + time);
#endif
}

} // namespace detail
UNISONO_NAMESPACE_END
