#pragma once

/// \file
/// The owner of a file descriptor, and waits for descriptors. If a program runs without its
/// standard streams, a new descriptor may get the number of one of them, and output would go to it.
/// What is here prevents that.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The same open file under a descriptor above those of the standard streams, closed on exec. Takes
/// over `descriptor`, which may be -1. Returns -1, with the reason in errno, if there is no other
/// descriptor.
int above_standard_streams(int descriptor) noexcept;

/// Owns a file descriptor above those of the standard streams. Keeps errno if there is none.
class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) : fd_(above_standard_streams(fd)) {}
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileDescriptor() {
        if (fd_ < 0) return;
        const NotCancelled whole; // close may end a cancelled thread
        ::close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] bool valid() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void close() { const FileDescriptor closed(std::move(*this)); }

private:
    int fd_ = -1;
};

/// `std::fopen` for writing, with such a descriptor. `mode`: "w" or "a". Does not wait until a
/// process reads a pipe. Null, with the reason in errno, if the file cannot be opened: ENXIO if it
/// is a pipe without a reader.
std::FILE* open_above_standard_streams(const char* path, const char* mode) noexcept;

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

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION int above_standard_streams(int descriptor) noexcept {
    if (descriptor < 0 || descriptor > STDERR_FILENO) [[likely]]
        return descriptor;
    const NotCancelled whole;
    const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int why = errno;
    ::close(descriptor);
    errno = why;
    return moved;
}

UNISONO_DEFINITION std::FILE* open_above_standard_streams(const char* path, const char* mode) noexcept {
    const NotCancelled whole;
    const int begin = mode[0] == 'a' ? O_APPEND : O_TRUNC;
    FileDescriptor file(::open(path, O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | begin, 0666));
    if (!file.valid()) return nullptr;
    // Only the opening must not wait.
    if (const int flags = ::fcntl(file.get(), F_GETFL); flags >= 0) ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK);
    std::FILE* const stream = ::fdopen(file.get(), mode);
    if (stream != nullptr) file.release();
    return stream;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
