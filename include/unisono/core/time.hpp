#pragma once

/// \file
/// Time as transports report it: nanoseconds on a clock of the transport (steady time, or a
/// simulator's virtual time).

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <cstdint>
#include <limits>

UNISONO_NAMESPACE_BEGIN

/// Nanoseconds since an arbitrary start; only differences on one transport are meaningful.
using nanoseconds = std::int64_t;

/// Later than any time: no deadline.
inline constexpr nanoseconds never = std::numeric_limits<nanoseconds>::max();

/// Now, by the machine's steady clock.
inline nanoseconds steady_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

namespace detail {

/// For a loop that polls a location which another core will write.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

} // namespace detail

/// now + duration, without overflow: a huge duration means never.
constexpr nanoseconds deadline_after(nanoseconds now, std::chrono::nanoseconds duration) {
    return duration.count() >= never - now ? never : now + duration.count();
}

UNISONO_NAMESPACE_END
