#pragma once

/// \file
/// What a member may conclude about another process from what it observes. Without sockets and
/// clocks, as membership.hpp.
///
/// Only the host of a process can prove that it has ended: its kernel, by a descriptor of the
/// process or by refusing a connection to its port over an address of this same host. All that
/// comes over a network proves nothing: a router that forgets connections, a firewall, a forged
/// packet, and another machine that has taken over the address end and refuse connections of
/// processes that live. A host that has refused for `refused_for` is suspected.

#include "unisono/core/time.hpp"

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
    /// rest.
    static constexpr nanoseconds longest_end = 1'000'000'000;

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
        if (is_proof) ended_ = true;
        refuses_ = now - refused_ >= refused_for;
    }
    void ended_here() { ended_ = true; }

    [[nodiscard]] bool is_suspected() const { return suspected_; }
    [[nodiscard]] Conclusion conclusion() const {
        if (ended_) return Conclusion::ended;
        return refuses_ && refused_ != never ? Conclusion::refuses : Conclusion::none;
    }
    /// For a process that has ended: false if it had lived on without its connection, so that its
    /// last messages have not arrived.
    [[nodiscard]] bool was_heard(nanoseconds now) const { return !suspected_ || now - since_ <= longest_end; }

private:
    bool suspected_ = false, refuses_ = false, ended_ = false;
    nanoseconds since_ = 0, refused_ = never;
};

} // namespace detail
UNISONO_NAMESPACE_END
