#pragma once

/// \file
/// The hosts of ranks, as the hierarchical schedules see them, and the conversion of a schedule for
/// fewer ranks into a phase of another schedule.

#include "unisono/schedule/base.hpp"
#include "unisono/schedule/host_map.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// Blocks of ranks, by position. In scratch, slot `slot + k` holds the block of position `start +
/// k`, counted around the circle of `size` positions that begins at `circle`. If `size` is 0, the
/// slots from `slot` on hold the blocks of all ranks in rank order.
struct PlacedBlocks {
    Buffer where = Buffer::input;
    std::uint32_t first = 0, count = 0;
    std::uint32_t slot = 0, start = 0, circle = 0, size = 0;
};

/// The hosts of a layout. One rank of each host is its *head*, the only one that exchanges messages
/// with other hosts: on the root's host the root, on others the first rank.
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
    /// The position of a rank, counted host by host; and the rank at a position.
    [[nodiscard]] constexpr int position(int rank) const {
        return layout.map != nullptr ? layout.map->position(rank) : rank;
    }
    [[nodiscard]] constexpr int rank_at(int position) const {
        return layout.map != nullptr ? layout.map->rank_at(position) : position;
    }
    /// The position of a host's first rank; `first(hosts())` is the end of the last host.
    [[nodiscard]] constexpr int first(int host) const {
        if (layout.map != nullptr) return layout.map->first(host);
        return host >= hosts() ? shape.world : host * layout.per_host; // so that the product does not overflow
    }
    [[nodiscard]] constexpr int size(int host) const { return first(host + 1) - first(host); }
    [[nodiscard]] constexpr int size() const { return size(host()); }
    [[nodiscard]] constexpr int largest() const { return layout.map != nullptr ? layout.map->largest() : size(0); }
    [[nodiscard]] constexpr int head(int host) const {
        return host == host_of(shape.root) ? shape.root : rank_at(first(host));
    }
    [[nodiscard]] constexpr bool is_head() const { return head(host()) == shape.rank; }
    [[nodiscard]] constexpr bool is_root() const { return shape.rank == shape.root; }

    /// This rank among those of its host, with the head as root; and this host among the hosts.
    [[nodiscard]] constexpr Shape within() const {
        return {size(), position(shape.rank) - first(host()), position(head(host())) - first(host())};
    }
    [[nodiscard]] constexpr Shape across() const { return {hosts(), host(), host_of(shape.root)}; }

    /// Levels of the tree within the largest host, and of the tree across hosts.
    [[nodiscard]] constexpr std::uint32_t levels_within() const {
        return ceil_log2(static_cast<std::uint32_t>(largest()));
    }
    [[nodiscard]] constexpr std::uint32_t levels_across() const {
        return ceil_log2(static_cast<std::uint32_t>(hosts()));
    }

    // Blocks of ranks. In the program's memory they are in rank order, and the schedules within and
    // across hosts see positions. A range of positions can be several ranges of ranks: each becomes
    // a message of its own.

    static constexpr std::uint32_t runs_a_round = 8; ///< a step has at most two parts for each of these ranges
    /// The number of rounds into which one round is cut: for the blocks of one host, and for the
    /// blocks of several hosts.
    [[nodiscard]] constexpr std::uint32_t turns_of_host() const {
        return layout.map == nullptr ? 1 : turns(layout.map->most_runs());
    }
    [[nodiscard]] constexpr std::uint32_t turns_of_hosts() const {
        return layout.map == nullptr ? 1 : turns(layout.map->runs());
    }
    /// The most messages for the blocks of one host in a round.
    [[nodiscard]] constexpr std::uint32_t most_together() const {
        if (layout.map == nullptr) return 1;
        return std::min(runs_a_round, static_cast<std::uint32_t>(layout.map->most_runs()));
    }
    [[nodiscard]] constexpr bool in_rank_order() const { return layout.map == nullptr || layout.map->in_rank_order(); }

    /// The number of blocks before a host; and of `count` hosts that begin at `host`, around the
    /// circle.
    [[nodiscard]] constexpr std::uint32_t block(std::uint32_t host) const {
        return static_cast<std::uint32_t>(first(static_cast<int>(host)));
    }
    [[nodiscard]] constexpr std::uint32_t blocks_of(std::uint32_t host, std::uint32_t count) const {
        const auto all = static_cast<std::uint32_t>(hosts());
        if (host + count <= all) return block(host + count) - block(host);
        return block(all) - block(host) + block(host + count - all);
    }

    /// Converts blocks of hosts to blocks of ranks. Blocks in scratch begin at slot 0; if they have
    /// wrapped around, block 0 follows those of the last host.
    [[nodiscard]] constexpr PlacedBlocks unfold(const Blocks& of_hosts) const {
        const std::uint32_t begin = block(of_hosts.first);
        const auto all = static_cast<std::uint32_t>(hosts());
        const std::uint32_t start = of_hosts.slot == 0 ? of_hosts.first - of_hosts.ahead : all - of_hosts.slot;
        return {of_hosts.where, begin, block(of_hosts.first + of_hosts.count) - begin, 0, block(start), 0, block(all)};
    }
    /// Converts blocks of this host's ranks to blocks of the world.
    [[nodiscard]] constexpr PlacedBlocks shift(const Blocks& of_host) const {
        const std::uint32_t begin = block(static_cast<std::uint32_t>(host()));
        const auto all = static_cast<std::uint32_t>(size());
        const std::uint32_t start = of_host.slot == 0 ? of_host.first - of_host.ahead : all - of_host.slot;
        return {of_host.where, begin + of_host.first, of_host.count, 0, begin + start, begin, all};
    }
    /// The same blocks in another buffer; in scratch they begin at `slot`.
    static constexpr PlacedBlocks elsewhere(PlacedBlocks blocks, Buffer where, std::uint32_t slot = 0) {
        blocks.where = where;
        blocks.slot = slot;
        return blocks;
    }
    /// The same blocks in a scratch that holds the blocks of all ranks in rank order.
    static constexpr PlacedBlocks in_order(const PlacedBlocks& blocks) {
        return {Buffer::scratch, blocks.first, blocks.count};
    }

    /// The blocks of the longest range that begins at `position` and whose ranks are consecutive.
    [[nodiscard]] constexpr Blocks run_from(const PlacedBlocks& blocks, std::uint32_t position) const {
        std::uint32_t end = position + 1;
        while (end != blocks.first + blocks.count && run_begin(end) == run_begin(position)) ++end;
        const auto rank = static_cast<std::uint32_t>(rank_at(static_cast<int>(position)));
        if (blocks.where != Buffer::scratch) return {blocks.where, rank, end - position};
        if (blocks.size == 0) return scratch_blocks(rank, end - position, blocks.slot, rank);
        const bool wrapped = position < blocks.start;
        const std::uint32_t begin = std::max(run_begin(position), wrapped ? blocks.circle : blocks.start);
        const std::uint32_t behind = wrapped ? blocks.size - blocks.start + begin : begin - blocks.start;
        return scratch_blocks(rank, end - position, blocks.slot + behind, position - begin);
    }

