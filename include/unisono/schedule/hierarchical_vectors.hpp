#pragma once

/// \file
/// The hierarchical schedules of whole vectors, and of the barrier. See hierarchical.hpp.

#include "unisono/schedule/barrier.hpp"
#include "unisono/schedule/hosts.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/schedule/tree.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Up the tree of each host, among the heads, down the trees. The heads use a ring, with H blocks
/// on H hosts, or a tree, with one block. Cost: a head sends 2(H - 1) blocks to the next host, or
/// as in TreeAllReduce; within hosts as TreeAllReduce of all blocks. Scratch: none; sums grow in
/// the output.
struct HierarchicalAllReduce : detail::OnHosts<Collective::all_reduce> {
    static constexpr std::string_view name = "hierarchical all_reduce";
    static constexpr bool single_blocks = false;
    bool tree_across = false;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return tree_across ? 1 : hosts(); }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : 2 * at().levels_within() + rounds_across();
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return tree_across || hosts() == 1 ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        const Cost within = detail::plus({}, tree().cost(), blocks());
        if (!here.is_head() || hosts() == 1) return within;
        return detail::plus(within,
                            tree_across ? TreeAllReduce{here.across()}.cost() : RingAllReduce{here.across()}.cost());
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = at();
        const bool alone = here.size() == 1;
        const std::uint32_t up = here.levels_within(), across = rounds_across();
        const std::uint32_t levels = alone ? 0 : tree().rounds() / 2; // of this host
        const auto everything = [&](Blocks one) { return Blocks{one.where, 0, blocks()}; };
        if (r < up) {
            if (r < levels) detail::round_within(here, tree(), r, everything, visit);
        } else if (r < up + across) {
            const auto summed = [alone](Blocks one) {
                return alone || one.where != Buffer::input ? one : output_blocks(one.first, one.count);
            };
            if (tree_across) detail::round_across(here, TreeAllReduce{here.across()}, r - up, summed, visit);
            else detail::round_across(here, RingAllReduce{here.across()}, r - up, summed, visit);
        } else if (r - up - across < levels) {
            detail::round_within(here, tree(), levels + r - up - across, everything, visit);
        }
    }

    [[nodiscard]] constexpr std::uint32_t variant() const { return 2 * layout.variant() + (tree_across ? 1 : 0); }
    friend constexpr bool operator==(const HierarchicalAllReduce&, const HierarchicalAllReduce&) = default;

private:
    [[nodiscard]] constexpr std::uint32_t hosts() const { return static_cast<std::uint32_t>(at().hosts()); }
    [[nodiscard]] constexpr std::uint32_t rounds_across() const {
        return 2 * (tree_across ? at().levels_across() : hosts() - 1);
    }
    [[nodiscard]] constexpr TreeAllReduce tree() const { return {at().within()}; }
};
static_assert(collective_schedule<HierarchicalAllReduce>);

/// Down the tree of heads, then down the trees of the hosts. Cost per rank: a message of the whole
/// vector to each child, at most ceil(log2 hosts) of them to other hosts. Scratch: none.
struct HierarchicalBroadcast : detail::OnHosts<Collective::broadcast> {
    static constexpr std::string_view name = "hierarchical broadcast";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return at().levels_across() + at().levels_within(); }
    [[nodiscard]] constexpr Cost cost() const {
        const Cost within = TreeBroadcast{at().within()}.cost();
        return at().is_head() ? detail::plus(within, TreeBroadcast{at().across()}.cost()) : within;
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = at();
        const std::uint32_t across = here.levels_across();
        const auto same = [](Blocks one) { return one; };
        if (r < across) detail::round_across(here, TreeBroadcast{here.across()}, r, same, visit);
        else detail::round_within(here, TreeBroadcast{here.within()}, r - across, same, visit);
    }
};
static_assert(collective_schedule<HierarchicalBroadcast>);

/// Up the trees of the hosts, then up the tree of heads. Cost per rank: one message of the whole
/// vector towards the root, a combination for each child. Scratch: one vector at ranks that
/// combine, except at the root.
struct HierarchicalReduce : detail::OnHosts<Collective::reduce> {
    static constexpr std::string_view name = "hierarchical reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : at().levels_within() + at().levels_across();
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        const auto here = at();
        if (!here.is_head()) return TreeReduce{here.within()}.scratch_slots();
        return here.is_root() ? 0 : here.size() > 1 ? 1 : TreeReduce{here.across()}.scratch_slots();
    }
    [[nodiscard]] constexpr Cost cost() const {
        const Cost within = TreeReduce{at().within()}.cost();
        return at().is_head() ? detail::plus(within, TreeReduce{at().across()}.cost()) : within;
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = at();
        const std::uint32_t up = here.levels_within();
        const Blocks sum = here.is_root() ? output_blocks(0) : scratch_blocks(0, 1, 0);
        if (r < up) {
            if (here.size() == 1) return;
            const auto own = [&](Blocks one) { return one.where == Buffer::output ? sum : one; };
            detail::round_within(here, TreeReduce{here.within()}, r, own, visit);
        } else if (here.hosts() > 1) {
            const bool alone = here.size() == 1;
            const auto summed = [&](Blocks one) { return one.where == Buffer::input && !alone ? sum : one; };
            detail::round_across(here, TreeReduce{here.across()}, r - up, summed, visit);
        }
    }
};
static_assert(collective_schedule<HierarchicalReduce>);

/// Each rank signals its head, the heads signal one another, and each head signals its host. Cost
/// per rank: an empty message to its parent and to each child; at heads ceil(log2 hosts) more.
struct HierarchicalBarrier : detail::OnHosts<Collective::barrier> {
    static constexpr std::string_view name = "hierarchical barrier";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return 2 * at().levels_within() + at().levels_across(); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return at().hosts() == 1 ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = at();
        const Cost within =
            detail::plus(detail::plus({}, TreeReduce{here.within()}.cost(), 0), TreeBroadcast{here.within()}.cost(), 0);
        return here.is_head() ? detail::plus(within, DisseminationBarrier{here.across()}.cost()) : within;
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = at();
        const std::uint32_t up = here.levels_within(), across = here.levels_across();
        const auto same = [](Blocks one) { return one; };
        const auto empty = [&](const Step& step) {
            if (step.kind == StepKind::send) visit(send_to(step.peer, input_blocks(0, 0)));
            else if (step.kind != StepKind::copy) visit(receive_from(step.peer, input_blocks(0, 0)));
        };
        if (r < up) detail::round_within(here, TreeReduce{here.within()}, r, same, empty);
        else if (r < up + across) detail::round_across(here, DisseminationBarrier{here.across()}, r - up, same, visit);
        else detail::round_within(here, TreeBroadcast{here.within()}, r - up - across, same, empty);
    }
};
static_assert(collective_schedule<HierarchicalBarrier>);

} // namespace schedule

UNISONO_NAMESPACE_END
