#pragma once

/// \file
/// The doors of a job: limits for connections that have not yet proven their identity, and
/// `Guests`, who greet at a door that has no state machine of its own (the hub has one).
///
/// The number of strangers is limited, and no source may take the room of others. A new stranger is
/// never dropped: it may be a rank that is about to send its hello. While all strangers are new,
/// further ones wait in the system's queue. After `grace`, the oldest stranger of the source with
/// the most connections is dropped for a new one.

#include "unisono/core/config.hpp"
#include "unisono/core/descriptor.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/secrets/proof.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The source of a connection: an IPv4 address, or the network half of an IPv6 address, of which
/// one host may have any number.
inline std::uint64_t source_of(const sockaddr_storage& address) {
    std::uint64_t source = 0;
    if (address.ss_family == AF_INET) {
        const auto& from = reinterpret_cast<const sockaddr_in&>(address);
        std::memcpy(&source, &from.sin_addr, sizeof from.sin_addr);
    } else if (address.ss_family == AF_INET6) {
        const auto& from = reinterpret_cast<const sockaddr_in6&>(address);
        std::memcpy(&source, &from.sin6_addr, sizeof source);
    }
    return source;
}

/// At most a quarter of the process's descriptors.
inline std::size_t room_for_strangers(std::size_t most) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
    return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, most);
}

class Strangers {
public:
    /// The time during which a stranger is not dropped. A rank that takes longer, and is dropped,
    /// connects again.
    static constexpr nanoseconds grace = 250'000'000;
    static constexpr std::size_t usual_most = 256;

    explicit Strangers(std::size_t most = usual_most) : most_(most) {}

    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] bool full() const { return !all_.empty() && size() >= room_for_strangers(most_); }

    /// Returns the number by which the stranger is known.
    std::uint32_t add(std::uint64_t source, nanoseconds now) {
        // Two sources with the same place share a budget.
        all_.push_back({next_, (source * 0x9e3779b97f4a7c15u) >> 58, now});
        return next_++;
    }
    /// Called when the connection has proven itself, or has ended.
    void remove(std::uint32_t number) {
        const auto found = std::find_if(all_.begin(), all_.end(), [&](const One& one) { return one.number == number; });
        if (found != all_.end()) all_.erase(found);
    }
    /// The connection to close for a new one: the oldest of the source with the most connections,
    /// if its `grace` is over.
    [[nodiscard]] std::optional<std::uint32_t> first_to_go(nanoseconds now) const {
        const One* const first = oldest_of_the_crowd();
        return first != nullptr && now - first->since >= grace ? std::optional(first->number) : std::nullopt;
    }
    /// The same, also if it is new: for a descriptor that a rank needs.
    [[nodiscard]] std::optional<std::uint32_t> first_to_go() const { return first_to_go(never); }
    /// The time from which the next connection can be accepted; 0: now.
    [[nodiscard]] nanoseconds opens() const { return full() ? oldest_of_the_crowd()->since + grace : 0; }

private:
    struct One {
        std::uint32_t number;
        std::size_t place;
        nanoseconds since;
    };
    [[nodiscard]] const One* oldest_of_the_crowd() const {
        std::array<std::size_t, 64> crowds{};
        for (const One& one : all_) ++crowds[one.place];
        const std::size_t most = *std::max_element(crowds.begin(), crowds.end());
        for (const One& one : all_)
            if (crowds[one.place] == most) return &one;
        return nullptr;
    }

    std::size_t most_;
    std::uint32_t next_ = 1;
    std::vector<One> all_; ///< in the order of arrival
};

/// `crowded`: the number of strangers has reached its limit, and all are new. `no_descriptor`: the
/// system has no descriptor left.
enum class Accepted : std::uint8_t { all, crowded, no_descriptor };

/// Accepts connections, at most 64, so that a flood does not hold up the caller. Calls drop(number)
/// for each stranger that gives way, and take(number, socket) for each new one.
template <class Drop, class Take>
Accepted accept_strangers(int listener, Strangers& strangers, Drop drop, Take take) {
    for (int taken = 0; taken < 64; ++taken) {
        if (strangers.full()) {
            pollfd comes{listener, POLLIN, 0};
            if (::poll(&comes, 1, 0) <= 0) return Accepted::all;
            const std::optional<std::uint32_t> gives_way = strangers.first_to_go(steady_now());
            if (!gives_way) return Accepted::crowded;
            drop(*gives_way);
            strangers.remove(*gives_way);
        }
        sockaddr_storage from{};
        socklen_t length = sizeof from;
        FileDescriptor socket(
            ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.valid()) take(strangers.add(source_of(from), steady_now()), std::move(socket));
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return Accepted::no_descriptor;
        else if (errno != EINTR && errno != ECONNABORTED) return Accepted::all;
    }
    return Accepted::all;
}

