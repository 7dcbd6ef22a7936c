#pragma once

/// \file
/// The hosts of a group's ranks: hosts of any size, ranks in any order.

#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// Hosts are numbered in the order of their first ranks. *Positions* number the ranks host by host,
/// and within a host in rank order. A plain value; equal on all ranks of a group.
class HostMap {
public:
    HostMap() = default;
    /// The host of each rank, by arbitrary numbers: equal numbers are one host.
    explicit HostMap(std::span<const int> host_of_rank);

    [[nodiscard]] int ranks() const { return static_cast<int>(ranks_.size()); }
    [[nodiscard]] int hosts() const { return static_cast<int>(first_.size()) - 1; }
    [[nodiscard]] int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
    /// The position of a host's first rank; `first(hosts())` is the number of ranks.
    [[nodiscard]] int first(int host) const { return first_[static_cast<std::size_t>(host)]; }
    [[nodiscard]] int size(int host) const { return first(host + 1) - first(host); }
    /// The number of ranks on the host that has most of them.
    [[nodiscard]] int largest() const { return largest_; }
    [[nodiscard]] int position(int rank) const { return positions_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int rank_at(int position) const { return ranks_[static_cast<std::size_t>(position)]; }
    /// True if each rank's position is its number: the ranks of each host are consecutive.
    [[nodiscard]] bool in_rank_order() const { return runs_ <= 1; }
    /// A *range* is a maximal sequence of positions whose ranks are consecutive; there is one if
    /// ranks are in rank order. `run_begin`: the first position of the range that contains
    /// `position`. `runs`: the number of ranges. `most_runs`: the most ranges that one host takes
    /// part in.
    [[nodiscard]] int run_begin(int position) const { return run_begin_[static_cast<std::size_t>(position)]; }
    [[nodiscard]] int runs() const { return runs_; }
    [[nodiscard]] int most_runs() const { return most_runs_; }
    /// True if ranks are dealt to hosts round-robin, and the numbers of hosts and of ranks are
    /// powers of two. Then ranks at a distance that is a power of two, and at least the number of
    /// hosts, share a host.
    [[nodiscard]] bool takes_turns() const { return takes_turns_; }
    /// True if there are several hosts and one of them has several ranks.
    [[nodiscard]] bool has_levels() const { return hosts() > 1 && largest() > 1; }
    /// For comparing between ranks.
    [[nodiscard]] std::uint32_t hash() const { return hash_; }

    friend bool operator==(const HostMap& a, const HostMap& b) {
        bool same = a.ranks() == b.ranks();
        for (int rank = 0; same && rank < a.ranks(); ++rank) same = a.host_of(rank) == b.host_of(rank);
        return same;
    }

private:
    [[nodiscard]] bool starts_run(int position) const { return run_begin(position) == position; }

    detail::List<int> host_of_;   ///< by rank
    detail::List<int> positions_; ///< by rank
    detail::List<int> ranks_;     ///< by position
    detail::List<int> first_;     ///< by host; the last element is the number of ranks
    detail::List<int> run_begin_; ///< by position
    int largest_ = 0;
    int runs_ = 0;
    int most_runs_ = 1; ///< the most ranges of one host
    bool takes_turns_ = false;
    std::uint32_t hash_ = detail::fnv_basis_32;
};

namespace schedule {

/// The hosts of a hierarchical schedule: `per_host` ranks each, in rank order, the last host
/// possibly fewer; or as a map says.
struct HostLayout {
    int per_host = 1;
    const HostMap* map = nullptr; ///< outlives the schedule

    /// For comparing between ranks.
    [[nodiscard]] constexpr std::uint32_t variant() const {
        return map != nullptr ? map->hash() : static_cast<std::uint32_t>(per_host);
    }
    friend constexpr bool operator==(const HostLayout&, const HostLayout&) = default;
};

} // namespace schedule

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION HostMap::HostMap(std::span<const int> host_of_rank) {
    const std::size_t ranks = host_of_rank.size();
    detail::List<int> seen; // by host: the caller's number for it
    for (const int number : host_of_rank) {
        std::size_t host = 0;
        while (host < seen.size() && seen[host] != number) ++host;
        if (host == seen.size()) seen.push_back(number);
        host_of_.push_back(static_cast<int>(host));
    }
    positions_.resize(ranks);
    first_.push_back(0);
    for (std::size_t host = 0; host < seen.size(); ++host) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (host_of_[rank] != static_cast<int>(host)) continue;
            positions_[rank] = static_cast<int>(ranks_.size());
            const int position = static_cast<int>(ranks_.size());
            const bool goes_on = position != 0 && ranks_.back() + 1 == static_cast<int>(rank);
            run_begin_.push_back(goes_on ? run_begin_.back() : position);
            runs_ += goes_on ? 0 : 1;
            ranks_.push_back(static_cast<int>(rank));
        }
        const int size = static_cast<int>(ranks_.size()) - first_.back();
        int runs = 1;
        for (int i = first_.back() + 1; i < first_.back() + size; ++i) runs += starts_run(i) ? 1 : 0;
        first_.push_back(static_cast<int>(ranks_.size()));
        if (size > largest_) largest_ = size;
        if (runs > most_runs_) most_runs_ = runs;
    }
    takes_turns_ = std::has_single_bit(ranks) && std::has_single_bit(seen.size());
    for (std::size_t rank = 0; rank < ranks; ++rank)
        takes_turns_ = takes_turns_ && host_of_[rank] == static_cast<int>(rank % seen.size());
    for (const int host : host_of_) hash_ = detail::fnv1a(hash_, static_cast<std::uint32_t>(host + 1));
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
