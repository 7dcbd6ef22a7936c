#pragma once

/// \file
/// Limits for connections that have not yet proven their identity, at every door of a job: their
/// number is limited, and no source may take the room of others.
///
/// A new stranger is never dropped: it may be a rank that is about to send its hello. While all
/// strangers are new, further ones wait in the system's queue. After `grace`, the oldest stranger
/// of the source with the most connections is dropped for a new one.

#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/sockets/source.hpp"
#include "unisono/launch/descriptor.hpp"

#include <algorithm>
#include <array>
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

} // namespace detail
UNISONO_NAMESPACE_END
