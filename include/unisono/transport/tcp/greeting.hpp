#pragma once

/// \file
/// The first bytes on a connection between two ranks: the caller's rank, and the proof that it has
/// the world's key. Strangers are dropped without an answer.
///
/// The key is derived from the job's secret and from random bytes that every rank drew for this
/// world (network/join.hpp); it is never sent. A greeting is a `TcpHello`. Its answer is a frame
/// whose tag is a code over that hello. Each greeting of a rank has a new number, so that a
/// recorded one is refused. Later bytes have no codes: an attacker who can change bytes between two
/// hosts can change data. See docs/security.md.

#include "unisono/launch/descriptor.hpp"
#include "unisono/launch/token.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

using TcpProof = std::array<std::uint8_t, 16>;

TcpProof prove_to_peer(const JobToken& key, std::string_view purpose, std::span<const std::byte> text);

enum class TcpFrame : std::uint32_t {
    message = 1,
    welcome, ///< the peer accepts this connection
    taken,   ///< the peer has begun a connection itself, which is used
    goodbye, ///< no frame follows
    stripe,  ///< of a message that is cut (TcpLink): its envelope, followed by this connection's stripe
};

struct TcpHello {
    static constexpr std::array<char, 8> expected = {'u', 'n', 'i', 's', 'o', 'n', 'o', '3'};

    std::array<char, 8> magic = expected;
    std::uint64_t number = 0; ///< of this greeting among those of this rank, from 1
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t world = 0;
    std::uint16_t order = 0x0102; ///< shows this host's byte order
    std::uint16_t connection = 0; ///< its number among the connections between the two ranks
    TcpProof proof = {};          ///< over all bytes before it

    void seal(const JobToken& key) { proof = expected_proof(key); }
    [[nodiscard]] bool proves(const JobToken& key) const;
    /// The proof of its answer: a welcome, or that the connection is taken.
    [[nodiscard]] TcpProof answer(const JobToken& key, TcpFrame kind) const;

private:
    [[nodiscard]] TcpProof expected_proof(const JobToken& key) const;
};
static_assert(sizeof(TcpHello) == 48);

/// A connection whose peer has not proven yet that it is a rank.
class TcpVisitor {
public:
    TcpVisitor(FileDescriptor socket, nanoseconds since, std::uint64_t source)
        : socket_(std::move(socket)), since_(since), source_(source) {}

    enum class Answer : std::uint8_t { waits, stranger, rank };

    /// Reads on. `rank`: its hello is valid, and a rank of this world sent it, now or earlier.
    Answer look(int me, int world, int connections, const JobToken& key);
    [[nodiscard]] const TcpHello& hello() const { return hello_; }
    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] nanoseconds since() const { return since_; }
    [[nodiscard]] std::uint64_t source() const { return source_; } ///< the host from which it comes
    [[nodiscard]] FileDescriptor take() { return std::move(socket_); }

private:
    FileDescriptor socket_;
    nanoseconds since_;
    std::uint64_t source_;
    std::array<std::byte, sizeof(TcpHello)> bytes_ = {};
    std::size_t have_ = 0;
    TcpHello hello_ = {};
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/launch/sha256.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION TcpProof prove_to_peer(const JobToken& key, std::string_view purpose,
                                          std::span<const std::byte> text) {
    const Digest digest = HmacSha256(key.value()).add(purpose).add(text).finish();
    TcpProof start;
    std::copy_n(digest.begin(), start.size(), start.begin());
    return start;
}

UNISONO_DEFINITION bool TcpHello::proves(const JobToken& key) const {
    return equal_in_constant_time(proof, expected_proof(key));
}

UNISONO_DEFINITION TcpProof TcpHello::answer(const JobToken& key, TcpFrame kind) const {
    return prove_to_peer(key, kind == TcpFrame::welcome ? "unisono2 welcome" : "unisono2 taken",
                         std::as_bytes(std::span(this, 1)));
}

UNISONO_DEFINITION TcpProof TcpHello::expected_proof(const JobToken& key) const {
    const std::span<const std::byte> all = std::as_bytes(std::span(this, 1));
    return prove_to_peer(key, "unisono2 greeting", all.first(all.size() - sizeof proof));
}

UNISONO_DEFINITION TcpVisitor::Answer TcpVisitor::look(int me, int world, int connections, const JobToken& key) {
    const ssize_t got = ::recv(socket_.get(), bytes_.data() + have_, bytes_.size() - have_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Answer::waits;
    if (got <= 0) return Answer::stranger;
    have_ += static_cast<std::size_t>(got);
    if (std::memcmp(bytes_.data(), TcpHello::expected.data(), std::min(have_, TcpHello::expected.size())) != 0)
        return Answer::stranger;
    if (have_ < bytes_.size()) return Answer::waits;
    const std::uint16_t order = hello_.order;
    std::memcpy(static_cast<void*>(&hello_), bytes_.data(), sizeof hello_);
    const bool good = hello_.proves(key) && hello_.order == order && hello_.to == static_cast<std::uint32_t>(me) &&
                      hello_.world == static_cast<std::uint32_t>(world) && hello_.from < hello_.world &&
                      hello_.from != hello_.to && hello_.connection < connections;
    return good ? Answer::rank : Answer::stranger;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
