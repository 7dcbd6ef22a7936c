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
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/extensions/network/options.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/extensions/tcp/frames.hpp"
#include "unisono/extensions/tcp/link.hpp"
#include "unisono/transport/patience.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

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

class TcpWire {
public:
    static constexpr bool grows = true;
    /// Smaller messages are assembled in the link's buffer.
    static constexpr std::size_t lands_from = TcpLink::inside_bytes + 1;

    TcpWire(std::shared_ptr<NetworkWorld> world, int rank, TcpEntrance entrance)
        : world_(std::move(world)), rank_(rank), entrance_(std::move(entrance)),
          links_(static_cast<std::size_t>(world_->size()) * static_cast<std::size_t>(entrance_.links)),
          patience_(world_->more_ranks_than_cores(), few_attempts) {}

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token);

    /// Throws if ranks whose addresses are known make different numbers of connections; the text is
    /// the same on all ranks if all addresses are known. Errors: refused.
    void compare_connections() const;

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
    void idle(std::uint32_t attempt, nanoseconds until);

    void forget() {
        for (TcpLink* const link : used_) link->forget();
    }

    void goodbye(nanoseconds until);

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

    [[nodiscard]] std::string describe(int peer) const;

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

    TcpLink& begin(int peer, int number);
    /// Makes the missing connections with these numbers: starts all before it waits for one.
    void begin_to_connect(int peer, int from, int to);

    /// True if a receive is posted for messages that this connection may bring.
    template <class Handler>
    [[nodiscard]] bool has_hope(const TcpLink& link, const Handler& handler) const {
        return link.number() == 0 ? handler.awaits(link.peer())
                                  : handler.awaited_bytes(link.peer()) >= entrance_.striped_bytes;
    }

    /// Begins to connect, if the peer has an address.
    void connect(TcpLink& link);

    void set_up(int fd) const;

    /// Greets at once, since a peer drops a silent connection, and this rank may compute for long
    /// before it polls again.
    void greet_at_once(TcpLink& link);

    /// The peer ended the connection before it welcomed this rank, perhaps after a long wait. The
    /// rank tries again, until its deadline. If the peer no longer listens, the next attempt fails.
    static bool may_try_again(int failed) { return failed == ECONNRESET || failed == EPIPE; }
    void try_again(TcpLink& link);

    void greet(TcpLink& link);

    /// Reads the peer's answer to the greeting.
    void hear_answer(TcpLink& link);

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
    void accept_some();

    /// Reads from those of the first `count` guests that have an event in `asked`.
    void hear_guests(const pollfd* asked, std::size_t count);

    /// Adopts the connection of a rank of this world, which has proven itself.
    void let_in(const Hello& hello, const ControlSession& session, FileDescriptor socket);

    /// Collects the connections with input, and with `all` also those whose queue can be sent.
    void collect(bool all);

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
