#pragma once

/// \file
/// A rank's sockets: one that listens, and one connection to each peer that was used, or several
/// once a message is large enough to be cut into stripes (TcpLink).
///
/// The choice of the connection: the rank that needs one first connects, and both prove themselves
/// (frames.hpp); the other answers `accepted`, and messages follow. If both connect at once, the
/// lower rank's connection is used: it answers the other's proof with `taken`, and the higher rank
/// drops its own when it has the lower one's proof. No message is sent before the answer, so
/// nothing is lost, and there is never a second connection with the same number.

#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/secrets/sha256.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/extensions/tcp/frames.hpp"
#include "unisono/extensions/tcp/link.hpp"
#include "unisono/transport/patience.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <linux/sockios.h>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class TcpWire {
public:
    static constexpr bool grows = true;
    /// Smaller messages are assembled in the link's buffer.
    static constexpr std::size_t lands_from = TcpLink::inside_bytes + 1;

    TcpWire(std::shared_ptr<NetworkWorld> world, int rank, TcpEntrance entrance)
        : world_(std::move(world)), rank_(rank), entrance_(std::move(entrance)),
          links_(static_cast<std::size_t>(world_->size()) * static_cast<std::size_t>(entrance_.links)),
          patience_(world_->more_ranks_than_cores(), few_attempts) {}

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        if (known(peer, 0) == nullptr) [[unlikely]]
            begin_to_connect(peer, 0, 1);
        TcpLink& first = *known(peer, 0);
        const int connections = entrance_.links;
        if (connections == 1 || envelope.bytes < entrance_.striped_bytes) return first.send(envelope, data, token);
        for (int i = 1; i < connections; ++i) // those that the peer makes arrive in any order
            if (known(peer, i) == nullptr) [[unlikely]]
                begin_to_connect(peer, i, connections);
        std::size_t waiting = 0;
        for (int i = 0; i < connections; ++i) waiting += known(peer, i)->send_stripe(envelope, data) ? 0 : 1;
        return !first.stripes()->leave(token, waiting);
    }

    /// Throws if ranks whose addresses are known make different numbers of connections; the text is
    /// the same on all ranks if all addresses are known. Errors: refused.
    void compare_connections() const {
        int other = -1;
        std::uint32_t others = 0;
        for (int each = 0; each < world_->size(); ++each) {
            TcpAddress address;
            if (!address.read(world_->address(each))) continue;
            if (other >= 0 && address.connections != others)
                throw error(ErrorCode::refused,
                            concat({"tcp: rank ", each, " makes ", address.connections, " connections to a peer, rank ",
                                    other, " ", others,
                                    "; expected the same TcpOptions::connections, or UNISONO_TCP_CONNECTIONS, on all "
                                    "ranks"}));
            other = each;
            others = address.connections;
        }
    }

    template <class Handler>
    void poll(Handler& handler) {
        const bool sweep = unsettled_ || ++polls_ % sweep_every == 0;
        if (sweep) look_around(handler);
        for (TcpLink* const link : used_) {
            if (link->is_sending()) link->flush(handler);
            if (link->state() == TcpLink::State::open && (link->is_receiving() || has_hope(*link, handler)))
                receive(*link, handler);
            if (link->take_moved()) quiet_ = 0;
        }
    }

    /// Stays awake for a while, then sleeps until bytes arrive. The bytes of a large message arrive
    /// long before it is complete; while they do, a poll is not fruitless.
    void idle(std::uint32_t attempt, nanoseconds until) {
        const std::uint32_t quiet = quiet_++;
        if (quiet == 0) return; // there may be more
        attempt = std::min(attempt, quiet);
        if (one_lost())
            return idle_on_host(patience_, attempt, until); // the system would return at once for a lost one
        if (patience_.stays_awake(attempt)) return;
        const nanoseconds left = std::min<nanoseconds>(until == never ? never : until - steady_now(),
                                                       std::max(longest_sleep, sleep_after(patience_.waited())));
        if (left <= 0) return;
        collect(true);
        const timespec time{.tv_sec = 0, .tv_nsec = left};
        if (::ppoll(polled_.data(), polled_.size(), &time, nullptr) > 0) polls_ = sweep_every - 1;
        patience_.woke();
    }

    void forget() {
        for (TcpLink* const link : used_) link->forget();
    }

    void goodbye(nanoseconds until) {
        for (TcpLink* const link : used_)
            if (link->state() == TcpLink::State::open) link->send_goodbye();
        AnyFrameHandler ignore;
        for (TcpLink* const link : used_) {
            while (link->may_send() && steady_now() < until) {
                link->flush(ignore);
                int unread = 0; // by the peer's system
                if (!link->is_sending() && (::ioctl(link->fd(), SIOCOUTQ, &unread) != 0 || unread == 0)) break;
                pollfd one{.fd = link->fd(), .events = 0, .revents = 0};
                if (::poll(&one, 1, 0) > 0) break; // the peer is gone
                sleep_for(20'000);
            }
            if (link->fd() >= 0) ::shutdown(link->fd(), SHUT_WR);
        }
    }

    [[nodiscard]] bool lost(int peer) const { return find(peer, &TcpLink::lost) != nullptr; }
    [[nodiscard]] bool said_goodbye(int peer) const { // follows the first stripe of every message
        const TcpLink* const first = known(peer, 0).get();
        return first != nullptr && first->said_goodbye() && !first->stripes()->arrive();
    }
    [[nodiscard]] bool sending(int peer) const { return find(peer, &TcpLink::is_sending) != nullptr; }
    /// True if no bytes of the peer can arrive any more, neither on its connections nor on ones not
    /// accepted yet.
    [[nodiscard]] bool quiet(int peer) {
        collect(false);
        ::poll(polled_.data(), polled_.size(), 0);
        hear_guests(polled_.data() + 1 + used_.size(), guests_.size());
        accept_some();
        return !guests_.has_new(steady_now()) && find(peer, &TcpLink::may_bring) == nullptr;
    }

    [[nodiscard]] std::string address() const { return entrance_.address().describe(); }
    [[nodiscard]] std::size_t connections() const { return used_.size(); }

    [[nodiscard]] std::string describe(int peer) const {
        TcpAddress address;
        std::string text = address.read(world_->address(peer)) ? address.describe() : "no address yet";
        const TcpLink* known = find(peer, &TcpLink::lost);
        if (known == nullptr) known = find(peer, &TcpLink::is_unsettled);
        if (known == nullptr) known = this->known(peer, 0).get();
        if (known == nullptr) return text + ", not connected";
        if (known->number() != 0) text += concat({", connection ", known->number() + 1, " of ", entrance_.links});
        if (known->state() != TcpLink::State::open && known->state() != TcpLink::State::ended && !known->why().empty())
            text += concat({", connection lost and tried again: ", known->why()});
        switch (known->state()) {
        case TcpLink::State::unknown: break;
        case TcpLink::State::connecting: text += ", which has not answered the attempt to connect"; break;
        case TcpLink::State::greeting: text += ", where no rank has answered the greeting"; break;
        case TcpLink::State::awaited: text += ", whose own connection has not come"; break;
        case TcpLink::State::open: text += ", connected"; break;
        case TcpLink::State::ended:
            text += known->said_goodbye() ? ", which said goodbye" : concat({", connection lost: ", known->why()});
        }
        return text;
    }

private:
    static constexpr std::uint32_t sweep_every = 32;  ///< polls of connections from which nothing is expected are rare
    static constexpr std::uint32_t few_attempts = 16; ///< each asks the system
    /// In a short wait: what the control plane learns wakes no rank.
    static constexpr nanoseconds longest_sleep = 1'000'000;
    static constexpr int greeting_may_wait_ms = 2; ///< for a connection to be made: some round trips of a local network
    static constexpr nanoseconds between_attempts = 20'000'000;

    /// The connection to a peer with this number; nullptr: not used yet.
    [[nodiscard]] std::unique_ptr<TcpLink>& known(int peer, int number) {
        return links_[static_cast<std::size_t>(peer) * static_cast<std::size_t>(entrance_.links) +
                      static_cast<std::size_t>(number)];
    }
    [[nodiscard]] const std::unique_ptr<TcpLink>& known(int peer, int number) const {
        return const_cast<TcpWire*>(this)->known(peer, number);
    }
    /// The first connection to a peer for which `is` is true.
    [[nodiscard]] const TcpLink* find(int peer, bool (TcpLink::*is)() const) const {
        for (int i = 0; i < entrance_.links; ++i) {
            const TcpLink* const link = known(peer, i).get();
            if (link != nullptr && (link->*is)()) return link;
        }
        return nullptr;
    }

    TcpLink& begin(int peer, int number) {
        const TcpLink* const other = find(peer, &TcpLink::is_used);
        auto& link = known(peer, number);
        link = std::make_unique<TcpLink>(
            peer, number, other != nullptr ? other->stripes() : std::make_shared<TcpStripes>(entrance_.links));
        used_.push_back(link.get());
        unsettled_ = true;
        return *link;
    }
    /// Makes the missing connections with these numbers: starts all before it waits for one.
    void begin_to_connect(int peer, int from, int to) {
        for (int i = from; i < to; ++i)
            if (known(peer, i) == nullptr) connect(begin(peer, i));
        for (int i = from; i < to; ++i) greet_at_once(*known(peer, i));
    }

    /// True if a receive is posted for messages that this connection may bring.
    template <class Handler>
    [[nodiscard]] bool has_hope(const TcpLink& link, const Handler& handler) const {
        return link.number() == 0 ? handler.awaits(link.peer())
                                  : handler.awaited_bytes(link.peer()) >= entrance_.striped_bytes;
    }

    /// Begins to connect, if the peer has an address.
    void connect(TcpLink& link) {
        TcpAddress address;
        if (!address.read(world_->address(link.peer()))) return;
        const auto open = [&] {
            return ::socket(address.socket.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        };
        int opened = open();
        while (opened < 0 && (errno == EMFILE || errno == ENFILE) && guests_.give_descriptor()) opened = open();
        FileDescriptor socket(opened);
        if (!socket.valid()) return link.end(errno_text(errno));
        const SocketAddress& own = entrance_.interface.address; // connects from the interface at which it listens
        const int on = 1;
        ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on); // ports are few
        const auto* const to = reinterpret_cast<const sockaddr*>(&address.socket.storage);
        if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own.storage), own.length) != 0)
            return link.end(concat({"cannot leave by interface ", entrance_.interface.name, ": ", errno_text(errno)}));
        if (::connect(socket.get(), to, address.socket.length) != 0 && errno != EINPROGRESS && errno != EINTR)
            return link.end(errno_text(errno));
        link.become(TcpLink::State::connecting, std::move(socket));
    }

    void set_up(int fd) const {
        set_up_connection(fd);
        if (!entrance_.congestion_control.empty()) set_congestion_control(fd, entrance_.congestion_control);
    }

    /// Greets at once, since a peer drops a silent connection, and this rank may compute for long
    /// before it polls again.
    void greet_at_once(TcpLink& link) {
        if (link.state() != TcpLink::State::connecting) return;
        pollfd one{.fd = link.fd(), .events = POLLOUT, .revents = 0};
        if (::poll(&one, 1, greeting_may_wait_ms) == 1) greet(link);
    }

    /// The peer ended the connection before it welcomed this rank, perhaps after a long wait. The
    /// rank tries again, until its deadline. If the peer no longer listens, the next attempt fails.
    static bool may_try_again(int failed) { return failed == ECONNRESET || failed == EPIPE; }
    void try_again(TcpLink& link) {
        link.end("it ended before it answered the greeting");
        link.become(TcpLink::State::unknown);
        try_again_at_ = steady_now() + between_attempts;
        unsettled_ = true;
    }

    void greet(TcpLink& link) {
        int failed = 0;
        socklen_t length = sizeof failed;
        ::getsockopt(link.fd(), SOL_SOCKET, SO_ERROR, &failed, &length);
        if (may_try_again(failed)) return try_again(link);
        if (failed != 0) return link.end(errno_text(failed));
        set_up(link.fd());
        auto call = std::make_unique<TcpCall>(rank_, link.peer(), world_->size(), link.number());
        const Blob& hello = call->hello();
        const ssize_t sent = ::send(link.fd(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != static_cast<ssize_t>(hello.size())) {
            if (may_try_again(errno)) return try_again(link);
            return link.end(errno_text(errno));
        }
        link.greeted(std::move(call));
    }

    /// Reads the peer's answer to the greeting.
    void hear_answer(TcpLink& link) {
        using Heard = TcpCall::Answer;
        switch (link.hear_answer(world_->key())) {
        case Heard::waits:
        case Heard::accepted: break;
        case Heard::taken: link.become(TcpLink::State::awaited); break;
        case Heard::stranger: link.end(TcpLink::no_key); break;
        case Heard::ended: try_again(link); break;
        case Heard::failed: link.end(errno_text(errno));
        }
    }

    template <class Handler>
    void receive(TcpLink& link, Handler& handler) {
        if (link.state() == TcpLink::State::greeting) hear_answer(link);
        else link.receive(handler);
    }

    [[nodiscard]] bool one_lost() const {
        return std::any_of(used_.begin(), used_.end(), [](const TcpLink* link) { return link->lost(); });
    }

    /// Accepts a few connections at a time, so that a flood does not hold up this rank. Reads at
    /// once from those that have sent bytes.
    void accept_some() {
        guests_.accept(entrance_.listener.socket.get(), world_->key(),
                       [&](const Hello& hello, const ControlSession& session, FileDescriptor socket) {
                           let_in(hello, session, std::move(socket));
                       });
    }

    /// Reads from those of the first `count` guests that have an event in `asked`.
    void hear_guests(const pollfd* asked, std::size_t count) {
        guests_.hear(
            world_->key(),
            [&](const Hello& hello, const ControlSession& session, FileDescriptor socket) {
                let_in(hello, session, std::move(socket));
            },
            asked, count);
    }

    /// Adopts the connection of a rank of this world, which has proven itself.
    void let_in(const Hello& hello, const ControlSession& session, FileDescriptor socket) {
        const auto size = static_cast<std::uint32_t>(world_->size());
        if (hello.to != static_cast<std::uint32_t>(rank_) || hello.world != size || hello.rank >= size ||
            hello.rank == hello.to || hello.connection >= entrance_.links)
            return;
        const int peer = static_cast<int>(hello.rank);
        const auto& before = known(peer, hello.connection);
        TcpLink& link = before != nullptr ? *before : begin(peer, hello.connection);
        using State = TcpLink::State;
        if (link.state() == State::open || link.state() == State::ended) return;
        set_up(socket.get());
        const bool mine_counts = rank_ < peer && (link.state() == State::connecting || link.state() == State::greeting);
        // The first frame on a new connection, which takes it at once.
        const Blob answer = TcpCall::answer(mine_counts ? FrameKind::taken : FrameKind::accepted, session);
        const bool sent = ::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                          static_cast<ssize_t>(answer.size());
        if (mine_counts) return;
        link.become(State::open, std::move(socket));
        if (!sent) link.end("it ended at once");
    }

    /// Collects the connections with input, and with `all` also those whose queue can be sent.
    void collect(bool all) {
        polled_.clear();
        const bool is_crowded =
            guests_.opens() != 0 && guests_.opens() > steady_now(); // it would wake this rank repeatedly
        polled_.push_back({is_crowded ? -1 : entrance_.listener.socket.get(), POLLIN, 0});
        for (TcpLink* const link : used_) {
            const bool connecting = link->state() == TcpLink::State::connecting;
            const bool sends = connecting || (all && link->is_sending() && link->may_send());
            const bool reads = !connecting && !link->is_stalled();
            const int fd = reads || sends ? link->fd() : -1; // else its end would wake this rank repeatedly
            polled_.push_back({fd, static_cast<short>((reads ? POLLIN : 0) | (sends ? POLLOUT : 0)), 0});
        }
        for (std::size_t i = 0; i < guests_.size(); ++i) polled_.push_back({guests_.fd(i), POLLIN, 0});
    }

    template <class Handler>
    void look_around(Handler& handler) {
        collect(false);
        ::poll(polled_.data(), polled_.size(), 0);
        const std::size_t links = used_.size(), known = guests_.size();
        const bool came = polled_[0].revents != 0;
        unsettled_ = false;
        for (std::size_t i = 0; i < links; ++i) {
            TcpLink& link = *used_[i];
            using State = TcpLink::State;
            if (link.state() == State::unknown && steady_now() >= try_again_at_) connect(link), greet_at_once(link);
            else if (polled_[i + 1].revents != 0 && link.state() == State::connecting) greet(link);
            else if (polled_[i + 1].revents != 0) receive(link, handler);
            unsettled_ = unsettled_ || (link.state() != State::open && link.state() != State::ended);
        }
        hear_guests(polled_.data() + 1 + links, known);
        if (came) accept_some();
    }

    std::shared_ptr<NetworkWorld> world_;
    int rank_;
    TcpEntrance entrance_;
    std::vector<std::unique_ptr<TcpLink>> links_; ///< by peer and number; null until used
    List<TcpLink*> used_;
    Guests guests_{Door::data};
    List<pollfd> polled_;
    std::uint32_t polls_ = 0;
    std::uint32_t quiet_ = 0; ///< calls of `idle` since any byte moved
    nanoseconds try_again_at_ = 0;
    bool unsettled_ = false; ///< connections are being made
    Patience patience_;
};

} // namespace detail
UNISONO_NAMESPACE_END
