#pragma once

/// \file
/// Limits for connections that have not yet proven their identity: room for a fixed number, of
/// which no source may use more than it leaves to others.
///
/// A stranger that has just come never gives way: it may be a rank about to speak. While all are
/// that new, further ones wait in the system's queue. After `grace` the oldest of the source with
/// the most connections gives way. Each step has the same cost for any number of strangers.

#include "unisono/core/time.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <netinet/in.h>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unordered_map>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Where a connection comes from: an IPv4 address, or the network half of an IPv6 address, of which
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

/// At most a quarter of the descriptors that the process may have.
inline std::size_t room_for_strangers(std::size_t most) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
    return std::clamp<std::size_t>(static_cast<std::size_t>(limit.rlim_cur) / 4, 1, most);
}

class Strangers {
public:
    /// The time in which a stranger gives way to none. A rank that takes longer to speak, and is
    /// dropped, comes again.
    static constexpr nanoseconds grace = 250'000'000;

    explicit Strangers(std::size_t most) : most_(most) {}

    [[nodiscard]] std::size_t size() const { return where_.size(); }
    [[nodiscard]] bool full() const { return size() >= room_for_strangers(most_); }

    void add(std::uint32_t connection, std::uint64_t source, nanoseconds now) {
        const std::size_t place = (source * 0x9e3779b97f4a7c15u) >> 58; // two sources in one place share a budget
        sources_[place].push_back({connection, now});
        where_[connection] = {place, std::prev(sources_[place].end())};
    }
    /// It has proven itself, or is gone.
    void remove(std::uint32_t connection) {
        const auto found = where_.find(connection);
        if (found == where_.end()) return;
        sources_[found->second.first].erase(found->second.second);
        where_.erase(found);
    }
    /// The one that gives way to another now, if any has had its time: the oldest of the source
    /// that has the most.
    [[nodiscard]] std::optional<std::uint32_t> first_to_go(nanoseconds now) const {
        const auto crowd = std::max_element(sources_.begin(), sources_.end(),
                                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
        if (crowd->empty() || now - crowd->front().since < grace) return std::nullopt;
        return crowd->front().connection;
    }

private:
    struct One {
        std::uint32_t connection;
        nanoseconds since;
    };
    std::size_t most_;
    std::array<std::list<One>, 64> sources_; ///< each in the order in which they came
    std::unordered_map<std::uint32_t, std::pair<std::size_t, std::list<One>::iterator>> where_;
};

} // namespace detail
UNISONO_NAMESPACE_END
