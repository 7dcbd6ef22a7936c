#pragma once

/// \file
/// The strangers at a door that has no state machine of its own (the hub has one): those who
/// connect, until they have proven themselves (secrets/proof.hpp) or are dropped. Nothing is read
/// behind a proof. Limits: strangers.hpp; and a guest that is silent for `may_wait`, and was
/// looked at `least_looks` times, is dropped.

#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/secrets/proof.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
            std::byte buffer[Hello::bytes];
            const ssize_t got =
                ::recv(guest.socket.get(), buffer, guest.door.awaits() - guest.said.size(), MSG_DONTWAIT);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0 && errno == EAGAIN) return Greeted::waits;
            if (got <= 0) return Greeted::stranger;
            guest.said.insert(guest.said.end(), buffer, buffer + got);
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
