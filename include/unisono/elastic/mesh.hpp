#pragma once

/// \file
/// One connection between any two members of a first world, for as long as both live. During
/// training no rank reads it, so it costs nothing. A process that ends closes its connections, so
/// that the end of a connection without a goodbye proves a death; silence of a host proves nothing.

#include "unisono/elastic/membership_messages.hpp"
#include "unisono/launch/control_plane.hpp"
#include "unisono/launch/rendezvous.hpp"
#include "unisono/transport/network/join.hpp"
#include "unisono/transport/tcp.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The address of the next world's control plane, which its first rank sends to the others.
struct NextMeeting {
    std::uint64_t epoch = 0;
    std::string host = {};
    std::uint16_t port = 0;
};

inline Blob encode(const MembershipMessage& message) {
    WireWriter out;
    out.u8(static_cast<std::uint8_t>(message.word));
    for (const std::uint64_t number : {message.epoch, message.ballot, message.updates, message.accepted_ballot,
                                       message.successor.updates, static_cast<std::uint64_t>(message.successor.source)})
        out.u64(number);
    for (const int member : message.successor.members) out.u32(static_cast<std::uint32_t>(member));
    return out.take();
}
inline constexpr std::uint8_t next_meeting_word = 100;
inline Blob encode(const NextMeeting& meeting) {
    WireWriter out;
    out.u8(next_meeting_word);
    out.u64(meeting.epoch);
    out.u32(meeting.port);
    out.text(meeting.host);
    return out.take();
}
/// False for bytes that no member sends.
inline bool decode(std::span<const std::byte> bytes, int members, MembershipMessage& message) {
    WireReader in(bytes);
    const std::uint8_t word = in.u8();
    if (word > static_cast<std::uint8_t>(MembershipWord::goodbye)) return false;
    message.word = static_cast<MembershipWord>(word);
    for (std::uint64_t* const number :
         {&message.epoch, &message.ballot, &message.updates, &message.accepted_ballot, &message.successor.updates})
        *number = in.u64();
    message.successor.source = static_cast<int>(static_cast<std::int64_t>(in.u64()));
    int before = -1;
    while (in.good() && in.left() != 0) {
        const auto member = static_cast<int>(in.u32());
        if (member <= before || member >= members) return false;
        message.successor.members.push_back(before = member);
    }
    return in.finished() && message.successor.source >= -1 && message.successor.source < members;
}
inline bool decode(std::span<const std::byte> bytes, NextMeeting& meeting) {
    WireReader in(bytes);
    if (in.u8() != next_meeting_word) return false;
    meeting.epoch = in.u64();
    meeting.port = static_cast<std::uint16_t>(in.u32());
    meeting.host = in.text();
    return in.finished();
}

/// One member's connections. One thread uses them.
class Mesh {
public:
    /// Connects the first world's members. Collective. Errors: as those of the control plane;
    /// refused, timeout.
    Mesh(ControlPlane& control, nanoseconds deadline)
        : me_(control.rank()), peers_(static_cast<std::size_t>(control.size())) {
        if (control.size() == 1) return;
        const bool other_hosts = has_other_hosts(control, deadline);
        TcpEntrance entrance = open_entrance(TcpOptions{}.with(Environment::of_process()), other_hosts);
        host_ = host_text(entrance.interface.address);
        loopback_ = is_loopback(entrance.interface.address);
        WireWriter out;
        const JobToken drawn = JobToken::random();
        for (const std::uint8_t byte : drawn.value()) out.u8(byte);
        out.u32(entrance.listener.port);
        out.text(host_);
        const Blob mine = out.take();
        const std::vector<Blob> cards = control.all_gather(mine, deadline);
        secret_ = control.derive_key("elastic", std::span(cards[0]).first(std::min(cards[0].size(), JobToken::bytes)));
        const JobToken key = secret_.of_job("mesh");
        for (int peer = 0; peer < me_; ++peer) {
            WireReader in(cards[static_cast<std::size_t>(peer)]);
            static_cast<void>(in.bytes(JobToken::bytes));
            const auto port = static_cast<std::uint16_t>(in.u32());
            connect(peer, in.text(), port, key, deadline);
        }
        accept(entrance.listener, key, deadline);
    }
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;
    /// Returns once all members have all their connections. Collective.
    static void await_all(ControlPlane& control, nanoseconds deadline) {
        static_cast<void>(control.all_gather(std::span<const std::byte>(), deadline));
    }
    ~Mesh() { flush(steady_now() + 500'000'000); }

