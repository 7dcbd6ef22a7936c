#pragma once

/// \file
/// The hierarchical schedules of collectives whose ranks have blocks of their own: a host's blocks travel between hosts as one
/// message. See hierarchical.hpp.

#include "unisono/schedule/hosts.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/schedule/tree.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Each host's blocks go to its head, around the ring of heads, and everything down the trees. Cost: a head sends all blocks but
/// those of the next host to it; within hosts as TreeGather and as TreeBroadcast of all blocks. Scratch: as TreeGather.
struct HierarchicalAllGather {
    static constexpr Collective collective = Collective::all_gather;
    static constexpr std::string_view name = "hierarchical all_gather";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = false;
    Shape shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return up() + others() + at().levels_within(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return TreeGather{at().within()}.scratch_slots(); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return others() == 0 ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        const Cost within =
            detail::plus(TreeGather{here.within()}.cost(), TreeBroadcast{here.within()}.cost(), blocks());
        if (!here.is_head() || others() == 0) return within;
        const auto next = detail::block_at(here.across(), 1);
        return detail::plus(within, {.messages = others(),
                                     .blocks_sent = blocks() - here.blocks_of(next, 1),
                                     .blocks_combined = 0,
                                     .rounds = others()});
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = at();
        if (r < up()) {
            detail::round_within(
                here, TreeGather{here.within()}, r, [&](Blocks one) { return here.shift(one); }, visit);
        } else if (r < up() + others()) {
            const auto gathered = [&](Blocks host) {
                host.where = Buffer::output;
                return here.unfold(host);
            };
            const auto messages = [&](const Step& step) {
                if (step.kind != StepKind::copy) visit(step); // it is there already
            };
            detail::round_across(here, RingAllGather{here.across()}, r - up(), gathered, messages);
        } else {
            detail::round_within(
                here, TreeBroadcast{here.within()}, r - up() - others(),
                [&](Blocks) { return output_blocks(0, blocks()); }, visit);
        }
    }

    [[nodiscard]] constexpr std::uint32_t variant() const { return layout.variant(); }
    friend constexpr bool operator==(const HierarchicalAllGather&, const HierarchicalAllGather&) = default;

private:
    [[nodiscard]] constexpr detail::Hosts at() const { return {Shape{shape.world, shape.rank, 0}, layout}; }
    [[nodiscard]] constexpr std::uint32_t up() const { return std::max(1u, at().levels_within()); }
    [[nodiscard]] constexpr std::uint32_t others() const { return static_cast<std::uint32_t>(at().hosts() - 1); }
};
static_assert(collective_schedule<HierarchicalAllGather>);

/// Up the trees of the hosts with all blocks, around the ring of heads, and each rank's block down. Cost: a head sends all blocks
/// but those of its host to the next one; within hosts as TreeReduce of all blocks and as TreeScatter. Scratch: all blocks at
/// ranks that combine, and two hosts' blocks more at heads.
struct HierarchicalReduceScatter {
    static constexpr Collective collective = Collective::reduce_scatter;
    static constexpr std::string_view name = "hierarchical reduce_scatter";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = false;
    Shape shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : 2 * at().levels_within() + others();
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        const auto here = at();
        if (!here.is_head())
            return std::max(TreeReduce{here.within()}.scratch_slots() * blocks(),
                            TreeScatter{here.within()}.scratch_slots());
        return sums() + RingReduceScatter{here.across()}.scratch_slots() * partial();
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return others() == 0 ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        const Cost within = detail::plus(TreeScatter{here.within()}.cost(), TreeReduce{here.within()}.cost(), blocks());
        if (!here.is_head() || others() == 0) return within;
        const auto previous = detail::block_at(here.across(), -1);
        return detail::plus(within, {.messages = others(),
                                     .blocks_sent = blocks() - static_cast<std::uint32_t>(here.size()),
                                     .blocks_combined = blocks() - here.blocks_of(previous, 1),
                                     .rounds = others()});
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
        } else if (r < up + others()) {
            const auto summed = [&](Blocks host) {
                const Blocks range = here.unfold({host.where, host.first, host.count});
                if (host.where == Buffer::scratch)
                    return scratch_blocks(range.first, range.count, sums() + host.slot * partial());
                return alone ? range : scratch_blocks(range.first, range.count, 0, range.first);
            };
            detail::round_across(here, RingReduceScatter{here.across()}, r - up, summed, visit);
        } else if (!alone) {
            const auto own = [&](Blocks one) {
                const Blocks shifted = here.shift(one);
                return one.where == Buffer::input ? scratch_blocks(shifted.first, one.count, 0, shifted.first)
                                                  : shifted;
            };
            detail::round_within(here, TreeScatter{here.within()}, r - up - others(), own, visit);
        }
    }

    [[nodiscard]] constexpr std::uint32_t variant() const { return layout.variant(); }
    friend constexpr bool operator==(const HierarchicalReduceScatter&, const HierarchicalReduceScatter&) = default;

