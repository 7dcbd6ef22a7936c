#pragma once

/// \file
/// The owner of a file descriptor. If a program runs without its standard streams, a new descriptor
/// may get the number of one of them, and output would go to it. What is here prevents that.

#include "unisono/core/config.hpp"
#include "unisono/core/threads.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

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