    [[nodiscard]] int me() const { return me_; }
    [[nodiscard]] int members() const { return static_cast<int>(peers_.size()); }
    /// The address of this process for the others.
    [[nodiscard]] const std::string& host() const { return host_; }
    [[nodiscard]] bool is_on_loopback() const { return loopback_; }
    /// The secret of an epoch's world, which all members know and none sends.
    [[nodiscard]] JobToken secret_of(std::uint64_t epoch) const { return secret_.of_job(concat({"epoch ", epoch})); }

    void send(int to, const Blob& payload) {
        Peer& peer = peers_[static_cast<std::size_t>(to)];
        if (!peer.socket.valid()) return;
        WireWriter out;
        out.u32(static_cast<std::uint32_t>(payload.size()));
        out.bytes(payload);
        Blob frame = out.take();
        peer.seals.out.close(frame);
        peer.out.insert(peer.out.end(), frame.begin(), frame.end());
        write(peer);
    }

    /// Waits for messages, at most until `until`. Calls heard(from, bytes) for each message and
    /// lost(from) for each death.
    template <class Heard, class Lost>
    void wait(nanoseconds until, Heard heard, Lost lost) {
        std::vector<pollfd> polled;
        std::vector<int> who;
        for (int peer = 0; peer < members(); ++peer) {
            const Peer& one = peers_[static_cast<std::size_t>(peer)];
            if (!one.socket.valid()) continue;
            polled.push_back({one.socket.get(), static_cast<short>(one.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
            who.push_back(peer);
        }
        if (::poll(polled.data(), polled.size(), poll_timeout(until)) <= 0) return;
        for (std::size_t i = 0; i < who.size(); ++i) {
            Peer& peer = peers_[static_cast<std::size_t>(who[i])];
            if ((polled[i].revents & POLLOUT) != 0) write(peer);
            if ((polled[i].revents & ~POLLOUT) == 0) continue;
            const End end = read(peer);
            for (std::size_t used = 0; next_frame(peer, used);) {
                const std::span<const std::uint8_t> code(reinterpret_cast<const std::uint8_t*>(peer.in.data()) + used,
                                                         Seal::bytes);
                if (!equal_in_constant_time(code, peer.seals.in.next(digest_of(std::span(peer.in).first(used))))) {
                    peer.in.clear(); // a stranger's: it proves nothing about the peer
                    peer.socket.close();
                    break;
                }
                const Blob frame(peer.in.begin() + 4, peer.in.begin() + static_cast<std::ptrdiff_t>(used));
                peer.in.erase(peer.in.begin(), peer.in.begin() + static_cast<std::ptrdiff_t>(used + Seal::bytes));
                peer.said_goodbye = peer.said_goodbye || is_goodbye(frame);
                heard(who[i], frame);
            }
            if (end == End::none || !peer.socket.valid()) continue;
            peer.socket.close();
            if (end == End::closed && !peer.said_goodbye) lost(who[i]);
        }
    }

    /// Waits until all messages are with the system, at most until `until`.
    void flush(nanoseconds until) {
        for (Peer& peer : peers_)
            while (peer.socket.valid() && !peer.out.empty() && wait_for(peer.socket.get(), POLLOUT, until)) write(peer);
    }

private:
    struct Peer {
        FileDescriptor socket = {};
        ControlSession seals = {}; ///< of frames: both ways have keys of their own, made of the secret
        Blob in = {}, out = {};
        bool said_goodbye = false;
    };
    enum class End : std::uint8_t { none, closed, unreachable };
    static constexpr std::size_t most_bytes = 64 + 4 * std::size_t{most_ranks};
    static constexpr std::array<char, 8> magic = {'u', 'n', 'i', 'm', 'e', 's', 'h', '2'};

    [[nodiscard]] static Blob from_to(int from, int to) {
        WireWriter out;
        out.u32(static_cast<std::uint32_t>(from));
        out.u32(static_cast<std::uint32_t>(to));
        return out.take();
    }
    /// The sender of a connection, and the proof that it has the key. It is valid for one
    /// connection: a second one of a member is refused.
    [[nodiscard]] static Blob greeting(int from, int to, const JobToken& key) {
        const Blob both = from_to(from, to);
        const Digest proof = authenticate(key, "unisono2 mesh", both);
        WireWriter out;
        out.bytes(std::as_bytes(std::span(magic)));
        out.bytes(std::as_bytes(std::span(proof)));
        out.bytes(both);
        return out.take();
    }
    void begin(int peer, const JobToken& key, FileDescriptor socket) {
        Peer& one = peers_[static_cast<std::size_t>(peer)];
        one.socket = std::move(socket);
        one.seals.out = Seal(authenticate(key, "unisono2 mesh frames", from_to(me_, peer)));
        one.seals.in = Seal(authenticate(key, "unisono2 mesh frames", from_to(peer, me_)));
    }
    static bool is_goodbye(const Blob& frame) {
        return !frame.empty() && frame[0] == static_cast<std::byte>(MembershipWord::goodbye);
    }

    void connect(int peer, const std::string& host, std::uint16_t port, const JobToken& key, nanoseconds deadline) {
        std::string why = "no address";
        for (const SocketAddress& address : resolve(host, port, why)) {
            FileDescriptor socket = connect_to(address, deadline, why);
            if (!socket.valid() || !send_all(socket.get(), greeting(me_, peer, key), deadline)) continue;
            begin(peer, key, std::move(socket));
            return;
        }
        throw error(Fault{.code = ErrorCode::refused,
                          .rank = me_,
                          .peer = peer,
                          .operation = "join",
                          .sequence = 0,
                          .message = concat({"rank ", me_, " cannot reach rank ", peer, " at ", host, ":", port,
                                             " for the membership of an elastic world: ", why})});
    }

    /// Accepts the connections of higher ranks, in any order, and closes those of strangers.
    void accept(const Listener& listener, const JobToken& key, nanoseconds deadline) {
        const std::size_t length = greeting(0, me_, key).size();
        for (int missing = members() - 1 - me_; missing > 0;) {
            if (!wait_for(listener.socket.get(), POLLIN, deadline)) throw_missing();
            FileDescriptor socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!socket.valid()) continue;
            Blob came(length);
            std::size_t got = 0;
            const nanoseconds until = std::min(deadline, steady_now() + 2'000'000'000);
            while (got < length && wait_for(socket.get(), POLLIN, until)) {
                const ssize_t more = ::recv(socket.get(), came.data() + got, length - got, 0);
                if (more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR)) break;
                if (more > 0) got += static_cast<std::size_t>(more);
            }
            WireReader in(std::span<const std::byte>(came).subspan(length - 8));
            const auto from = static_cast<int>(in.u32());
            if (got != length || from <= me_ || from >= members()) continue;
            const Blob expected = greeting(from, me_, key);
            const auto bytes = [](const Blob& blob) {
                return std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(blob.data()), blob.size());
            };
            if (!equal_in_constant_time(bytes(came), bytes(expected)) ||
                peers_[static_cast<std::size_t>(from)].socket.valid())
                continue;
            set_up_connection(socket.get());
            begin(from, key, std::move(socket));
            --missing;
        }
    }
    [[noreturn]] void throw_missing() const {
        std::vector<int> missing;
        for (int peer = me_ + 1; peer < members(); ++peer)
            if (!peers_[static_cast<std::size_t>(peer)].socket.valid()) missing.push_back(peer);
        throw error(Fault{.code = ErrorCode::timeout,
                          .rank = me_,
                          .peer = missing.front(),
                          .operation = "join",
                          .sequence = 0,
                          .message = concat({"rank ", me_, " waited for ", list_of(missing),
                                             " to connect for the membership of an elastic world"})});
    }

    static void write(Peer& peer) {
        while (!peer.out.empty()) {
            const ssize_t sent = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
            if (sent > 0) peer.out.erase(peer.out.begin(), peer.out.begin() + sent);
            else if (sent < 0 && errno == EINTR) continue;
            else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            else return peer.out.clear(); // reading says why
        }
    }
    static End read(Peer& peer) {
        std::byte buffer[16384];
        for (;;) {
            const ssize_t got = ::recv(peer.socket.get(), buffer, sizeof buffer, 0);
            if (got > 0) peer.in.insert(peer.in.end(), buffer, buffer + got);
            else if (got == 0 || errno == ECONNRESET || errno == EPIPE) return End::closed;
            else if (errno == EAGAIN || errno == EWOULDBLOCK) return End::none;
            else if (errno != EINTR) return End::unreachable; // the host does not answer, or the network says so
        }
    }
    /// `used`: bytes with the length before it, and without the code behind it.
    static bool next_frame(const Peer& peer, std::size_t& used) {
        if (peer.in.size() < 4) return false;
        WireReader in(peer.in);
        const std::size_t length = in.u32();
        used = 4 + length;
        return length <= most_bytes && peer.in.size() >= used + Seal::bytes;
    }

    int me_;
    std::string host_;
    bool loopback_ = true;
    JobToken secret_;
    std::vector<Peer> peers_;
};

} // namespace detail
UNISONO_NAMESPACE_END
