#pragma once

/// \file
/// Limits for connections that have not yet proven their identity: their number is limited, and no
/// source may take the room of others.
///
/// A new stranger is never dropped: it may be a rank that is about to send its hello. While all
/// strangers are new, further ones wait in the system's queue. After `grace`, the oldest stranger
/// of the source with the most connections is dropped for a new one. The cost of each step does not
/// depend on the number of strangers.

#include "unisono/core/time.hpp"
#include "unisono/launch/source.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Strangers {
public:
    /// The time during which a stranger is not dropped. A rank that takes longer, and is dropped,
    /// connects again.
    static constexpr nanoseconds grace = 250'000'000;

    explicit Strangers(std::size_t most) : most_(most) {}

    [[nodiscard]] std::size_t size() const { return where_.size(); }
    [[nodiscard]] bool full() const { return size() >= room_for_strangers(most_); }

    void add(std::uint32_t connection, std::uint64_t source, nanoseconds now) {
        // Two sources with the same place share a budget.
        const std::size_t place = (source * 0x9e3779b97f4a7c15u) >> 58;
        sources_[place].push_back({connection, now});
        where_[connection] = {place, std::prev(sources_[place].end())};
    }
    /// Called when the connection has proven itself, or has ended.
    void remove(std::uint32_t connection) {
        const auto found = where_.find(connection);
        if (found == where_.end()) return;
        sources_[found->second.first].erase(found->second.second);
        where_.erase(found);
    }
    /// The connection to close for a new one: the oldest of the source with the most connections,
    /// if its `grace` is over.
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
    std::array<std::list<One>, 64> sources_; ///< each in the order of arrival
    std::unordered_map<std::uint32_t, std::pair<std::size_t, std::list<One>::iterator>> where_;
};

} // namespace detail
UNISONO_NAMESPACE_END
