#pragma once

/// \file
/// Ranks on hosts, as the hierarchical schedules see them, and how a schedule for fewer ranks becomes one phase of another.

#include "unisono/schedule/circular.hpp"
#include "unisono/schedule/host_map.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// Hosts as a layout says. One rank of each host is its *head*, which alone speaks with other hosts: the root on its own host,
/// elsewhere the first.
struct Hosts {
    Shape shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr int hosts() const {
        return layout.map != nullptr ? layout.map->hosts() : (shape.world - 1) / layout.per_host + 1;
    }
    [[nodiscard]] constexpr int host_of(int rank) const {
        return layout.map != nullptr ? layout.map->host_of(rank) : rank / layout.per_host;
    }
    [[nodiscard]] constexpr int host() const { return host_of(shape.rank); }
    /// Where a rank is if the ranks of each host follow those of the host before; and who is there.
    [[nodiscard]] constexpr int position(int rank) const {
        return layout.map != nullptr ? layout.map->position(rank) : rank;
    }
    [[nodiscard]] constexpr int rank_at(int position) const {
        return layout.map != nullptr ? layout.map->rank_at(position) : position;
    }
    /// Position of a host's first rank, and the end of the last one.
    [[nodiscard]] constexpr int first(int host) const {
        if (layout.map != nullptr) return layout.map->first(host);
        return host >= hosts() ? shape.world : host * layout.per_host; // so that nothing overflows
    }
    [[nodiscard]] constexpr int size(int host) const { return first(host + 1) - first(host); }
    [[nodiscard]] constexpr int size() const { return size(host()); }
    [[nodiscard]] constexpr int largest() const { return layout.map != nullptr ? layout.map->largest() : size(0); }
    [[nodiscard]] constexpr int head(int host) const {
        return host == host_of(shape.root) ? shape.root : rank_at(first(host));
    }
    [[nodiscard]] constexpr bool is_head() const { return head(host()) == shape.rank; }
    [[nodiscard]] constexpr bool is_root() const { return shape.rank == shape.root; }

    /// This rank among those of its host, with the head as root; and its host among the hosts.
    [[nodiscard]] constexpr Shape within() const {
        return {size(), position(shape.rank) - first(host()), position(head(host())) - first(host())};
    }
    [[nodiscard]] constexpr Shape across() const { return {hosts(), host(), host_of(shape.root)}; }

    /// Rounds of a tree within the largest host, and of one across.
    [[nodiscard]] constexpr std::uint32_t levels_within() const {
        return ceil_log2(static_cast<std::uint32_t>(largest()));
    }
    [[nodiscard]] constexpr std::uint32_t levels_across() const {
        return ceil_log2(static_cast<std::uint32_t>(hosts()));
    }

    // Blocks that belong to ranks: of hosts whose ranks follow one another.

    /// Blocks of ranks before a host; of `count` hosts from one on, around the circle.
    [[nodiscard]] constexpr std::uint32_t block(std::uint32_t host) const {
        return static_cast<std::uint32_t>(first(static_cast<int>(host)));
    }
    [[nodiscard]] constexpr std::uint32_t blocks_of(std::uint32_t host, std::uint32_t count) const {
        const auto all = static_cast<std::uint32_t>(hosts());
        if (host + count <= all) return block(host + count) - block(host);
        return block(all) - block(host) + block(host + count - all);
    }

    /// Blocks of hosts as blocks of ranks. A run in scratch begins at slot 0, or it has wrapped around: then it goes on
    /// with block 0 behind those of the last hosts.
    [[nodiscard]] constexpr Blocks unfold(const Blocks& of_hosts) const {
        const std::uint32_t begin = block(of_hosts.first);
        const auto all = static_cast<std::uint32_t>(hosts());
        return {of_hosts.where, begin, block(of_hosts.first + of_hosts.count) - begin,
                of_hosts.slot == 0 ? 0 : block(all) - block(all - of_hosts.slot),
                begin - block(of_hosts.first - of_hosts.ahead)};
    }
    /// Blocks of this host's ranks as blocks of the world's.
    [[nodiscard]] constexpr Blocks shift(Blocks of_host) const {
        of_host.first += block(static_cast<std::uint32_t>(host()));
        return of_host;
    }
};

/// Passes steps on, with peers and blocks renamed.
template <class Peer, class Place, class Visit>
constexpr auto renaming(Peer peer, Place place, Visit& visit) {
    return [peer, place, &visit](Step step) {
        if (step.peer != everyone) step.peer = peer(step.peer);
        if (step.source.count != 0) step.source = place(step.source);
        if (step.target.count != 0) step.target = place(step.target);
        visit(step);
    };
}

/// A schedule's round as a round among the ranks of this host. What it calls blocks `place` makes blocks of the world.
template <class Schedule, class Place, class Visit>
constexpr void round_within(const Hosts& at, const Schedule& schedule, std::uint32_t r, Place place, Visit& visit) {
    if (r >= schedule.rounds()) return;
    const int first = at.first(at.host());
    schedule.round(r, renaming([&at, first](int peer) { return at.rank_at(first + peer); }, place, visit));
}

/// The same among the heads of all hosts.
template <class Schedule, class Place, class Visit>
constexpr void round_across(const Hosts& at, const Schedule& schedule, std::uint32_t r, Place place, Visit& visit) {
    if (!at.is_head() || r >= schedule.rounds()) return;
    schedule.round(r, renaming([&at](int host) { return at.head(host); }, place, visit));
}

/// The sum of two phases' costs, the second with blocks that are so many times larger.
constexpr Cost plus(const Cost& a, const Cost& b, std::uint64_t blocks = 1) {
    return {.messages = a.messages + b.messages,
            .blocks_sent = a.blocks_sent + b.blocks_sent * blocks,
            .blocks_combined = a.blocks_combined + b.blocks_combined * blocks,
            .rounds = a.rounds + b.rounds};
}

} // namespace detail
} // namespace schedule

UNISONO_NAMESPACE_END
