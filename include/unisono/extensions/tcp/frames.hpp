#pragma once

/// \file
/// The bytes between two ranks: an address, a greeting, then messages, each after a header, and the
/// stripes of large ones.
///
/// A large message may be cut into stripes, one for each connection between the two ranks. All
/// connections carry the stripes of striped messages in the same order, so that the n-th stripe on
/// each belongs to the n-th striped message. The first stripe that arrives begins the message.

#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/secrets/proof.hpp"
#include "unisono/extensions/launch/sockets/interface.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/extensions/network/frame_wire.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The address of a rank for its peers; plain bytes, since all hosts have the same byte order.
struct TcpAddress {
    SocketAddress socket = {};
    char interface[32] = {};
    std::uint32_t connections = 1; ///< to each peer

    [[nodiscard]] std::string text() const { return std::string(reinterpret_cast<const char*>(this), sizeof *this); }
    /// Reads an address; false if the text is none.
    bool read(const std::string& text) {
        if (text.size() != sizeof *this) return false;
        std::memcpy(static_cast<void*>(this), text.data(), sizeof *this);
        interface[sizeof interface - 1] = '\0';
        const int family = socket.storage.ss_family; // another family would be another kind of socket
        return (family == AF_INET && socket.length == sizeof(sockaddr_in)) ||
               (family == AF_INET6 && socket.length == sizeof(sockaddr_in6));
    }
    [[nodiscard]] std::string describe() const {
        return concat({host_text(socket), ":", port_of(socket), " (interface ", interface, ")"});
    }
};

/// The socket at which a rank listens.
struct TcpEntrance {
    NetworkInterface interface = {};
    Listener listener = {};
    std::string congestion_control = {}; ///< empty: the system's default
    int links = 1;                       ///< connections to each peer
    std::size_t striped_bytes = 262144;  ///< messages from this size on are cut over all connections

    [[nodiscard]] TcpAddress address() const {
        TcpAddress made{.socket = interface.address, .connections = static_cast<std::uint32_t>(links)};
        set_port(made.socket, listener.port);
        interface.name.copy(made.interface, sizeof made.interface - 1);
        return made;
    }
};

inline bool set_congestion_control(int fd, const std::string& name) {
    return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), static_cast<socklen_t>(name.size())) == 0;
}

enum class TcpFrame : std::uint32_t {
    message = 1,
    goodbye, ///< no frame follows
    stripe,  ///< of a message that is cut (TcpLink): its envelope, followed by this connection's stripe
};

/// Precedes each message. The message's bytes follow, padded with zeros to a multiple of
/// `alignment`, so that payloads are aligned in the buffer.
struct TcpHeader {
    static constexpr std::uint32_t expected_mark = 0x6f6e7573;
    static constexpr std::size_t alignment = 16;

    std::uint32_t mark = expected_mark;
    TcpFrame kind = TcpFrame::message;
    Envelope envelope;

    static constexpr std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
};
static_assert(sizeof(TcpHeader) % TcpHeader::alignment == 0);

/// A message that arrives in the handler's memory.
struct TcpArrival {
    std::uint32_t number = 0; ///< the handler's number
    std::size_t room = 0;     ///< bytes of the message, with padding
    std::size_t limit = 0;    ///< the bytes of it for which there is memory
    std::size_t have = 0;
};

/// The striped messages between two ranks, of which some stripes have been transferred and some
/// have not.
class TcpStripes {
public:
    explicit TcpStripes(int connections) : connections_(static_cast<std::size_t>(connections)) {}

    [[nodiscard]] bool arrive() const { return !arriving_.empty(); }
    /// The beginning of a connection's stripe in a message that takes `room` bytes.
    [[nodiscard]] std::size_t begin_of(std::size_t connection, std::size_t room) const {
        return std::min(room, connection * TcpHeader::padded((room + connections_ - 1) / connections_));
    }

    /// The arriving message with this number; nullptr: none of its bytes have arrived.
    [[nodiscard]] TcpArrival* find(std::size_t number) {
        return number - arrived_ < arriving_.size() ? &arriving_[number - arrived_] : nullptr;
    }
    void add(const TcpArrival& arrival) { arriving_.push_back(arrival); }
    void complete_first() {
        arriving_.erase(0);
        ++arrived_;
    }

    /// Notes that `stripes` stripes of the next message are in flight; false if there are none.
    bool leave(Token token, std::size_t stripes) {
        ++left_;
        if (stripes != 0) leaving_.push_back({left_ - 1, token, stripes});
        return stripes != 0;
    }
    [[nodiscard]] std::uint64_t next() const { return left_; }
    /// Notes that a stripe of this message is sent; true if it was the last, with the message's
    /// token.
    bool is_out(std::uint64_t message, Token& token) {
        std::size_t i = 0;
        while (i < leaving_.size() && leaving_[i].message != message) ++i;
        if (i == leaving_.size() || --leaving_[i].stripes != 0) return false;
        token = leaving_[i].token;
        leaving_.erase(i);
        return true;
    }
    void forget() {
        arriving_.clear();
        leaving_.clear();
    }

private:
    struct Leaving {
        std::uint64_t message = 0;
        Token token = 0;
        std::size_t stripes = 0;
    };

    std::size_t connections_;
    List<TcpArrival> arriving_;
    std::size_t arrived_ = 0;
    List<Leaving> leaving_;
    std::uint64_t left_ = 0;
};

/// A connection that this rank makes to another one, until that has accepted it: the handshake of
/// all connections of a job (extensions/launch/secrets/proof.hpp), with the world's key, and one
/// frame behind it.
///
/// The key is derived from the job's secret and from random bytes that every rank drew for this
/// world (extensions/network/world.hpp); it is never sent. Later bytes have no codes: an attacker
/// who can change bytes between two hosts can change data. See docs/security.md.
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
    Answer look(int fd, const JobToken& key) {
        for (;;) {
            const std::size_t awaited = is_proven_ ? answer_bytes : Greeter::awaits();
            std::byte buffer[Challenge::bytes];
            const ssize_t got = ::recv(fd, buffer, awaited - in_.size(), MSG_DONTWAIT);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0 && errno == EAGAIN) return Answer::waits;
            if (got == 0 || (got < 0 && errno == ECONNRESET)) return Answer::ended;
            if (got < 0) return Answer::failed;
            append(in_, {buffer, static_cast<std::size_t>(got)});
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