class Guests {
public:
    static constexpr nanoseconds may_wait = 5'000'000'000;
    static constexpr int least_looks = 3; ///< since a rank that computes looks seldom

    explicit Guests(Door door) : door_(door) {}

    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] int fd(std::size_t which) const { return all_[which].socket.get(); }
    /// True if one of them came less than `grace` ago: it may be a rank that greets at once.
    [[nodiscard]] bool has_new(nanoseconds now) const {
        return std::any_of(all_.begin(), all_.end(),
                           [&](const Guest& one) { return now - one.since < Strangers::grace; });
    }
    /// The time from which the next connection can be accepted; 0: now. Until then a poll of the
    /// listener would return at once.
    [[nodiscard]] nanoseconds opens() const { return std::max(strangers_.opens(), deaf_until_); }

    /// Accepts connections, and hears them at once. Calls came(hello, session, socket) for each
    /// that has proven that it has the secret. If the system has no descriptor left, a guest gives
    /// its own to the next connection.
    template <class Came>
    void accept(int listener, const JobToken& secret, Came came) {
        if (deaf_until_ != 0 && deaf_until_ > steady_now()) return;
        const Accepted accepted = accept_strangers(
            listener, strangers_, [&](std::uint32_t number) { drop(number); },
            [&](std::uint32_t number, FileDescriptor socket) {
                set_up_connection(socket.get());
                all_.push_back({std::move(socket), Doorkeeper(door_), {}, number, steady_now(), 0});
                hear_one(all_.size() - 1, secret, steady_now(), came);
            });
        const bool is_deaf = accepted == Accepted::no_descriptor && !give_descriptor();
        deaf_until_ = is_deaf ? steady_now() + 100'000'000 : 0;
    }
    /// Reads from all, or from those that have events in `asked`, of which the first `count` guests
    /// have one each.
    template <class Came>
    void hear(const JobToken& secret, Came came, const pollfd* asked = nullptr, std::size_t count = SIZE_MAX) {
        const nanoseconds now = all_.empty() ? 0 : steady_now();
        for (std::size_t i = std::min(count, all_.size()); i-- > 0;) { // an index that is used again was done
            ++all_[i].looks;
            if (asked == nullptr || asked[i].revents != 0 || is_late(all_[i], now)) hear_one(i, secret, now, came);
        }
    }
    /// Drops a guest, because a rank needs a descriptor. False if there is none.
    bool give_descriptor() {
        const std::optional<std::uint32_t> first = strangers_.first_to_go();
        if (first) drop(*first);
        return first.has_value();
    }
    void clear() {
        while (!all_.empty()) remove(all_.size() - 1);
    }

private:
    struct Guest {
        FileDescriptor socket;
        Doorkeeper door;
        Blob said;
        std::uint32_t number;
        nanoseconds since;
        int looks;
    };
    static bool is_late(const Guest& one, nanoseconds now) {
        return now - one.since >= may_wait && one.looks >= least_looks;
    }
    /// The last one takes its index.
    void remove(std::size_t which) {
        strangers_.remove(all_[which].number);
        if (which + 1 != all_.size()) all_[which] = std::move(all_.back());
        all_.pop_back();
    }
    void drop(std::uint32_t number) {
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (all_[i].number == number) return remove(i);
    }
    template <class Came>
    void hear_one(std::size_t which, const JobToken& secret, nanoseconds now, Came& came) {
        Guest& guest = all_[which];
        const Greeted answer = look(guest, secret);
        if (answer == Greeted::waits && !is_late(guest, now)) return;
        Guest done = std::move(guest);
        remove(which);
        if (answer == Greeted::proven) came(done.door.hello(), done.door.session(secret), std::move(done.socket));
    }
    static Greeted look(Guest& guest, const JobToken& secret) {
        for (;;) {
            const ssize_t got = receive_some(guest.socket.get(), guest.said, guest.door.awaits() - guest.said.size());
            if (got <= 0) return got == 0 ? Greeted::waits : Greeted::stranger;
            Blob answer;
            const Greeted known = guest.door.look(secret, guest.said, answer);
            if (known != Greeted::waits) return known;
            // A few bytes on a fresh connection, which takes all of them.
            if (!answer.empty() && ::send(guest.socket.get(), answer.data(), answer.size(),
                                          MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(answer.size()))
                return Greeted::stranger;
        }
    }

    Door door_;
    Strangers strangers_;
    std::vector<Guest> all_;
    nanoseconds deaf_until_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
