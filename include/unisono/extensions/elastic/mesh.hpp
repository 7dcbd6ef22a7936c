#pragma once

/// \file
/// One connection between any two members while both live, after a handshake by which each proves
/// to the other that it has the members' secret (launch/secrets/proof.hpp). While ranks train, no
/// member reads it, so it costs nothing. The end of a connection without a goodbye is only a
/// suspicion; evidence.hpp defines the proofs of a death. A connection that has ended is
/// not made again: until its other end is known to be dead, it counts as silent.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"
#include "unisono/extensions/elastic/process_watch.hpp"
#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/extensions/tcp/tcp.hpp"

#include <algorithm>
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
        out.put(JobToken::random().value());
        card_.write(out);
        const Blob mine = out.take();
        const std::vector<Blob> cards = control.all_gather(mine, deadline);
        secret_ = control.derive_key("elastic", std::span(cards[0]).first(std::min(cards[0].size(), JobToken::bytes)));
        std::vector<ProcessCard> places;
        for (int peer = 0; peer < members(); ++peer) {
            WireReader in(cards[static_cast<std::size_t>(peer)]);
            static_cast<void>(in.bytes(JobToken::bytes));
            places.push_back(ProcessCard::read(in));
            if (peer == me_) continue;
            peers_[static_cast<std::size_t>(peer)].watch.know(places.back());
            if (peer < me_) connect(peer, places.back(), deadline);
        }
        meet_all(places, deadline);
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
        const NotCancelled whole;
        if (owner_ == ::getpid()) flush(steady_now() + 500'000'000);
    }

    /// ElasticOptions::trust_resets and patience.
    void set_rules(bool trust_resets, nanoseconds patience) { rules_ = {host_, trust_resets, patience}; }
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
                peer.watch.end(is_here);
                return Conclusion::ended;
            }
            if (!socket.valid()) continue;
            call(member, std::move(socket));
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
        guests_.clear();
    }
    /// The address at which others reach this process.
    [[nodiscard]] const std::string& host() const { return host_; }
    /// UNISONO_PORT_RANGE: the ports that other members reach.
    [[nodiscard]] const PortRange& ports() const { return ports_; }
    /// Listens for processes of other hosts, if there are any. Errors: refused.
    [[nodiscard]] Listener listen() const { return listen_in(ports_, loopback_); }
    /// Names the job. All members can derive it; it tells nothing about the secret.
    [[nodiscard]] std::uint64_t job() const { return fnv1a(fnv_basis, secret_.of_job("number").text()) | 1; }
    /// The secret of an epoch's world. All members can derive it, and none sends it.
    [[nodiscard]] JobToken secret_of(std::uint64_t epoch) const { return secret_.of_job(concat({"epoch ", epoch})); }

    void send(int to, const Blob& payload) {
        if (!knows(to)) return;
        Peer& peer = peers_[static_cast<std::size_t>(to)];
        if (!peer.socket.valid()) return;
        WireWriter out;
        out.u32(static_cast<std::uint32_t>(payload.size()));
        out.bytes(payload);
        if (peer.call) peer.waiting.push_back(out.take());
        else seal_and_write(peer, out.take());
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
        until = std::min(until, poll_guests(polled));
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
            const bool was_heard = left.watch.evidence().was_heard(now, rules_.patience);
            left.watch.end(false);
            if (!left.said_goodbye) lost(who[i], was_heard);
        }
    }

    /// Waits until the system has taken all messages, at most until `until`.
    void flush(nanoseconds until) {
        for (Peer& peer : peers_) {
            while (peer.call && wait_for(peer.socket.get(), POLLIN, until) && read(peer) && answer_call(peer)) {
            }
            while (peer.socket.valid() && !peer.out.empty() && wait_for(peer.socket.get(), POLLOUT, until)) write(peer);
        }
    }

