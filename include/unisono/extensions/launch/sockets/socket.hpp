#pragma once

/// \file
/// Sockets for the control plane: non-blocking, closed on exec, every wait with a deadline.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/time.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One address of a name. The system looks up names, with its own time limit; it does not look up
/// numbers.
struct SocketAddress {
    sockaddr_storage storage = {};
    socklen_t length = 0;
};

std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& why);

/// The address of a socket or an interface, of IPv4 or IPv6.
SocketAddress address_of(const sockaddr* address);

/// An address without its port: "10.0.0.1".
std::string host_text(const SocketAddress& address);
std::uint16_t port_of(const SocketAddress& address);
void set_port(SocketAddress& address, std::uint16_t port);

/// True for this host's own address: one of 127.0.0.0/8, or ::1.
bool is_loopback(const SocketAddress& address);

/// True for 127.0.0.1 or ::1, and for no other address of the loopback.
bool is_localhost(const SocketAddress& address);

/// Small messages leave at once. A host that has vanished is noticed after a minute. The other
/// side's system answers the probes, so a slow or stopped process does not count as a vanished
/// host.
void set_up_connection(int fd);

/// A socket that listens, and its port.
struct Listener {
    FileDescriptor socket = {};
    std::uint16_t port = 0;
};

/// A socket that listens at an address, whose port it sets if that is 0. None: `errno` says why.
FileDescriptor open_listener(SocketAddress& address, bool reuses_port);

/// Listens at `port` (0: the system chooses) or one of the `further` ones after it; only on the
/// loopback if `loopback`. Errors: refused, with the system's reason.
Listener listen_at(bool loopback, std::uint16_t port, int further = 0);

/// A socket that connects to a port in the range of its own ports may connect to itself: then no
/// process listens there.
bool has_met_itself(int fd);

/// A connected socket, or none and the reason.
FileDescriptor connect_to(const SocketAddress& address, nanoseconds until, std::string& why);

/// Appends bytes that have arrived, at most 16 KiB and `most` of them. Returns their number; 0:
/// none have arrived; -1: the connection has ended.
ssize_t receive_some(int fd, std::vector<std::byte>& to, std::size_t most = 16384);

/// Wakes a thread that polls.
class Wakeup {
public:
    Wakeup() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!fd_.valid()) throw error(ErrorCode::refused, concat({"no eventfd: ", errno_text(errno)}));
    }
    [[nodiscard]] int fd() const { return fd_.get(); }
    void ring() const {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
    }
    void clear() const {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
    }

private:
    FileDescriptor fd_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/launch/host.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& why) {
    const addrinfo hints{.ai_flags = AI_NUMERICSERV,
                         .ai_family = AF_UNSPEC,
                         .ai_socktype = SOCK_STREAM,
                         .ai_protocol = 0,
                         .ai_addrlen = 0,
                         .ai_addr = nullptr,
                         .ai_canonname = nullptr,
                         .ai_next = nullptr};
    addrinfo* found = nullptr;
    std::vector<SocketAddress> addresses;
    if (const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); failed != 0) {
        if (!host.empty() && host == host_name())
            return resolve("127.0.0.1", port, why); // some hosts cannot look up their own name
        why = gai_strerror(failed);
        return addresses;
    }
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        SocketAddress address;
        if (each->ai_addrlen > sizeof address.storage) continue;
        std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
        address.length = each->ai_addrlen;
        addresses.push_back(address);
    }
    freeaddrinfo(found);
    return addresses;
}

/// The address as its family has it. The port is at the same offset in both families.
template <class Family>
Family seen_as(const SocketAddress& address) {
    Family seen;
    std::memcpy(&seen, &address.storage, sizeof seen);
    return seen;
}
/// The address of an AF_INET socket as a number.
inline std::uint32_t ipv4_of(const SocketAddress& address) {
    return ntohl(seen_as<sockaddr_in>(address).sin_addr.s_addr);
}

UNISONO_DEFINITION SocketAddress address_of(const sockaddr* address) {
    SocketAddress made;
    made.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&made.storage, address, made.length);
    return made;
}

UNISONO_DEFINITION std::string host_text(const SocketAddress& address) {
    char text[INET6_ADDRSTRLEN] = "an unknown address";
    const int family = address.storage.ss_family;
    const auto v4 = seen_as<sockaddr_in>(address).sin_addr;
    const auto v6 = seen_as<sockaddr_in6>(address).sin6_addr;
    if (family == AF_INET) ::inet_ntop(family, &v4, text, sizeof text);
    if (family == AF_INET6) ::inet_ntop(family, &v6, text, sizeof text);
    return text;
}

