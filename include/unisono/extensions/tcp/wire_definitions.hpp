#pragma once

/// \file
/// The member functions of TcpWire (wire.hpp) that are no templates. In compiled mode the library
/// has them.

#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/secrets/sha256.hpp"
#include "unisono/extensions/tcp/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <linux/sockios.h>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION bool TcpWire::send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
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

UNISONO_DEFINITION void TcpWire::compare_connections() const {
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

UNISONO_DEFINITION void TcpWire::idle(std::uint32_t attempt, nanoseconds until) {
    const std::uint32_t quiet = quiet_++;
    if (quiet == 0) return; // there may be more
    attempt = std::min(attempt, quiet);
    if (one_lost()) return idle_on_host(patience_, attempt, until); // the system would return at once for a lost one
    if (patience_.stays_awake(attempt)) return;
    const nanoseconds left = std::min<nanoseconds>(until == never ? never : until - steady_now(),
                                                   std::max(longest_sleep, sleep_after(patience_.waited())));
    if (left <= 0) return;
    collect(true);
    const timespec time{.tv_sec = 0, .tv_nsec = left};
    if (::ppoll(polled_.data(), polled_.size(), &time, nullptr) > 0) polls_ = sweep_every - 1;
    patience_.woke();
}

UNISONO_DEFINITION void TcpWire::goodbye(nanoseconds until) {
    for (TcpLink* const link : used_) {
        if (link->state() == TcpLink::State::open) link->send_goodbye();
    }
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

UNISONO_DEFINITION std::string TcpWire::describe(int peer) const {
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

UNISONO_DEFINITION TcpLink& TcpWire::begin(int peer, int number) {
    const TcpLink* const other = find(peer, &TcpLink::is_used);
    auto& link = known(peer, number);
    link = std::make_unique<TcpLink>(
        peer, number, other != nullptr ? other->stripes() : std::make_shared<TcpStripes>(entrance_.links));
    used_.push_back(link.get());
    unsettled_ = true;
    return *link;
}

UNISONO_DEFINITION void TcpWire::begin_to_connect(int peer, int from, int to) {
    for (int i = from; i < to; ++i) {
        if (known(peer, i) == nullptr) connect(begin(peer, i));
    }
    for (int i = from; i < to; ++i) greet_at_once(*known(peer, i));
}

UNISONO_DEFINITION void TcpWire::connect(TcpLink& link) {
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

UNISONO_DEFINITION void TcpWire::set_up(int fd) const {
    set_up_connection(fd);
    if (!entrance_.congestion_control.empty()) set_congestion_control(fd, entrance_.congestion_control);
}

UNISONO_DEFINITION void TcpWire::greet_at_once(TcpLink& link) {
    if (link.state() != TcpLink::State::connecting) return;
    pollfd one{.fd = link.fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&one, 1, greeting_may_wait_ms) == 1) greet(link);
}

UNISONO_DEFINITION void TcpWire::try_again(TcpLink& link) {
    link.end("it ended before it answered the greeting");
    link.become(TcpLink::State::unknown);
    try_again_at_ = steady_now() + between_attempts;
    unsettled_ = true;
}

UNISONO_DEFINITION void TcpWire::greet(TcpLink& link) {
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

UNISONO_DEFINITION void TcpWire::hear_answer(TcpLink& link) {
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

UNISONO_DEFINITION void TcpWire::accept_some() {
    guests_.accept(entrance_.listener.socket.get(), world_->key(),
                   [&](const Hello& hello, const ControlSession& session, FileDescriptor socket) {
                       let_in(hello, session, std::move(socket));
                   });
}

UNISONO_DEFINITION void TcpWire::hear_guests(const pollfd* asked, std::size_t count) {
    guests_.hear(
        world_->key(),
        [&](const Hello& hello, const ControlSession& session, FileDescriptor socket) {
            let_in(hello, session, std::move(socket));
        },
        asked, count);
}

UNISONO_DEFINITION void TcpWire::let_in(const Hello& hello, const ControlSession& session, FileDescriptor socket) {
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

UNISONO_DEFINITION void TcpWire::collect(bool all) {
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

} // namespace detail
UNISONO_NAMESPACE_END
#endif
