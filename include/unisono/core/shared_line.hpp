#pragma once

/// \file
/// Writes to cache lines that another core reads.

#include "unisono/core/config.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Fetches a line that this rank is about to write and then to read. Otherwise a load that
/// overtakes the store fetches the line for reading, and the store has to fetch it again. A plain
/// prefetch, which compilers emit, fetches it for reading as well.
inline void prefetch_to_write([[maybe_unused]] const void* address) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
    __builtin_prefetch(address, 1);
#endif
}

/// Copies a payload of one of a few usual sizes without a call. A line that another core polls
/// should be written in one burst, else that core takes the line away in between.
[[gnu::always_inline]] inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes == 8) __builtin_memcpy(to, from, 8);
    else if (bytes == 4) __builtin_memcpy(to, from, 4);
    else if (bytes == 16) __builtin_memcpy(to, from, 16);
    else if (bytes != 0) __builtin_memcpy(to, from, bytes);
}

} // namespace detail
UNISONO_NAMESPACE_END