UNISONO_DEFINITION std::uint16_t port_of(const SocketAddress& address) {
    return ntohs(seen_as<sockaddr_in>(address).sin_port);
}

UNISONO_DEFINITION void set_port(SocketAddress& address, std::uint16_t port) {
    auto named = seen_as<sockaddr_in>(address);
    named.sin_port = htons(port);
    std::memcpy(&address.storage, &named, sizeof named);
}

UNISONO_DEFINITION bool is_loopback(const SocketAddress& address) {
    if (address.storage.ss_family == AF_INET) return ipv4_of(address) >> 24 == 127;
    const auto v6 = seen_as<sockaddr_in6>(address);
    return v6.sin6_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

UNISONO_DEFINITION bool is_localhost(const SocketAddress& address) {
    return is_loopback(address) && (address.storage.ss_family != AF_INET || ipv4_of(address) == INADDR_LOOPBACK);
}

UNISONO_DEFINITION void set_up_connection(int fd) {
    const int on = 1;
    const int idle_s = 20;
    const int interval_s = 8;
    const int probes = 5;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

UNISONO_DEFINITION FileDescriptor open_listener(SocketAddress& address, bool reuses_port) {
    FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return socket;
    const int on = 1, off = 0;
    auto* const raw = reinterpret_cast<sockaddr*>(&address.storage);
    if (reuses_port) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (raw->sa_family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket.get(), raw, address.length) == 0 && ::listen(socket.get(), 1024) == 0 &&
        ::getsockname(socket.get(), raw, &address.length) == 0)
        return socket;
    const int why = errno;
    socket = {};
    errno = why; // which closing the socket may change
    return {};
}

UNISONO_DEFINITION Listener listen_at(bool loopback, std::uint16_t port, int further) {
    std::string why;
    for (int each = port; each <= port + further && each <= 65535; ++each) {
        for (const int family : {AF_INET6, AF_INET}) {
            if (loopback && family == AF_INET6) continue;
            sockaddr_in6 any = {}; // zeros: all addresses of the host
            any.sin6_family = static_cast<sa_family_t>(family);
            SocketAddress address = address_of(reinterpret_cast<const sockaddr*>(&any));
            if (loopback) {
                auto local = seen_as<sockaddr_in>(address);
                local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                std::memcpy(&address.storage, &local, sizeof local);
            }
            set_port(address, static_cast<std::uint16_t>(each));
            FileDescriptor socket = open_listener(address, true);
            if (socket.valid()) return {std::move(socket), port_of(address)};
            why = errno_text(errno);
            if (errno == EADDRINUSE) break; // else the host may have no IPv6
        }
    }
    throw error(ErrorCode::refused,
                concat({"cannot listen at port ", port, (further > 0 ? concat({" or the ", further, " after it"}) : ""),
                        ": ", why}));
}

UNISONO_DEFINITION bool has_met_itself(int fd) {
    sockaddr_storage own = {};
    sockaddr_storage other = {};
    socklen_t own_length = sizeof own;
    socklen_t other_length = sizeof other;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
           ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 && own_length == other_length &&
           std::memcmp(&own, &other, own_length) == 0;
}

UNISONO_DEFINITION ssize_t receive_some(int fd, std::vector<std::byte>& to, std::size_t most) {
    std::byte buffer[16384]; // on the stack of a program's own threads, too
    for (;;) {
        const ssize_t got = ::recv(fd, buffer, std::min(most, sizeof buffer), MSG_DONTWAIT);
        if (got > 0) to.insert(to.end(), buffer, buffer + got);
        if (got >= 0 || errno != EINTR) return got > 0 ? got : got < 0 && errno == EAGAIN ? 0 : -1;
    }
}

UNISONO_DEFINITION FileDescriptor connect_to(const SocketAddress& address, nanoseconds until, std::string& why) {
    FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) {
        why = errno_text(errno);
        return {};
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
        if (errno != EINPROGRESS && errno != EINTR) {
            why = errno_text(errno);
            return {};
        }
        if (!wait_for(socket.get(), POLLOUT, until)) {
            why = "no answer";
            return {};
        }
        int failed = 0;
        socklen_t length = sizeof failed;
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &length);
        if (failed != 0) {
            why = errno_text(failed);
            return {};
        }
    }
    if (has_met_itself(socket.get())) {
        why = errno_text(ECONNREFUSED);
        return {};
    }
    set_up_connection(socket.get());
    return socket;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
