#pragma once

/// \file
/// The conclusions of a member about another process, from what it observes. Without sockets and
/// clocks, as membership.hpp.
///
/// Only the host of a process can prove that it has ended: its kernel, by a descriptor of the
/// process or by refusing a connection to its port over an address of this same host. All that
/// comes over a network proves nothing: a router that forgets connections, a firewall, a forged
/// packet, and another machine that has taken over the address end and refuse connections of
/// processes that live. A host that has refused for `refused_for` is suspected.

#include "unisono/core/time.hpp"

#include <algorithm>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The conclusion about another process.
enum class Conclusion : std::uint8_t {
    none,    ///< it lives, or is silent
    refuses, ///< its host refuses connections: suspected
    ended,   ///< proven
};

class Evidence {
public:
    static constexpr nanoseconds refused_for = 100'000'000;
    /// When a process ends, the system closes its connections first, and needs a moment for the
    /// rest: at most this, and less than `patience`, since the others may decide without it then.
    static constexpr nanoseconds longest_end = 1'000'000'000;
    /// After a process has ended, the end of its connection comes within this time, if it comes.
    static constexpr nanoseconds longest_way = 100'000'000;

    /// The connection has ended without a goodbye, which proves nothing.
    void connection_ended(nanoseconds now) {
        if (!suspected_) since_ = now;
        suspected_ = true;
    }
    /// The host has answered a new connection, which proves nothing either.
    void answered() { refused_ = never; }
    /// `is_proof`: the address is one of this host, or the user trusts what a network says.
    void refused(bool is_proof, nanoseconds now) {
        if (refused_ == never) refused_ = now;
        if (is_proof) ended_here(true, now);
        refuses_ = now - refused_ >= refused_for;
    }
    /// The kernel has reported the end. `is_near`: its messages pass no cable.
    void ended_here(bool is_near, nanoseconds now) {
        if (ended_) return;
        ended_ = true;
        is_near_ = is_near;
        if (!is_near && !suspected_) wait_until_ = now + longest_way;
    }

    [[nodiscard]] bool is_suspected() const { return suspected_; }
    [[nodiscard]] bool has_ended() const { return ended_; }
    /// The time at which to look again at a process that has ended; `never`: need not.
    [[nodiscard]] nanoseconds due() const { return ended_ && !suspected_ && wait_until_ != 0 ? wait_until_ : never; }
    [[nodiscard]] Conclusion conclusion(nanoseconds now) const {
        if (ended_) return suspected_ || now >= wait_until_ ? Conclusion::ended : Conclusion::none;
        return refuses_ && refused_ != never ? Conclusion::refuses : Conclusion::none;
    }
    /// For a process that has ended: false if it had lived on without its connection, or the
    /// connection has not ended although a cable is between, so that its last messages may not have
    /// arrived.
    [[nodiscard]] bool was_heard(nanoseconds now, nanoseconds patience) const {
        return suspected_ ? now - since_ <= std::min(longest_end, patience) : is_near_;
    }

private:
    bool suspected_ = false, refuses_ = false, ended_ = false, is_near_ = false;
    nanoseconds since_ = 0, refused_ = never, wait_until_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
