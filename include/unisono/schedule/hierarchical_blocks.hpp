#pragma once

/// \file
/// The hierarchical schedules of collectives with a block per rank. The blocks of a host travel
/// between hosts as one message if its ranks are consecutive, else as one message per range of
/// consecutive ranks, with the same bytes. See hierarchical.hpp.

#include "unisono/schedule/hosts.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/schedule/tree.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Each host's blocks go to its head, then around the ring of heads, and all blocks go down the
/// trees. Cost: a head sends every block but those of the next host to that host; within hosts as
/// TreeGather, and as TreeBroadcast of all blocks. Scratch: as TreeGather.
struct HierarchicalAllGather : detail::OnHosts<Collective::all_gather> {
    static constexpr std::string_view name = "hierarchical all_gather";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return up() + ring() + at().levels_within(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return TreeGather{at().within()}.scratch_slots(); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const {
        return other_hosts() == 0 ? 0 : at().most_together();
    }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        if (!here.in_rank_order()) return detail::counted(*this);
        const Cost within =
            detail::plus(TreeGather{here.within()}.cost(), TreeBroadcast{here.within()}.cost(), blocks());
        if (!here.is_head() || other_hosts() == 0) return within;
        const auto next = detail::block_at(here.across(), 1);
        return detail::plus(within, {.messages = other_hosts(),
                                     .blocks_sent = blocks() - here.blocks_of(next, 1),
                                     .blocks_combined = 0,
                                     .rounds = other_hosts()});
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = at();
        if (r < up()) {
            detail::runs_within(
                here, TreeGather{here.within()}, r, [&](const Blocks& one) { return here.shift(one); }, visit);
        } else if (r < up() + ring()) {
            const auto gathered = [&](const Blocks& host) {
                return detail::Hosts::elsewhere(here.unfold(host), Buffer::output);
            };
            const auto messages = [&](const Step& step) {
                if (step.kind != StepKind::copy) visit(step); // the block is there already
            };
            detail::runs_across(here, RingAllGather{here.across()}, r - up(), here.turns_of_host(), gathered, messages);
        } else {
            detail::round_within(
                here, TreeBroadcast{here.within()}, r - up() - ring(),
                [&](Blocks) { return output_blocks(0, blocks()); }, visit);
        }
    }

private:
    [[nodiscard]] constexpr std::uint32_t up() const {
        return std::max(1u, at().levels_within()) * at().turns_of_host();
    }
    [[nodiscard]] constexpr std::uint32_t other_hosts() const { return static_cast<std::uint32_t>(at().hosts() - 1); }
    [[nodiscard]] constexpr std::uint32_t ring() const { return other_hosts() * at().turns_of_host(); }
};
static_assert(collective_schedule<HierarchicalAllGather>);

/// All blocks go up the trees of the hosts and around the ring of heads, and each rank's block goes
/// down the tree. Cost: a head sends every block but those of its own host to the next host; within
/// hosts as TreeReduce of all blocks, and as TreeScatter. Scratch: all blocks at ranks that
/// combine; at heads two hosts' blocks more.
struct HierarchicalReduceScatter : detail::OnHosts<Collective::reduce_scatter> {
    static constexpr std::string_view name = "hierarchical reduce_scatter";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : at().levels_within() * (1 + at().turns_of_host()) + ring();
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        const auto here = at();
        if (!here.is_head())
            return std::max(TreeReduce{here.within()}.scratch_slots() * blocks(),
                            TreeScatter{here.within()}.scratch_slots());
        return sums() + RingReduceScatter{here.across()}.scratch_slots() * partial();
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const {
        return other_hosts() == 0 ? 0 : at().most_together();
    }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        if (!here.in_rank_order()) return detail::counted(*this);
        const Cost within = detail::plus(TreeScatter{here.within()}.cost(), TreeReduce{here.within()}.cost(), blocks());
        if (!here.is_head() || other_hosts() == 0) return within;
        const auto previous = detail::block_at(here.across(), -1);
        return detail::plus(within, {.messages = other_hosts(),
                                     .blocks_sent = blocks() - static_cast<std::uint32_t>(here.size()),
                                     .blocks_combined = blocks() - here.blocks_of(previous, 1),
                                     .rounds = other_hosts()});
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = at();
        const bool alone = here.size() == 1;
        const std::uint32_t up = here.levels_within();
        if (r < up) {
            if (alone) return;
            const auto everything = [&](Blocks one) {
                return one.where == Buffer::input ? input_blocks(0, blocks()) : scratch_blocks(0, blocks(), 0);
            };
            detail::round_within(here, TreeReduce{here.within()}, r, everything, visit);
        } else if (r < up + ring()) {
            const auto summed = [&](const Blocks& host) {
                const auto placed = here.unfold({host.where, host.first, host.count});
                if (host.where == Buffer::scratch)
                    return detail::Hosts::elsewhere(placed, Buffer::scratch, sums() + host.slot * partial());
                return alone ? placed : detail::Hosts::in_order(placed);
            };
            detail::runs_across(here, RingReduceScatter{here.across()}, r - up, here.turns_of_host(), summed, visit);
        } else if (!alone) {
            const auto own = [&](const Blocks& one) {
                const auto placed = here.shift(one);
                return one.where == Buffer::input ? detail::Hosts::in_order(placed) : placed;
            };
            detail::runs_within(here, TreeScatter{here.within()}, r - up - ring(), own, visit);
        }
    }