private:
    struct Peer {
        FileDescriptor socket = {};
        ControlSession seals = {}; ///< seals of frames: each direction has its own key, derived from the secret
        Blob in = {}, out = {};
        std::optional<Greeter> call = {}; ///< this member has connected, and the other one has not proven itself yet
        std::vector<Blob> waiting = {};   ///< frames for after that
        ProcessWatch watch = {};
        bool said_goodbye = false;
        bool known = false;
        bool is_gone = false; ///< no message of it can arrive any more
    };
    static constexpr std::size_t most_bytes = std::size_t{1} << 20;
    static constexpr std::uint8_t card_word = 101; ///< differs from all words of memberships

    void begin_to_listen(bool other_hosts) {
        const TcpOptions options = TcpOptions{}.with(Environment::of_process());
        TcpEntrance entrance = open_entrance(options, other_hosts);
        listener_ = std::move(entrance.listener);
        ports_ = options.port_range;
        host_ = host_text(entrance.interface.address);
        loopback_ = is_loopback(entrance.interface.address);
        rules_.own_address = host_;
        card_ = ProcessCard::of_this(host_, listener_.port);
    }
    /// Listens although this member was alone, so that others can distinguish it from one that has
    /// ended.
    void listen_alone() {
        try {
            listener_ = listen();
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
    /// Returns the time of the next poll, if a crowd of strangers closes the door until then.
    nanoseconds poll_guests(std::vector<pollfd>& polled) const {
        if (!welcomes_) return never;
        const nanoseconds opens = guests_.opens(), now = steady_now();
        if (opens <= now) polled.push_back({listener_.socket.get(), POLLIN, 0});
        for (std::size_t i = 0; i < guests_.size(); ++i) polled.push_back({guests_.fd(i), POLLIN, 0});
        return opens <= now ? never : opens;
    }
    /// Accepts peers that have proven their identity, without waiting.
    template <class Came>
    void welcome(Came came) {
        std::vector<int> here;
        const auto let_in = [&](const Hello& hello, const ControlSession& session, FileDescriptor socket) {
            constexpr std::uint32_t most = most_numbers;
            if (hello.rank >= most || hello.to >= most) return;
            const auto from = static_cast<int>(hello.rank), to = static_cast<int>(hello.to);
            if (from == to || knows(from) || (me_ >= 0 && me_ != to)) return;
            me_ = to;
            Peer& peer = peer_at(from);
            peer.known = true;
            peer.socket = std::move(socket);
            peer.seals = session;
            if (was_added_) introduce(from);
            here.push_back(from);
        };
        guests_.hear(secret_, let_in);
        guests_.accept(listener_.socket.get(), secret_, let_in);
        for (const int from : here) came(from);
    }
    /// Begins a handshake on a connection that this member has made.
    void call(int member, FileDescriptor socket) {
        Peer& peer = peer_at(member);
        peer.known = true;
        peer.socket = std::move(socket);
        peer.call.emplace(Hello{.rank = static_cast<std::uint32_t>(me_),
                                .host = host_number(),
                                .pid = static_cast<std::uint32_t>(::getpid()),
                                .to = static_cast<std::uint32_t>(member),
                                .door = Door::mesh});
        peer.out = peer.call->hello();
        write(peer);
    }
    /// Goes on with a handshake. False: the other end does not have the secret.
    bool answer_call(Peer& peer) {
        Blob proof;
        const Greeted found = peer.call->look(secret_, peer.in, proof);
        if (found != Greeted::proven) return found == Greeted::waits;
        peer.seals = peer.call->session(secret_);
        peer.call.reset();
        append(peer.out, proof);
        for (Blob& frame : std::exchange(peer.waiting, {})) seal_and_write(peer, std::move(frame));
        write(peer);
        return true;
    }
    static void seal_and_write(Peer& peer, Blob frame) {
        peer.seals.out.close(frame);
        append(peer.out, frame);
        write(peer);
    }
    static bool is_goodbye(const Blob& frame) {
        return !frame.empty() && frame[0] == static_cast<std::byte>(MembershipWord::goodbye);
    }

    void connect(int peer, const ProcessCard& place, nanoseconds deadline) {
        std::string why = "no address";
        for (const SocketAddress& address : resolve(place.address, place.port, why)) {
            FileDescriptor socket = connect_to(address, deadline, why);
            if (!socket.valid()) continue;
            return call(peer, std::move(socket));
        }
        throw_unreachable(peer, place, why);
    }
    [[noreturn]] void throw_unreachable(int peer, const ProcessCard& place, const std::string& why) const {
        fail(ErrorCode::refused, peer,
             concat({" cannot reach rank ", peer, " at ", place.address, ":", place.port,
                     " for the membership of an elastic world: ", why}));
    }
    [[noreturn]] void fail(ErrorCode code, int peer, const std::string& what) const {
        throw error(Fault{
            .code = code, .rank = me_, .peer = peer, .operation = "join", .message = concat({"rank ", me_, what})});
    }

    /// Awaits the connections of higher ranks and the answers of lower ones, in any order, and
    /// handles those of strangers.
    void meet_all(const std::vector<ProcessCard>& places, nanoseconds deadline) {
        for (;;) {
            std::vector<pollfd> polled;
            std::vector<int> called, missing;
            for (int peer = 0; peer < members(); ++peer) {
                const Peer& one = peers_[static_cast<std::size_t>(peer)];
                if (peer == me_ || (one.known && !one.call)) continue;
                missing.push_back(peer);
                if (!one.call) continue;
                called.push_back(peer);
                polled.push_back({one.socket.get(), POLLIN, 0});
            }
            if (missing.empty()) return;
            const nanoseconds opens = poll_guests(polled);
            static_cast<void>(::poll(polled.data(), polled.size(), poll_timeout(std::min(deadline, opens))));
            for (std::size_t i = 0; i < called.size(); ++i) {
                Peer& one = peers_[static_cast<std::size_t>(called[i])];
                if (polled[i].revents == 0) continue;
                const ProcessCard& place = places[static_cast<std::size_t>(called[i])];
                const bool is_open = read(one);
                if (!answer_call(one))
                    throw_unreachable(called[i], place, "the process that listens there does not belong to this job");
                if (is_open || !one.call) continue;
                sleep_for(20'000'000); // it has dropped this connection for those of strangers
                connect(called[i], place, deadline);
            }
            welcome([](int) {});
            if (steady_now() >= deadline)
                fail(ErrorCode::timeout, missing.front(),
                     concat({" waited for ", list_of(missing), " to connect for the membership of an elastic world"}));
        }
    }
    static void write(Peer& peer) {
        while (!peer.out.empty()) {
            const ssize_t sent = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
            if (sent > 0) drop_front(peer.out, static_cast<std::size_t>(sent));
            else if (sent < 0 && errno == EINTR) continue;
            else if (sent < 0 && errno == EAGAIN) return;
            else return peer.out.clear(); // the next read finds the reason
        }
    }
    /// Returns false at the end of the connection, whatever the reason. A peer that has not proven
    /// itself is given little memory.
    static bool read(Peer& peer) {
        constexpr std::size_t most = 16384;
        while (!peer.call || peer.in.size() < most) {
            const ssize_t got = receive_some(peer.socket.get(), peer.in, most);
            if (got <= 0) return got == 0;
        }
        return true;
    }
    /// Reads from a peer, and passes its messages on.
    template <class Heard>
    void hear(int from, Heard heard) {
        const auto peer = [&]() -> Peer& { return peers_[static_cast<std::size_t>(from)]; };
        if (!peer().socket.valid()) return;
        bool is_whole = read(peer());
        if (peer().call) is_whole = answer_call(peer()) && is_whole;
        for (std::size_t used = 0; next_frame(peer(), used);) {
            const auto said = std::span(std::as_const(peer().in));
            const std::span<const std::uint8_t> code(reinterpret_cast<const std::uint8_t*>(said.data()) + used,
                                                     Seal::bytes);
            if (!equal_in_constant_time(code, peer().seals.in.next(digest_of(said.first(used))))) {
                is_whole = false; // not the peer's frame, so it proves nothing about the peer
                break;
            }
            const Blob frame(said.begin() + 4, said.begin() + static_cast<std::ptrdiff_t>(used));
            drop_front(peer().in, used + Seal::bytes);
            peer().said_goodbye = peer().said_goodbye || is_goodbye(frame);
            ProcessCard card;
            if (read_card(frame, card)) peer().watch.know(card);
            else heard(from, frame);
        }
        if (is_whole && !is_too_long(peer())) return;
        peer().in = peer().out = {};
        peer().waiting.clear();
        peer().call.reset();
        peer().socket.close();
        if (peer().said_goodbye) peer().is_gone = true;
        else peer().watch.suspect();
    }
    /// `used`: bytes of the frame with its length, but without its seal.
    static bool next_frame(const Peer& peer, std::size_t& used) {
        if (peer.call || peer.in.size() < 4) return false;
        WireReader in(peer.in);
        const std::size_t length = in.u32();
        used = 4 + length;
        return length <= most_bytes && peer.in.size() >= used + Seal::bytes;
    }
    static bool is_too_long(const Peer& peer) {
        return !peer.call && peer.in.size() >= 4 && WireReader(peer.in).u32() > most_bytes;
    }

    int me_;
    int owner_ = ::getpid();
    std::uint64_t host_number_ = host_number();
    ProofRules rules_;
    std::string host_ = "127.0.0.1";
    bool loopback_ = true;
    PortRange ports_;
    JobToken secret_;
    bool was_added_ = false;
    std::vector<Peer> peers_; ///< indexed by members' numbers
    ProcessCard card_;        ///< card of this process
    Listener listener_;       ///< open during this member's lifetime
    bool welcomes_ = true;    ///< accepts connections
    Guests guests_{Door::mesh};
};

} // namespace detail
UNISONO_NAMESPACE_END