private:
    static constexpr std::uint32_t turns(int runs) {
        return (static_cast<std::uint32_t>(runs) + runs_a_round - 1) / runs_a_round;
    }
    [[nodiscard]] constexpr std::uint32_t run_begin(std::uint32_t position) const {
        return layout.map == nullptr ? 0
                                     : static_cast<std::uint32_t>(layout.map->run_begin(static_cast<int>(position)));
    }
};

/// Passes steps to `visit` with peers and blocks renamed.
template <class Peer, class Place, class Visit>
constexpr auto renaming(Peer peer, Place place, Visit& visit) {
    return [peer, place, &visit](Step step) {
        if (step.peer != everyone) step.peer = peer(step.peer);
        if (step.source.count != 0) step.source = place(step.source);
        if (step.target.count != 0) step.target = place(step.target);
        visit(step);
    };
}

/// As `renaming`, for blocks of ranks. `place` maps a step's blocks to PlacedBlocks; each range of
/// consecutive ranks in them becomes a step, and turn `turn` makes its share of these steps.
template <class Peer, class Place, class Visit>
constexpr auto in_runs(const Hosts& at, std::uint32_t turn, Peer peer, Place place, Visit& visit) {
    return [&at, turn, peer, place, &visit](Step step) {
        if (step.peer != everyone) step.peer = peer(step.peer);
        const bool reads = step.source.count != 0, writes = step.target.count != 0;
        const PlacedBlocks source = reads ? place(step.source) : PlacedBlocks{};
        const PlacedBlocks target = writes ? place(step.target) : PlacedBlocks{};
        const PlacedBlocks& all = reads ? source : target; // a step that has both has the same blocks in both
        const std::uint8_t part = step.part;
        std::uint32_t number = 0;
        for (std::uint32_t position = all.first; position != all.first + all.count; ++number) {
            if (reads) step.source = at.run_from(source, position);
            if (writes) step.target = at.run_from(target, position);
            position += reads ? step.source.count : step.target.count;
            if (number / Hosts::runs_a_round != turn) continue;
            step.part = static_cast<std::uint8_t>(2 * (number % Hosts::runs_a_round) + part);
            visit(step);
        }
    };
}