private:
    [[nodiscard]] constexpr std::uint32_t other_hosts() const { return static_cast<std::uint32_t>(at().hosts() - 1); }
    [[nodiscard]] constexpr std::uint32_t ring() const { return other_hosts() * at().turns_of_host(); }
    /// Slots at a head: for the sums of its host, and for a sum of another host's blocks that
    /// passes through.
    [[nodiscard]] constexpr std::uint32_t sums() const { return at().size() == 1 ? 0 : blocks(); }
    [[nodiscard]] constexpr std::uint32_t partial() const { return static_cast<std::uint32_t>(at().largest()); }
};
static_assert(collective_schedule<HierarchicalReduceScatter>);

namespace detail {

/// Blocks that a head passes between its subtree of heads and the root, those of its own host
/// included.
constexpr std::uint32_t passing_blocks(const Hosts& here) {
    return here.blocks_of(static_cast<std::uint32_t>(here.host()), TreePosition{here.across()}.subtree());
}

/// Rounds of the trees within and across hosts, in gather and scatter.
constexpr std::uint32_t rounds_within(const Hosts& here) { return here.levels_within() * here.turns_of_host(); }
constexpr std::uint32_t rounds_across(const Hosts& here) { return here.levels_across() * here.turns_of_hosts(); }

/// Slots for the blocks that pass through a rank, in gather and scatter.
constexpr std::uint32_t passing_slots(const Hosts& here) {
    if (!here.is_head()) return TreeGather{here.within()}.scratch_slots();
    if (here.is_root()) return 0;
    const std::uint32_t passing = passing_blocks(here);
    return passing == 1 ? 0 : passing;
}

/// The blocks of this host, in gather and scatter. A root has all blocks in buffer `end`; another
/// head has them in scratch.
constexpr PlacedBlocks within_host(const Hosts& here, const Blocks& one, Buffer end) {
    if (one.where != end || here.is_root()) return here.shift(one);
    return here.shift({Buffer::scratch, one.first, one.count, 0, one.first});
}

/// A round among heads, in gather and scatter. A rank's own block is in buffer `begin`. If a head's
/// host has other ranks, its blocks are in scratch instead, where the phase within the host uses
/// them, and copies are skipped.
template <class Schedule, class Visit>
constexpr void pass_across(const Hosts& here, const Schedule& schedule, std::uint32_t r, Buffer begin, Visit& visit) {
    const bool alone = here.size() == 1;
    const auto place = [&here, alone, begin](const Blocks& hosts) {
        return here.unfold(hosts.where != begin || alone ? hosts : scratch_blocks(hosts.first, hosts.count, 0));
    };
    const auto passed = [&](const Step& step) {
        if (alone || step.kind != StepKind::copy) visit(step);
    };
    runs_across(here, schedule, r, here.turns_of_hosts(), place, passed);
}

} // namespace detail

/// Each host's blocks go to its head, and the heads' blocks go to the root by a tree. Cost per
/// rank: one message (two if its blocks wrap around the end). Scratch: the blocks that pass
/// through.
struct HierarchicalGather : detail::OnHosts<Collective::gather> {
    static constexpr std::string_view name = "hierarchical gather";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : detail::rounds_within(at()) + detail::rounds_across(at());
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return detail::passing_slots(at()); }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        if (!here.in_rank_order()) return detail::counted(*this);
        const Cost within = TreeGather{here.within()}.cost();
        if (!here.is_head() || here.hosts() == 1) return within;
        Cost across = TreeGather{here.across()}.cost();
        across.blocks_sent = here.is_root() ? 0 : detail::passing_blocks(here);
        return detail::plus(within, across);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = at();
        const std::uint32_t up = detail::rounds_within(here);
        if (r < up) {
            if (here.size() == 1) return;
            const auto own = [&](const Blocks& one) { return detail::within_host(here, one, Buffer::output); };
            detail::runs_within(here, TreeGather{here.within()}, r, own, visit);
        } else if (here.hosts() > 1) {
            detail::pass_across(here, TreeGather{here.across()}, r - up, Buffer::input, visit);
        }
    }
};
static_assert(collective_schedule<HierarchicalGather>);

/// The root sends each head the blocks of its host by a tree, and heads pass them to their hosts'
/// ranks. Cost per rank: a message to each child (two if its blocks wrap around the end). Scratch:
/// the blocks that pass through.
struct HierarchicalScatter : detail::OnHosts<Collective::scatter> {
    static constexpr std::string_view name = "hierarchical scatter";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : detail::rounds_across(at()) + detail::rounds_within(at());
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return detail::passing_slots(at()); }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        if (!here.in_rank_order()) return detail::counted(*this);
        const Cost within = TreeScatter{here.within()}.cost();
        if (!here.is_head() || here.hosts() == 1) return within;
        Cost across = TreeScatter{here.across()}.cost();
        across.blocks_sent = detail::passing_blocks(here) - static_cast<std::uint32_t>(here.size());
        return detail::plus(within, across);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = at();
        const std::uint32_t across = detail::rounds_across(here);
        if (r < across) return detail::pass_across(here, TreeScatter{here.across()}, r, Buffer::output, visit);
        if (here.size() == 1) return;
        const auto own = [&](const Blocks& one) { return detail::within_host(here, one, Buffer::input); };
        detail::runs_within(here, TreeScatter{here.within()}, r - across, own, visit);
    }
};
static_assert(collective_schedule<HierarchicalScatter>);

} // namespace schedule

UNISONO_NAMESPACE_END
