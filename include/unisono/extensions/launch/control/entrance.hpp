#pragma once

/// \file
/// A rank's way into the job: it connects to the hub, both prove that they have the job's secret,
/// and frames follow.

#include "unisono/extensions/launch/rendezvous/launcher_claims.hpp"
#include "unisono/extensions/launch/secrets/proof.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <sys/socket.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A number that no other process draws, by which the hub knows a process that comes again.
inline std::uint64_t draw_claimant() {
    const auto value = JobToken::random().value();
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 8; ++i) number = (number << 8) | value[i];
    return number;
}

/// A connection that the hub has accepted, and the bytes that it has sent since.
struct Entrance {
    FileDescriptor socket = {};
    Blob unread = {};
    ControlSession session = {};
};

/// Returns false at the deadline or at the connection's end.
inline bool read_more(Entrance& entrance, nanoseconds until) {
    return wait_for(entrance.socket.get(), POLLIN, until) && receive_some(entrance.socket.get(), entrance.unread) >= 0;
}

/// Reads until a frame is complete. Returns nothing at the deadline or at the connection's end. The
/// frame refers to bytes of `unread`.
inline std::optional<Frame> next_frame(Entrance& entrance, std::size_t most_bytes, nanoseconds until,
                                       std::size_t& used) {
    for (;;) {
        Frame frame;
        const Parsed parsed = entrance.session.in.open(entrance.unread, most_bytes, frame, used);
        if (parsed == Parsed::frame) return frame;
        if (parsed != Parsed::incomplete || !read_more(entrance, until)) return std::nullopt;
    }
}

/// Sends a few bytes on a fresh connection. False: none or not all were sent.
inline bool send_all(int fd, std::span<const std::byte> bytes, nanoseconds until) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
        else if (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, until))) return false;
    }
    return true;
}

/// Why none of several addresses has let this process in. The answer of a keeper that has another
/// secret says more than that of an address without a listener, or with another program.
class NoEntry {
public:
    [[nodiscard]] const std::string& why() const { return why_; }
    [[nodiscard]] bool has_met_keeper() const { return has_met_keeper_; }
    void note(const std::string& why, bool of_keeper = false) {
        if (has_met_keeper_ && !of_keeper) return;
        why_ = why;
        has_met_keeper_ = of_keeper;
    }
    /// Adds the address at which a keeper was met.
    void say_where(const std::string& address) {
        if (has_met_keeper_) why_ += concat({" (found at ", address, ")"});
    }

private:
    std::string why_;
    bool has_met_keeper_ = false;
};

/// The caller's side of the handshake (secrets/proof.hpp). Returns true once the keeper has proven
/// that it has the secret, and the caller's proof is sent.
inline bool prove(Entrance& entrance, const Hello& hello, const JobToken& secret, nanoseconds until, NoEntry& refused) {
    Greeter caller(hello);
    if (!send_all(entrance.socket.get(), caller.hello(), until)) return false;
    Blob proof;
    Greeted found = Greeted::waits;
    while ((found = caller.look(secret, entrance.unread, proof)) == Greeted::waits)
        if (!read_more(entrance, until)) return false;
    if (found == Greeted::stranger) {
        refused.note("the process that listens there does not belong to this job: it has another secret "
                     "(UNISONO_TOKEN), or none, or is of another job",
                     is_challenge(entrance.unread));
        return false;
    }
    entrance.session = caller.session(secret);
    return send_all(entrance.socket.get(), proof, until);
}

inline bool send_frame(Entrance& entrance, Blob frame, nanoseconds until) {
    entrance.session.out.close(frame);
    return send_all(entrance.socket.get(), frame, until);
}

/// Connects to one address and proves that this process has the secret. Returns nothing, and notes
/// the reason, unless the hub proves that it has the secret, and accepts. Errors: the fault with
/// which it refuses.
inline std::optional<Entrance> enter(const SocketAddress& address, const Hello& hello, const JobToken& secret,
                                     nanoseconds until, NoEntry& refused) {
    std::string why;
    Entrance entrance{.socket = connect_to(address, until, why)};
    if (entrance.socket.valid()) why = "the process that listens there does not belong to this job, or did not answer";
    refused.note(why);
    if (!entrance.socket.valid() || !prove(entrance, hello, secret, until, refused)) return std::nullopt;
    std::size_t used = 0;
    const std::optional<Frame> answer = next_frame(entrance, 3 * most_text_bytes, until, used);
    if (answer && answer->kind == FrameKind::accepted) {
        drop_front(entrance.unread, used);
        return entrance;
    }
    Fault fault;
    WireReader in(answer ? answer->payload : std::span<const std::byte>{});
    if (answer && answer->kind == FrameKind::refused && read(in, most_ranks, fault)) throw error(fault);
    // The hub may have accepted by now: a goodbye keeps this attempt from counting as a death.
    static_cast<void>(send_frame(entrance, make_frame(FrameKind::goodbye), steady_now()));
    return std::nullopt;
}

} // namespace detail
UNISONO_NAMESPACE_END
