#pragma once

/// \file
/// Observes another process. evidence.hpp says what follows.
///
/// - On this host: the system reports the end through a descriptor of the process. It does so at
///   once, even if a child of the process still holds its connections.
/// - Otherwise: the watch connects to the port on which the process listens as long as it lives.
///   If the address is one of this host, a refusal comes from this kernel.

#include "unisono/extensions/elastic/evidence.hpp"
#include "unisono/extensions/launch/control/wire.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/launch/host.hpp"

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
    void write(WireWriter& out) const { out.put(space, pid, born, port, address); }
    [[nodiscard]] static ProcessCard read(WireReader& in) {
        ProcessCard card;
        in.take(card.space, card.pid, card.born, card.port, card.address);
        return card;
    }
};

/// Facts that make a refused connection a proof.
struct ProofRules {
    std::string own_address = {}; ///< at which others reach this process
    bool trust_resets = false;    ///< ElasticOptions::trust_resets
    nanoseconds patience = never; ///< ElasticOptions::patience
};

/// Watches one other process. One thread uses it. No function waits.
class ProcessWatch {
public:
    /// Sets the process, which lives or has just ended.
    void know(const ProcessCard& card) {
        address_ = card.address;
        port_ = card.port;
        host_ = card.space;
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
    /// Equal for processes that see each other's ends; 0: unknown.
    [[nodiscard]] std::uint64_t host() const { return host_; }
    /// Called when the end is proven. A process whose port this kernel refuses has lived on this
    /// host, even if it was in a container that has pids of its own.
    void end(bool is_refused_here) {
        if (is_refused_here || refused_here_) host_ = host_number();
        process_.close();
        asked_.close();
    }
    /// Called when the connection has ended without a goodbye.
    void suspect() { evidence_.connection_ended(steady_now()); }
    [[nodiscard]] const Evidence& evidence() const { return evidence_; }

    /// For a poll; no descriptor: there is nothing to poll.
    [[nodiscard]] pollfd polled() const {
        if (process_.valid()) return {evidence_.has_ended() ? -1 : process_.get(), POLLIN, 0};
        return {asked_.get(), static_cast<short>(connects_ ? POLLOUT : POLLIN), 0};
    }
    /// The time at which `look` must be called even without a result of a poll.
    [[nodiscard]] nanoseconds due() const {
        if (evidence_.has_ended()) return evidence_.due();
        return evidence_.is_suspected() && !process_.valid() && !asked_.valid() && port_ != 0 ? due_ : never;
    }
    /// `revents`: the result of a poll of `polled`, or 0.
    Conclusion look(short revents, const ProofRules& rules, nanoseconds now) {
        if (process_.valid()) {
            if (revents != 0)
                evidence_.ended_here(address_ == rules.own_address || address_.starts_with("127.") || address_ == "::1",
                                     now);
        } else if (evidence_.is_suspected() && port_ != 0) {
            observe(revents, rules, now);
        }
        return evidence_.conclusion(now);
    }

private:
    static constexpr std::uint64_t most_pid = std::uint64_t{1} << 30;
    static constexpr nanoseconds first_pause = 5'000'000, longest_pause = 1'000'000'000;

    void observe(short revents, const ProofRules& rules, nanoseconds now) {
        if (!asked_.valid()) {
            if (now >= due_) ask(rules, now);
        } else if (revents != 0 && !connects_) { // it has ended, or closes connections on which nothing is sent
            asked_.close();
            if (due_ <= now) ask(rules, now);
        } else if (revents != 0) {
            int failed = 0;
            socklen_t length = sizeof failed;
            ::getsockopt(asked_.get(), SOL_SOCKET, SO_ERROR, &failed, &length);
            judge(failed, rules, now);
        }
    }
    /// Connects to the process, and keeps the connection: its end is the next observation.
    void ask(const ProofRules& rules, nanoseconds now) {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, longest_pause);
        std::string why;
        for (const SocketAddress& address : resolve(address_, port_, why)) {
            FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (!socket.valid()) return;
            const int on = 1; // distinguishes a firewall's refusal from that of the host
            if (address.storage.ss_family == AF_INET) setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
            else setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
            const int failed =
                ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0
                    ? 0
                    : errno;
            is_here_ = is_loopback(address) || address_ == rules.own_address;
            asked_ = std::move(socket);
            connects_ = failed == EINPROGRESS || failed == EINTR;
            if (!connects_) judge(failed, rules, now);
            return;
        }
    }
    /// Evaluates a connection that was made, or has failed with this error.
    void judge(int failed, const ProofRules& rules, nanoseconds now) {
        connects_ = false;
        if (failed == 0 && !has_met_itself(asked_.get())) {
            set_up_connection(asked_.get());
            return evidence_.answered();
        }
        std::byte one{};
        const bool by_a_router = ::recv(asked_.get(), &one, 1, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0;
        asked_.close();
        if (failed != 0 && (failed != ECONNREFUSED || by_a_router)) return;
        refused_here_ = is_here_;
        evidence_.refused(is_here_ || rules.trust_resets, now);
    }

    std::string address_;
    std::uint16_t port_ = 0;
    FileDescriptor process_; ///< of a process on this host
    FileDescriptor asked_;   ///< a connection to a suspected process on another host
    bool connects_ = false;  ///< the connection is not made yet
    bool is_here_ = false;   ///< the address of `asked_` is one of this host
    bool refused_here_ = false;
    Evidence evidence_;
    std::uint64_t host_ = 0;
    nanoseconds due_ = 0, pause_ = first_pause;
};

} // namespace detail
UNISONO_NAMESPACE_END
