#pragma once

/// \file
/// The proof that another process has ended. The end of its connection is no proof: a router that
/// forgets connections, or one forged packet in each direction, ends the connections of processes
/// that live. Proofs are:
///
/// - On this host: the system reports the end through a descriptor of the process. It does so at
///   once, even if a child of the process still holds its connections.
/// - On another host: the system there refuses a connection to the port on which the process
///   listens as long as it lives. An answer proves nothing, and neither does silence.

#include "unisono/launch/host.hpp"
#include "unisono/launch/socket.hpp"
#include "unisono/launch/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The location of a process, as it describes itself.
struct ProcessCard {
    std::uint64_t space = 0; ///< equal for processes that see each other's pids (host_number)
    std::uint64_t pid = 0;
    std::uint64_t born = 0;   ///< start time in the system's clock ticks; 0: unknown
    std::string address = {}; ///< the address on which it listens as long as it lives
    std::uint16_t port = 0;   ///< 0: it does not listen

    [[nodiscard]] static std::uint64_t birth_of(int pid) {
        std::uint64_t ticks = 0;
        return parse_number(process_field(pid, 22), std::uint64_t{1}, ~std::uint64_t{0}, ticks) ? ticks : 0;
    }
    [[nodiscard]] static ProcessCard of_this(std::string address, std::uint16_t port) {
        return {.space = host_number(),
                .pid = static_cast<std::uint64_t>(::getpid()),
                .born = birth_of(::getpid()),
                .address = std::move(address),
                .port = port};
    }
    void write(WireWriter& out) const {
        for (const std::uint64_t number : {space, pid, born}) out.u64(number);
        out.u32(port);
        out.text(address);
    }
    [[nodiscard]] static ProcessCard read(WireReader& in) {
        ProcessCard card;
        for (std::uint64_t* const number : {&card.space, &card.pid, &card.born}) *number = in.u64();
        card.port = static_cast<std::uint16_t>(in.u32());
        card.address = in.text();
        return card;
    }
};

/// Watches one other process. One thread uses it. No function waits.
class ProcessWatch {
public:
    /// Sets the process, which lives or has just ended.
    void know(const ProcessCard& card) {
        address_ = card.address;
        port_ = card.port;
        if (card.space != host_number() || card.pid == 0 || card.pid > most_pid || card.born == 0) return;
        const int pid = static_cast<int>(card.pid);
        process_ = open_process(pid);
        // If another process has that number by now, or on this host, its end proves nothing.
        if (process_.valid() && ProcessCard::birth_of(pid) != card.born) process_.close();
    }
    void know_address(std::string address, std::uint16_t port) {
        address_ = std::move(address);
        port_ = port;
    }
    /// Called when the connection has ended without a goodbye.
    void suspect() {
        suspected_ = true;
        since_ = steady_now();
    }
    /// For a process that has ended: true if it had lived on without its connection, so that its
    /// last messages have not arrived. When a process ends, the system closes its connections
    /// first, and needs a moment for the rest.
    [[nodiscard]] bool was_cut(nanoseconds now) const { return suspected_ && now - since_ > longest_end; }

    /// For a poll; no descriptor: there is nothing to poll.
    [[nodiscard]] pollfd polled() const {
        if (process_.valid()) return {process_.get(), POLLIN, 0};
        return {asked_.get(), static_cast<short>(connects_ ? POLLOUT : POLLIN), 0};
    }
    /// The time at which `has_ended` must be called even without a result of a poll.
    [[nodiscard]] nanoseconds due() const {
        return suspected_ && !process_.valid() && !asked_.valid() && port_ != 0 ? due_ : never;
    }
    /// True if there is a proof. `revents`: the result of a poll of `polled`, or 0.
    [[nodiscard]] bool has_ended(short revents, nanoseconds now) {
        if (process_.valid()) return revents != 0;
        if (!suspected_ || port_ == 0) return false;
        if (!asked_.valid()) return now >= due_ && ask(now);
        if (revents == 0) return false;
        if (!connects_) { // the process has ended, or closes connections on which nothing is sent
            asked_.close();
            return due_ <= now && ask(now);
        }
        int failed = 0;
        socklen_t length = sizeof failed;
        ::getsockopt(asked_.get(), SOL_SOCKET, SO_ERROR, &failed, &length);
        return judge(failed);
    }

private:
    static constexpr std::uint64_t most_pid = std::uint64_t{1} << 30;
    static constexpr nanoseconds first_pause = 5'000'000, longest_pause = 1'000'000'000, longest_end = 1'000'000'000;

    /// Connects to the process, and keeps the connection: its end is the next suspicion.
    bool ask(nanoseconds now) {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, longest_pause);
        std::string why;
        for (const SocketAddress& address : resolve(address_, port_, why)) {
            FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (!socket.valid()) return false;
            const int on = 1; // distinguishes a firewall's refusal from that of the host
            if (address.storage.ss_family == AF_INET) setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
            else setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
            const int failed =
                ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0
                    ? 0
                    : errno;
            asked_ = std::move(socket);
            connects_ = failed == EINPROGRESS || failed == EINTR;
            return !connects_ && judge(failed);
        }
        return false;
    }
    /// Evaluates a connection that was made, or has failed with this error.
    bool judge(int failed) {
        connects_ = false;
        // Connected, which proves nothing: watches this connection.
        if (failed == 0 && !has_met_itself(asked_.get())) {
            set_up_connection(asked_.get());
            return false;
        }
        std::byte one{};
        const bool by_a_router = ::recv(asked_.get(), &one, 1, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0;
        asked_.close();
        return failed == 0 || (failed == ECONNREFUSED && !by_a_router);
    }

    std::string address_;
    std::uint16_t port_ = 0;
    FileDescriptor process_; ///< of a process on this host
    FileDescriptor asked_;   ///< a connection to a suspected process on another host
    bool connects_ = false;  ///< the connection is not made yet
    bool suspected_ = false;
    nanoseconds since_ = 0, due_ = 0, pause_ = first_pause;
};

} // namespace detail
UNISONO_NAMESPACE_END
