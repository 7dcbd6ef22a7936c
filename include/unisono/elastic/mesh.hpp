#pragma once

/// \file
/// One connection between any two members while both live. While ranks train, no member reads it,
/// so it costs nothing. The end of a connection without a goodbye is only a suspicion; evidence.hpp
/// defines the proofs of a death. A connection that has ended is not made again: until its other end
/// is known to be dead, it counts as silent.

#include "unisono/elastic/membership_wire.hpp"
#include "unisono/elastic/process_watch.hpp"
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

/// The connections of one member. One thread uses them.
class Mesh {
public:
    /// Connects the first world's members. Collective. Errors: those of the control plane; refused,
    /// timeout.
    Mesh(ControlPlane& control, nanoseconds deadline)
        : me_(control.rank()), peers_(static_cast<std::size_t>(control.size())) {
        if (control.size() == 1) {
            secret_ = JobToken::random();
            stop_listening();
            return;
        }
        begin_to_listen(has_other_hosts(control, deadline));
        WireWriter out;
        const JobToken drawn = JobToken::random();
        for (const std::uint8_t byte : drawn.value()) out.u8(byte);
        card_.write(out);
        const Blob mine = out.take();
        const std::vector<Blob> cards = control.all_gather(mine, deadline);
        secret_ = control.derive_key("elastic", std::span(cards[0]).first(std::min(cards[0].size(), JobToken::bytes)));
        const JobToken key = secret_.of_job("mesh");
        for (int peer = 0; peer < members(); ++peer) {
            if (peer == me_) continue;
            WireReader in(cards[static_cast<std::size_t>(peer)]);
            static_cast<void>(in.bytes(JobToken::bytes));
            const ProcessCard card = ProcessCard::read(in);
            peers_[static_cast<std::size_t>(peer)].watch.know(card);
            if (peer < me_) connect(peer, card.address, card.port, key, deadline);
        }
        accept(deadline);
        stop_listening();
    }
    /// For a process that waits to be added. `secret`: the secret of the world's members
    /// (`secret()`). Members connect to the process; the first one tells it its number.
    Mesh(const JobToken& secret, bool other_hosts) : me_(-1), secret_(secret), was_added_(true) {
        begin_to_listen(other_hosts);
    }
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;
    /// Returns when all members have all their connections. Collective.
    static void await_all(ControlPlane& control, nanoseconds deadline) {
        static_cast<void>(control.all_gather(std::span<const std::byte>(), deadline));
    }
    /// In a forked child of the process, sends nothing: it would speak in the parent's name.
    ~Mesh() {
        if (owner_ == ::getpid()) flush(steady_now() + 500'000'000);
    }

