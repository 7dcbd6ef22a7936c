#pragma once

/// \file
/// If a program runs without its standard streams, a new descriptor may take the number of one of
/// them, and output would go there.

#include "unisono/core/config.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The same open file by a descriptor above those of the standard streams, closed on exec; takes
/// `descriptor`, which may be none. -1 where there is no other, and errno says why.
int above_standard_streams(int descriptor) noexcept;

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION int above_standard_streams(int descriptor) noexcept {
    if (descriptor < 0 || descriptor > STDERR_FILENO) [[likely]]
        return descriptor;
    const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int why = errno;
    ::close(descriptor);
    errno = why;
    return moved;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
