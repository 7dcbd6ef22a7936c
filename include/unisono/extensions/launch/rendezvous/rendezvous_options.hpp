#pragma once

/// \file
/// The options of a rendezvous.

#include "unisono/core/time.hpp"

#include <chrono>

UNISONO_NAMESPACE_BEGIN

namespace detail {
inline constexpr std::chrono::nanoseconds usual_notice_after = std::chrono::seconds(3);
} // namespace detail

/// Options of a rendezvous.
struct RendezvousOptions {
    std::chrono::nanoseconds timeout = std::chrono::minutes(5); ///< time until all ranks have come
    /// Time for which rank 0 waits for the others at the end.
    std::chrono::nanoseconds linger = std::chrono::minutes(5);
    /// Time after which a waiting rank first reports that on standard error; 0: never.
    /// UNISONO_NOTICE_AFTER takes precedence (waiting_notice.hpp).
    std::chrono::nanoseconds notice_after = detail::usual_notice_after;
    /// Ranks on several hosts may have a rendezvous without a secret: any process that can reach
    /// their ports can take part, which is right only if you trust all machines that can.
    /// UNISONO_TRUSTED_NETWORK=1 has the same effect. See docs/security.md.
    bool trusted_network = false;

    friend bool operator==(const RendezvousOptions&, const RendezvousOptions&) = default;
};

UNISONO_NAMESPACE_END