    /// ElasticOptions::trust_resets.
    void trust_resets(bool trusts) { rules_.trust_resets = trusts; }
    [[nodiscard]] int me() const { return me_; }
    /// The host of a member; 0: unknown. Processes on one host see each other's ends.
    [[nodiscard]] std::uint64_t host_of(int member) const {
        if (member == me_) return host_number_;
        return knows(member) ? peers_[static_cast<std::size_t>(member)].watch.host() : 0;
    }
    /// True if messages to a member leave this process.
    [[nodiscard]] bool is_connected(int member) const {
        return knows(member) && peers_[static_cast<std::size_t>(member)].socket.valid();
    }
    /// The number of members' numbers that were given, as far as this member knows.
    [[nodiscard]] int members() const { return static_cast<int>(peers_.size()); }
    [[nodiscard]] const JobToken& secret() const { return secret_; }
    /// The port of a process that waits to be added.
    [[nodiscard]] std::uint16_t port() const { return listener_.port; }
    /// True if there is or was a connection to a member.
    [[nodiscard]] bool knows(int member) const {
        return member < members() && peers_[static_cast<std::size_t>(member)].known;
    }
    /// Connects to an added member.
    Conclusion reach(int member, const Applicant& added) {
        if (!listener_.socket.valid()) listen_alone();
        Peer& peer = peer_at(member);
        peer.known = true;
        peer.watch.know_address(added.host, added.port);
        std::string why;
        for (const SocketAddress& address : resolve(added.host, added.port, why)) {
            FileDescriptor socket = connect_to(address, steady_now() + 2'000'000'000, why);
            if (!socket.valid() && why == errno_text(ECONNREFUSED)) {
                peer.watch.suspect();
                const bool is_here = is_loopback(address) || added.host == host_;
                if (!is_here && !rules_.trust_resets) return Conclusion::refuses;
                peer.is_gone = true;
                return Conclusion::ended;
            }
            const JobToken key = secret_.of_job("mesh");
            if (!socket.valid() || !send_all(socket.get(), greeting(me_, member, key), steady_now())) continue;
            begin(member, key, std::move(socket));
            introduce(member);
            return Conclusion::none;
        }
        peer.watch.suspect(); // no answer, which proves nothing
        return Conclusion::none;
    }
    /// Called when all other members of the world are there. The system still answers connections
    /// in this process's name: from that others know that it lives.
    void stop_listening() {
        welcomes_ = false;
        arrivals_.clear();
    }
    /// The address at which others reach this process.
    [[nodiscard]] const std::string& host() const { return host_; }
    [[nodiscard]] bool is_on_loopback() const { return loopback_; }
    /// Names the job. All members can derive it; it tells nothing about the secret.
    [[nodiscard]] std::uint64_t job() const {
        std::uint64_t number = 1; // 0: no job
        for (const std::uint8_t byte : secret_.of_job("number").value()) number = number << 8 | byte;
        return number | 1;
    }
    /// The secret of an epoch's world. All members can derive it, and none sends it.
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

    /// Waits for messages, at most until the given time. Calls heard(from, bytes) for each message,
    /// lost(from, whether its last messages have arrived) for each death, and refused(from) for a
    /// member whose host refuses connections. If this process was added, calls came(from) for each
    /// member that connects.
    template <class Heard, class Lost, class Refused, class Came>
    void wait(nanoseconds until, Heard heard, Lost lost, Refused refused, Came came) {
        std::vector<pollfd> polled; // for each peer, its connection and its watch
        std::vector<int> who;
        for (int number = 0; number < members(); ++number) {
            const Peer& peer = peers_[static_cast<std::size_t>(number)];
            if (!peer.known || peer.is_gone) continue;
            polled.push_back({peer.socket.get(), static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
            polled.push_back(peer.watch.polled());
            who.push_back(number);
            until = std::min(until, peer.watch.due());
        }
        poll_arrivals(polled);
        if (::poll(polled.data(), polled.size(), poll_timeout(until)) < 0) return;
        if (welcomes_) welcome(came);
        for (std::size_t i = 0; i < who.size(); ++i) {
            const short said = polled[2 * i].revents, watched = polled[2 * i + 1].revents;
            Peer& peer = peers_[static_cast<std::size_t>(who[i])];
            if ((said & POLLOUT) != 0) write(peer);
            if ((said & ~POLLOUT) != 0 || watched != 0) hear(who[i], heard); // before its death is reported
            Peer& left = peers_[static_cast<std::size_t>(who[i])];
            if (left.is_gone) continue;
            const nanoseconds now = steady_now();
            const Conclusion found = left.watch.look(watched, rules_, now);
            if (found == Conclusion::refuses) refused(who[i]);
            if (found != Conclusion::ended) continue;
            left.is_gone = true;
            left.socket.close();
            const bool was_heard = left.watch.evidence().was_heard(now);
            left.watch = {};
            if (!left.said_goodbye) lost(who[i], was_heard);
        }
    }

    /// Waits until the system has taken all messages, at most until `until`.
    void flush(nanoseconds until) {
        for (Peer& peer : peers_)
            while (peer.socket.valid() && !peer.out.empty() && wait_for(peer.socket.get(), POLLOUT, until)) write(peer);
    }

private:
    struct Peer {
        FileDescriptor socket = {};
        ControlSession seals = {}; ///< seals of frames: each direction has its own key, derived from the secret
        Blob in = {}, out = {};
        ProcessWatch watch = {};
        bool said_goodbye = false;
        bool known = false;
        bool is_gone = false; ///< no message of it can arrive any more
    };
    /// A connection to a process that waits to be added, before its sender is known.
    struct Arrival {
        FileDescriptor socket = {};
        Blob said = {};
        nanoseconds until = 0;
    };
    static constexpr std::size_t most_arrivals = 256;
    static constexpr std::size_t most_bytes = std::size_t{1} << 20;
    static constexpr std::uint8_t card_word = 101; ///< differs from all words of memberships
    static constexpr std::array<char, 8> magic = {'u', 'n', 'i', 'm', 'e', 's', 'h', '4'};

    [[nodiscard]] static Blob from_to(int from, int to) {
        WireWriter out;
        out.u32(static_cast<std::uint32_t>(from));
        out.u32(static_cast<std::uint32_t>(to));
        return out.take();
    }
    /// Names the sender of a connection and proves that it has the key. A proof is valid for one
    /// connection: a second connection of a member is refused.
    [[nodiscard]] static Blob greeting(int from, int to, const JobToken& key) {
        const Blob both = from_to(from, to);
        const Digest proof = authenticate(key, "unisono2 mesh", both);
        WireWriter out;
        out.bytes(std::as_bytes(std::span(magic)));
        out.bytes(std::as_bytes(std::span(proof)));
        out.bytes(both);
        return out.take();
    }
    void begin_to_listen(bool other_hosts) {
        TcpEntrance entrance = open_entrance(TcpOptions{}.with(Environment::of_process()), other_hosts);
        listener_ = std::move(entrance.listener);
        host_ = host_text(entrance.interface.address);
        loopback_ = is_loopback(entrance.interface.address);
        rules_.own_address = host_;
        card_ = ProcessCard::of_this(host_, listener_.port);
    }
    /// Listens although this member was alone, so that others can distinguish it from one that has
    /// ended.
    void listen_alone() {
        try {
            listener_ = listen_at(loopback_, 0);
        } catch (const error&) { // processes of this host identify it by its pid
        }
        card_ = ProcessCard::of_this(host_, listener_.port);
    }
    /// Tells a peer whose connection was made after the first world which process this is.
    void introduce(int peer) {
        WireWriter out;
        out.u8(card_word);
        card_.write(out);
        send(peer, out.take());
    }
    static bool read_card(const Blob& frame, ProcessCard& card) {
        WireReader in(frame);
        if (in.u8() != card_word) return false;
        card = ProcessCard::read(in);
        return in.finished();
    }
    Peer& peer_at(int number) {
        if (number >= members()) peers_.resize(static_cast<std::size_t>(number) + 1);
        return peers_[static_cast<std::size_t>(number)];
    }
    void poll_arrivals(std::vector<pollfd>& polled) const {
        if (!welcomes_) return;
        polled.push_back({listener_.socket.get(), POLLIN, 0});
        for (const Arrival& one : arrivals_) polled.push_back({one.socket.get(), POLLIN, 0});
    }
    /// Accepts peers that have proven their identity, without waiting.
    template <class Came>
    void welcome(Came came) {
        const nanoseconds now = steady_now();
        for (int i = 0; i < 64; ++i) {
            FileDescriptor socket(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
            if (was_added_) introduce(from);
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

    /// Accepts the connections of higher ranks, in any order, and handles those of strangers.
    void accept(nanoseconds deadline) {
        for (int missing = members() - 1 - me_; missing > 0;) {
            std::vector<pollfd> polled;
            poll_arrivals(polled);
            static_cast<void>(::poll(polled.data(), polled.size(), poll_timeout(deadline)));
            welcome([&](int) { --missing; });
            if (missing > 0 && steady_now() >= deadline) throw_missing();
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
            else if (sent < 0 && errno == EAGAIN) return;
            else return peer.out.clear(); // the next read finds the reason
        }
    }
    /// Returns false at the end of the connection, whatever the reason.
    static bool read(Peer& peer) {
        std::byte buffer[16384];
        for (;;) {
            const ssize_t got = ::recv(peer.socket.get(), buffer, sizeof buffer, 0);
            if (got > 0) peer.in.insert(peer.in.end(), buffer, buffer + got);
            else if (got < 0 && errno == EAGAIN) return true;
            else if (got == 0 || errno != EINTR) return false;
        }
    }
    /// Reads from a peer, and passes its messages on.
    template <class Heard>
    void hear(int from, Heard heard) {
        const auto peer = [&]() -> Peer& { return peers_[static_cast<std::size_t>(from)]; };
        if (!peer().socket.valid()) return;
        bool is_whole = read(peer());
        for (std::size_t used = 0; next_frame(peer(), used);) {
            const auto said = std::span(std::as_const(peer().in));
            const std::span<const std::uint8_t> code(reinterpret_cast<const std::uint8_t*>(said.data()) + used,
                                                     Seal::bytes);
            if (!equal_in_constant_time(code, peer().seals.in.next(digest_of(said.first(used))))) {
                is_whole = false; // not the peer's frame, so it proves nothing about the peer
                break;
            }
            const Blob frame(said.begin() + 4, said.begin() + static_cast<std::ptrdiff_t>(used));
            peer().in.erase(peer().in.begin(), peer().in.begin() + static_cast<std::ptrdiff_t>(used + Seal::bytes));
            peer().said_goodbye = peer().said_goodbye || is_goodbye(frame);
            ProcessCard card;
            if (read_card(frame, card)) peer().watch.know(card);
            else heard(from, frame);
        }
        if (is_whole && !is_too_long(peer())) return;
        peer().in.clear();
        peer().out.clear();
        peer().socket.close();
        if (peer().said_goodbye) peer().is_gone = true;
        else peer().watch.suspect();
    }
    /// `used`: bytes of the frame with its length, but without its seal.
    static bool next_frame(const Peer& peer, std::size_t& used) {
        if (peer.in.size() < 4) return false;
        WireReader in(peer.in);
        const std::size_t length = in.u32();
        used = 4 + length;
        return length <= most_bytes && peer.in.size() >= used + Seal::bytes;
    }
    static bool is_too_long(const Peer& peer) { return peer.in.size() >= 4 && WireReader(peer.in).u32() > most_bytes; }

    int me_;
    int owner_ = ::getpid();
    std::uint64_t host_number_ = host_number();
    ProofRules rules_;
    std::string host_ = "127.0.0.1";
    bool loopback_ = true;
    JobToken secret_;
    bool was_added_ = false;
    std::vector<Peer> peers_; ///< indexed by members' numbers
    ProcessCard card_;        ///< card of this process
    Listener listener_;       ///< open during this member's lifetime
    bool welcomes_ = true;    ///< accepts connections
    std::vector<Arrival> arrivals_;
};

} // namespace detail
UNISONO_NAMESPACE_END
