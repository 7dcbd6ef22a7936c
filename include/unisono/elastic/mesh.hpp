#pragma once

/// \file
/// One connection between any two members, for as long as both live. While ranks train none reads
/// it: it costs nothing then. A process that ends closes its connections, so that the end of one,
/// without a goodbye before it, proves a death; a host that falls silent proves nothing.

#include "unisono/elastic/membership_wire.hpp"
#include "unisono/launch/control_plane.hpp"
#include "unisono/launch/rendezvous.hpp"
#include "unisono/transport/network/join.hpp"
#include "unisono/transport/tcp.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One member's connections. One thread uses them.
class Mesh {
public:
    /// Connects the first world's members. Collective. Errors: as those of the control plane;
    /// refused, timeout.
    Mesh(ControlPlane& control, nanoseconds deadline)
        : me_(control.rank()), peers_(static_cast<std::size_t>(control.size())) {
        if (control.size() == 1) {
            secret_ = JobToken::random();
            return;
        }
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
    /// Of a process that waits to be added. `secret`: the others' (`secret()`). Members connect to
    /// it; its number comes with the first.
    Mesh(const JobToken& secret, bool other_hosts)
        : me_(-1), secret_(secret),
          entrance_(open_entrance(TcpOptions{}.with(Environment::of_process()), other_hosts)) {
        host_ = host_text(entrance_->interface.address);
        loopback_ = is_loopback(entrance_->interface.address);
    }
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;
    /// Returns once all members have all their connections. Collective.
    static void await_all(ControlPlane& control, nanoseconds deadline) {
        static_cast<void>(control.all_gather(std::span<const std::byte>(), deadline));
    }
    ~Mesh() { flush(steady_now() + 500'000'000); }

    [[nodiscard]] int me() const { return me_; }
    /// Numbers that were given so far, as far as this member knows.
    [[nodiscard]] int members() const { return static_cast<int>(peers_.size()); }
    [[nodiscard]] const JobToken& secret() const { return secret_; }
    /// Of a process that waits to be added.
    [[nodiscard]] std::uint16_t port() const { return entrance_ ? entrance_->listener.port : std::uint16_t{0}; }
    /// Whether there is or was a connection to a member.
    [[nodiscard]] bool knows(int member) const {
        return member < members() && peers_[static_cast<std::size_t>(member)].known;
    }
    /// Connects to a member that was added. False where no process listens there any more: its own
    /// has ended.
    bool reach(int member, const Applicant& added) {
        peer_at(member).known = true;
        std::string why;
        for (const SocketAddress& address : resolve(added.host, added.port, why)) {
            FileDescriptor socket = connect_to(address, steady_now() + 2'000'000'000, why);
            if (!socket.valid() && why == errno_text(ECONNREFUSED)) return false;
            const JobToken key = secret_.of_job("mesh");
            if (!socket.valid() || !send_all(socket.get(), greeting(me_, member, key), steady_now())) continue;
            begin(member, key, std::move(socket));
            return true;
        }
        return true; // it does not answer, which proves nothing
    }
    /// All other members of the world are here.
    void stop_listening() {
        entrance_.reset();
        arrivals_.clear();
    }
    /// Of this process, as the others reach it.
    [[nodiscard]] const std::string& host() const { return host_; }
    [[nodiscard]] bool is_on_loopback() const { return loopback_; }
    /// The secret of an epoch's world, which all members know and none sends.
    [[nodiscard]] JobToken secret_of(std::uint64_t epoch) const { return secret_.of_job(concat({"epoch ", epoch})); }

    void send(int to, const Blob& payload) {
        if (!knows(to)) return;
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

    /// Waits until something comes, at most until then. Calls heard(from, bytes) for each message
    /// and lost(from) for each death; where this process was added, came(from) for each member that
    /// connects.
    template <class Heard, class Lost, class Came>
    void wait(nanoseconds until, Heard heard, Lost lost, Came came) {
        std::vector<pollfd> polled;
        std::vector<int> who;
        for (int peer = 0; peer < members(); ++peer) {
            const Peer& one = peers_[static_cast<std::size_t>(peer)];
            if (!one.socket.valid()) continue;
            polled.push_back({one.socket.get(), static_cast<short>(one.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
            who.push_back(peer);
        }
        if (entrance_) polled.push_back({entrance_->listener.socket.get(), POLLIN, 0});
        for (const Arrival& one : arrivals_) polled.push_back({one.socket.get(), POLLIN, 0});
        if (::poll(polled.data(), polled.size(), poll_timeout(until)) <= 0) return;
        if (entrance_) welcome(came);
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
        bool known = false;
    };
    /// Somebody who has connected to a process that waits to be added.
    struct Arrival {
        FileDescriptor socket = {};
        Blob said = {};
        nanoseconds until = 0;
    };
    static constexpr std::size_t most_arrivals = 256;
    enum class End : std::uint8_t { none, closed, unreachable };
    static constexpr std::size_t most_bytes = std::size_t{1} << 20;
    static constexpr std::array<char, 8> magic = {'u', 'n', 'i', 'm', 'e', 's', 'h', '3'};

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
    Peer& peer_at(int number) {
        if (number >= members()) peers_.resize(static_cast<std::size_t>(number) + 1);
        return peers_[static_cast<std::size_t>(number)];
    }
    /// Takes those in that have proven themselves, without waiting for any.
    template <class Came>
    void welcome(Came came) {
        const nanoseconds now = steady_now();
        for (int i = 0; i < 64; ++i) {
            FileDescriptor socket(
                ::accept4(entrance_->listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!socket.valid()) break;
            if (arrivals_.size() >= most_arrivals) arrivals_.erase(arrivals_.begin());
            arrivals_.push_back({.socket = std::move(socket), .until = now + 5'000'000'000});
        }
        const JobToken key = secret_.of_job("mesh");
        const std::size_t length = greeting(0, 0, key).size();
        std::vector<int> here;
        for (Arrival& one : arrivals_) {
            std::byte buffer[256];
            while (one.said.size() < length) {
                const ssize_t got = ::recv(one.socket.get(), buffer, length - one.said.size(), 0);
                if (got > 0) one.said.insert(one.said.end(), buffer, buffer + got);
                else if (got == 0 || (errno != EAGAIN && errno != EINTR)) one.socket.close();
                if (got <= 0) break;
            }
            if (one.said.size() < length) {
                if (now >= one.until) one.socket.close();
                continue;
            }
            FileDescriptor socket = std::move(one.socket);
            WireReader in(std::span<const std::byte>(one.said).subspan(length - 8));
            const auto from = static_cast<int>(in.u32()), to = static_cast<int>(in.u32());
            if (from < 0 || from >= most_numbers || to < 0 || to >= most_numbers || from == to || knows(from) ||
                !is_greeting(one.said, from, to, key) || (me_ >= 0 && me_ != to))
                continue;
            me_ = to;
            set_up_connection(socket.get());
            static_cast<void>(peer_at(from));
            begin(from, key, std::move(socket));
            here.push_back(from);
        }
        std::erase_if(arrivals_, [](const Arrival& one) { return !one.socket.valid(); });
        for (const int from : here) came(from);
    }
    static bool is_greeting(const Blob& said, int from, int to, const JobToken& key) {
        const auto bytes = [](const Blob& blob) {
            return std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(blob.data()), blob.size());
        };
        const Blob expected = greeting(from, to, key);
        return said.size() == expected.size() && equal_in_constant_time(bytes(said), bytes(expected));
    }
    void begin(int peer, const JobToken& key, FileDescriptor socket) {
        Peer& one = peers_[static_cast<std::size_t>(peer)];
        one.known = true;
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
            if (!is_greeting(came, from, me_, key) || peers_[static_cast<std::size_t>(from)].socket.valid()) continue;
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
    std::string host_ = "127.0.0.1";
    bool loopback_ = true;
    JobToken secret_;
    std::vector<Peer> peers_; ///< by their numbers
    std::optional<TcpEntrance> entrance_;
    std::vector<Arrival> arrivals_;
};

} // namespace detail
UNISONO_NAMESPACE_END
