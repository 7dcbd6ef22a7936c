#pragma once

/// \file
/// Waits for file descriptors.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/time.hpp"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

// GNU's strerror_r returns the text, which need not be in `written`. POSIX's, which musl has,
// writes it there and returns 0.
constexpr const char* error_text_of(const char* returned, const char*) { return returned; }
constexpr const char* error_text_of(int, const char* written) { return written; }

inline std::string errno_text(int number) {
    char text[128] = "";
    return error_text_of(strerror_r(number, text, sizeof text), text);
}

/// The argument of poll: the remaining time in milliseconds, rounded up, so that a wait for a
/// deadline never becomes a busy loop.
inline int poll_timeout(nanoseconds until) {
    if (until == never) return -1;
    const nanoseconds left = until - steady_now();
    return left <= 0 ? 0 : static_cast<int>(std::min<nanoseconds>((left + 999'999) / 1'000'000, 3'600'000));
}

/// Waits for one descriptor. Returns false at the deadline.
inline bool wait_for(int fd, short events, nanoseconds until) {
    for (;;) {
        pollfd one{.fd = fd, .events = events, .revents = 0};
        const int ready = ::poll(&one, 1, poll_timeout(until));
        if (ready > 0) return true;
        if (ready == 0 && steady_now() >= until) return false;
        if (ready < 0 && errno != EINTR) return false;
    }
}

/// A descriptor that is readable once the process has ended; invalid if the system has no such
/// descriptors, or if there is no such process.
inline FileDescriptor open_process([[maybe_unused]] int pid) {
#if defined(SYS_pidfd_open)
    return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
    return {};
#endif
}

} // namespace detail
UNISONO_NAMESPACE_END
