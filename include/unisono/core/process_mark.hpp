#pragma once

/// \file
/// Tells whether two ranks are threads of one process.

#include "unisono/core/config.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/time.hpp"

#include <atomic>
#include <cstdint>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Distinguishes processes, including forked ones and those in different name spaces.
struct ProcessMark {
    std::uint64_t pid = static_cast<std::uint64_t>(::getpid());
    std::uint64_t chance = drawn(pid);
    friend bool operator==(const ProcessMark&, const ProcessMark&) = default;

private:
    /// Half of it is the pid, so that a forked process draws another number.
    static std::uint64_t drawn(std::uint64_t pid) {
        static std::atomic<std::uint64_t> kept = 0;
        std::uint64_t found = kept.load(std::memory_order_relaxed);
        while (found >> 32 != (pid & 0xffffffffu)) {
            const std::uint64_t drawn =
                scrambled(static_cast<std::uint64_t>(steady_now()) ^ reinterpret_cast<std::uintptr_t>(&kept));
            const std::uint64_t next = pid << 32 | (drawn & 0xffffffffu);
            if (kept.compare_exchange_weak(found, next, std::memory_order_relaxed)) return next;
        }
        return found;
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