/// Runs a schedule's round among the ranks of this host. `place` maps the schedule's blocks to
/// blocks of the world.
template <class Schedule, class Place, class Visit>
constexpr void round_within(const Hosts& at, const Schedule& schedule, std::uint32_t r, Place place, Visit& visit) {
    if (r >= schedule.rounds()) return;
    const int first = at.first(at.host());
    schedule.round(r, renaming([&at, first](int peer) { return at.rank_at(first + peer); }, place, visit));
}

/// As `round_within`, for blocks of ranks. Each round of the schedule takes `turns_of_host()`
/// rounds.
template <class Schedule, class Place, class Visit>
constexpr void runs_within(const Hosts& at, const Schedule& schedule, std::uint32_t r, Place place, Visit& visit) {
    const std::uint32_t round = r / at.turns_of_host();
    if (round >= schedule.rounds()) return;
    const int first = at.first(at.host());
    const auto peer = [&at, first](int of_host) { return at.rank_at(first + of_host); };
    schedule.round(round, in_runs(at, r % at.turns_of_host(), peer, place, visit));
}

/// As `runs_within`, among the heads of all hosts. Each round of the schedule takes `turns` rounds.
template <class Schedule, class Place, class Visit>
constexpr void runs_across(const Hosts& at, const Schedule& schedule, std::uint32_t r, std::uint32_t turns, Place place,
                           Visit& visit) {
    if (!at.is_head() || r / turns >= schedule.rounds()) return;
    schedule.round(r / turns, in_runs(
                                  at, r % turns, [&at](int host) { return at.head(host); }, place, visit));
}

/// As `round_within`, among the heads of all hosts.
template <class Schedule, class Place, class Visit>
constexpr void round_across(const Hosts& at, const Schedule& schedule, std::uint32_t r, Place place, Visit& visit) {
    if (!at.is_head() || r >= schedule.rounds()) return;
    schedule.round(r, renaming([&at](int host) { return at.head(host); }, place, visit));
}

/// The cost of a schedule, found by counting its steps.
template <class Schedule>
constexpr Cost counted(const Schedule& schedule) {
    Cost cost;
    for (std::uint32_t r = 0; r < schedule.rounds(); ++r) {
        std::uint64_t messages = 0;
        schedule.round(r, [&](const Step& step) {
            if (step.kind == StepKind::copy) return;
            ++messages;
            if (step.kind == StepKind::send) ++cost.messages, cost.blocks_sent += step.source.count;
            if (step.kind == StepKind::receive_combine) cost.blocks_combined += step.source.count;
        });
        cost.rounds += messages != 0 ? 1 : 0;
    }
    return cost;
}

/// The sum of two phases' costs. A block of the second phase is `blocks` blocks of the first.
constexpr Cost plus(const Cost& a, const Cost& b, std::uint64_t blocks = 1) {
    return {.messages = a.messages + b.messages,
            .blocks_sent = a.blocks_sent + b.blocks_sent * blocks,
            .blocks_combined = a.blocks_combined + b.blocks_combined * blocks,
            .rounds = a.rounds + b.rounds};
}

/// The base of hierarchical schedules: a shape, and the hosts of its ranks. In collectives without
/// a root the tree of heads starts at rank 0.
template <Collective What>
struct OnHosts : ScheduleBase<What> {
    using ScheduleBase<What>::shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr std::uint32_t variant() const { return layout.variant(); }
    friend constexpr bool operator==(const OnHosts&, const OnHosts&) = default;

protected:
    [[nodiscard]] constexpr Hosts at() const {
        return {Shape{shape.world, shape.rank, has_root(What) ? shape.root : 0}, layout};
    }
};

} // namespace detail
} // namespace schedule

UNISONO_NAMESPACE_END
