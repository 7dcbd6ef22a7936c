#pragma once

/// \file
/// A connection that this rank makes to another one, until that has accepted it: the handshake of
/// all connections of a job (extensions/launch/secrets/proof.hpp), with the world's key, and one
/// frame behind it.
///
/// The key is derived from the job's secret and from random bytes that every rank drew for this
/// world (network/join.hpp); it is never sent. Later bytes have no codes: an attacker who can
/// change bytes between two hosts can change data. See docs/security.md.

#include "unisono/extensions/launch/secrets/proof.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class TcpCall {
public:
    enum class Answer : std::uint8_t {
        waits,
        accepted,
        taken,    ///< the peer has begun a connection itself, which is used
        stranger, ///< the process that answers does not have the key
        ended,    ///< the connection ended before the answer, perhaps because the listener is crowded
        failed,   ///< with the error in `errno`
    };

    /// Connection `number` from a rank to another.
    TcpCall(int from, int to, int world, int number)
        : caller_(Hello{.world = static_cast<std::uint32_t>(world),
                        .rank = static_cast<std::uint32_t>(from),
                        .to = static_cast<std::uint32_t>(to),
                        .connection = static_cast<std::uint16_t>(number),
                        .door = Door::data}) {}

    /// The bytes to send first.
    [[nodiscard]] const Blob& hello() const { return caller_.hello(); }
    /// Reads on, and nothing behind the answer. Sends the proof.
    Answer look(int fd, const JobToken& key);

    /// The other side's answer, after the proof.
    static Blob answer(FrameKind kind, ControlSession session) {
        Blob frame = make_frame(kind);
        session.out.close(frame);
        return frame;
    }

private:
    static constexpr std::size_t answer_bytes = frame_header_bytes + Seal::bytes;

    Greeter caller_;
    Blob in_ = {};
    ControlSession session_ = {};
    bool is_proven_ = false; ///< the peer is
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include <cerrno>
#include <sys/socket.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION TcpCall::Answer TcpCall::look(int fd, const JobToken& key) {
    for (;;) {
        const std::size_t awaited = is_proven_ ? answer_bytes : Greeter::awaits();
        std::byte buffer[Challenge::bytes];
        const ssize_t got = ::recv(fd, buffer, awaited - in_.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return Answer::waits;
        if (got == 0 || (got < 0 && errno == ECONNRESET)) return Answer::ended;
        if (got < 0) return Answer::failed;
        in_.insert(in_.end(), buffer, buffer + got);
        if (!is_proven_) {
            Blob proof;
            const Greeted found = caller_.look(key, in_, proof);
            if (found == Greeted::stranger) return Answer::stranger;
            if (found == Greeted::waits) continue;
            is_proven_ = true;
            session_ = caller_.session(key);
            const ssize_t sent = ::send(fd, proof.data(), proof.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent != static_cast<ssize_t>(proof.size()))
                return sent < 0 && errno != EPIPE && errno != ECONNRESET ? Answer::failed : Answer::ended;
            continue;
        }
        Frame frame;
        std::size_t used = 0;
        const Parsed parsed = session_.in.open(in_, 0, frame, used);
        if (parsed == Parsed::incomplete) continue;
        if (parsed != Parsed::frame) return Answer::stranger;
        if (frame.kind == FrameKind::accepted) return Answer::accepted;
        return frame.kind == FrameKind::taken ? Answer::taken : Answer::stranger;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