private:
    [[nodiscard]] constexpr detail::Hosts at() const { return {Shape{shape.world, shape.rank, 0}, layout}; }
    [[nodiscard]] constexpr std::uint32_t others() const { return static_cast<std::uint32_t>(at().hosts() - 1); }
    /// Slots at a head: of its host's sums, and of the sum of another host's blocks that passes through.
    [[nodiscard]] constexpr std::uint32_t sums() const { return at().size() == 1 ? 0 : blocks(); }
    [[nodiscard]] constexpr std::uint32_t partial() const { return static_cast<std::uint32_t>(at().largest()); }
};
static_assert(collective_schedule<HierarchicalReduceScatter>);

namespace detail {

/// Blocks that a head passes on between its part of the tree of heads and the root, its own host's among them.
constexpr std::uint32_t passing_blocks(const Hosts& here) {
    return here.blocks_of(static_cast<std::uint32_t>(here.host()), TreePlace{here.across()}.subtree());
}

/// Slots for what passes through a rank in gather and scatter.
constexpr std::uint32_t passing_slots(const Hosts& here) {
    if (!here.is_head()) return TreeGather{here.within()}.scratch_slots();
    if (here.is_root()) return 0;
    const std::uint32_t passing = passing_blocks(here);
    return passing == 1 ? 0 : passing;
}

/// Blocks of this host in gather and scatter. `end` is where a root has everything; another head has it in scratch.
constexpr Blocks within_host(const Hosts& here, const Blocks& one, Buffer end) {
    const Blocks shifted = here.shift(one);
    if (one.where != end || here.is_root()) return shifted;
    return scratch_blocks(shifted.first, one.count, 0, one.first);
}

/// A round among heads of gather and scatter. `begin` is where a rank has its own block: of a head with company its host's
/// blocks are where the phase within the host has them, and are not copied.
template <class Schedule, class Visit>
constexpr void pass_across(const Hosts& here, const Schedule& schedule, std::uint32_t r, Buffer begin, Visit& visit) {
    const bool alone = here.size() == 1;
    const auto place = [&here, alone, begin](const Blocks& hosts) {
        const Blocks unfolded = here.unfold(hosts);
        return hosts.where != begin || alone ? unfolded : scratch_blocks(unfolded.first, unfolded.count, 0);
    };
    const auto passed = [&](const Step& step) {
        if (alone || step.kind != StepKind::copy) visit(step);
    };
    round_across(here, schedule, r, place, passed);
}

} // namespace detail

/// Each host's blocks go to its head, and the heads' to the root by a tree. Cost a rank: one message (two where its blocks wrap
/// around the end). Scratch: the blocks that pass through.
struct HierarchicalGather {
    static constexpr Collective collective = Collective::gather;
    static constexpr std::string_view name = "hierarchical gather";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = false;
    Shape shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : at().levels_within() + at().levels_across();
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return detail::passing_slots(at()); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
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
        const std::uint32_t up = here.levels_within();
        if (r < up) {
            if (here.size() == 1) return;
            const auto own = [&](Blocks one) { return detail::within_host(here, one, Buffer::output); };
            detail::round_within(here, TreeGather{here.within()}, r, own, visit);
        } else if (here.hosts() > 1) {
            detail::pass_across(here, TreeGather{here.across()}, r - up, Buffer::input, visit);
        }
    }

    [[nodiscard]] constexpr std::uint32_t variant() const { return layout.variant(); }
    friend constexpr bool operator==(const HierarchicalGather&, const HierarchicalGather&) = default;

private:
    [[nodiscard]] constexpr detail::Hosts at() const { return {shape, layout}; }
};
static_assert(collective_schedule<HierarchicalGather>);

/// The root sends each head its host's blocks by a tree, and heads pass them on. Cost a rank: a message to each child (two where
/// its blocks wrap around the end). Scratch: the blocks that pass through.
struct HierarchicalScatter {
    static constexpr Collective collective = Collective::scatter;
    static constexpr std::string_view name = "hierarchical scatter";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = false;
    Shape shape;
    HostLayout layout = {};

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : at().levels_across() + at().levels_within();
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return detail::passing_slots(at()); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
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
        const std::uint32_t across = here.levels_across();
        if (r < across) return detail::pass_across(here, TreeScatter{here.across()}, r, Buffer::output, visit);
        if (here.size() == 1) return;
        const auto own = [&](const Blocks& one) { return detail::within_host(here, one, Buffer::input); };
        detail::round_within(here, TreeScatter{here.within()}, r - across, own, visit);
    }

    [[nodiscard]] constexpr std::uint32_t variant() const { return layout.variant(); }
    friend constexpr bool operator==(const HierarchicalScatter&, const HierarchicalScatter&) = default;

private:
    [[nodiscard]] constexpr detail::Hosts at() const { return {shape, layout}; }
};
static_assert(collective_schedule<HierarchicalScatter>);

} // namespace schedule

UNISONO_NAMESPACE_END
