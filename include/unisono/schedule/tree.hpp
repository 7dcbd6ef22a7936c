#pragma once

/// \file
/// Binomial trees: ceil(log2 p) rounds of whole vectors. For small data, and for collectives with a
/// root. Ranks count from the root: v = (rank - root) mod p. The parent of v is v without its
/// lowest set bit 2^j, and the subtree of v is [v, v + 2^j), cut off at p. Children with large
/// subtrees come first on the way down and last on the way up.
/// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
/// operations in MPICH", IJHPCA 2005, section 3.

#include "unisono/schedule/base.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// A rank's position in the binomial tree.
struct TreePosition {
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t world() const { return world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t place() const { return from_root(shape); }
    [[nodiscard]] constexpr bool is_root() const { return place() == 0; }
    /// Levels of the whole tree.
    [[nodiscard]] constexpr std::uint32_t levels() const { return ceil_log2(world()); }
    /// The level at which this rank exchanges with its parent; all lower levels are its children's.
    [[nodiscard]] constexpr std::uint32_t level() const {
        return is_root() ? levels() : static_cast<std::uint32_t>(std::countr_zero(place()));
    }
    [[nodiscard]] constexpr bool has_child(std::uint32_t at) const {
        return at < level() && place() + (1u << at) < world();
    }
    [[nodiscard]] constexpr std::uint32_t children() const {
        std::uint32_t count = 0;
        for (std::uint32_t at = 0; at < level(); ++at) count += has_child(at) ? 1U : 0U;
        return count;
    }
    [[nodiscard]] constexpr int child(std::uint32_t at) const { return rank_at(shape, 1 << at); }
    [[nodiscard]] constexpr int parent() const { return rank_at(shape, -(1 << level())); }
    /// The number of ranks in this rank's subtree, itself included: the blocks from its own one on,
    /// around the circle.
    [[nodiscard]] constexpr std::uint32_t subtree() const {
        const std::uint32_t left = world() - place();
        return is_root() || (1u << level()) > left ? left : 1u << level();
    }
    [[nodiscard]] constexpr std::uint32_t subtree_of_child(std::uint32_t at) const {
        const std::uint32_t left = world() - place() - (1u << at);
        return (1u << at) > left ? left : 1u << at;
    }
};

/// The base of schedules on the tree: of the root, or of rank 0 if the collective has none.
template <Collective What>
struct OnTree : ScheduleBase<What> {
protected:
    [[nodiscard]] constexpr TreePosition place() const {
        return {Shape{this->shape.world, this->shape.rank, has_root(What) ? this->shape.root : 0}};
    }
};

} // namespace detail

/// Cost per rank: a message of the whole vector to each child, at most ceil(log2 p). Scratch: none.
struct TreeBroadcast : detail::OnTree<Collective::broadcast> {
    static constexpr std::string_view name = "tree broadcast";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return place().levels(); }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t sends = place().children();
        return cost_of(sends, 0, sends + (place().is_root() ? 0 : 1));
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = place();
        const std::uint32_t at = here.levels() - 1 - r;
        if (here.has_child(at)) visit(send_to(here.child(at), output_blocks(0)));
        if (!here.is_root() && at == here.level()) visit(receive_from(here.parent(), output_blocks(0)));
    }
};
UNISONO_CERTIFY(collective_schedule<TreeBroadcast>);

/// Cost per rank: one message of the whole vector to its parent, one combination for each child.
/// Scratch: one vector at ranks between root and leaves.
struct TreeReduce : detail::OnTree<Collective::reduce> {
    static constexpr std::string_view name = "tree reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : place().levels(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        return place().is_root() || place().children() == 0 ? 0 : 1;
    }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t sends = place().is_root() ? 0 : 1, receives = place().children();
        return cost_of(sends, receives, sends + receives);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = place();
        const Blocks sum = here.is_root() ? output_blocks(0) : scratch_blocks(0, 1, 0);
        if (here.has_child(r)) visit(combine_from(here.child(r), r == 0 ? input_blocks(0) : sum, sum));
        if (!here.is_root() && r == here.level())
            visit(send_to(here.parent(), here.children() == 0 ? input_blocks(0) : sum));
    }
};
UNISONO_CERTIFY(collective_schedule<TreeReduce>);

/// Up the tree of rank 0 and down again. Cost per rank: a message of the whole vector to its parent
/// and to each child, a combination for each child, 2 ceil(log2 p) rounds at rank 0. Scratch: none;
/// sums grow in the output.
struct TreeAllReduce : detail::OnTree<Collective::all_reduce> {
    static constexpr std::string_view name = "tree all_reduce";

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2 * place().levels(); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t parents = place().is_root() ? 0 : 1, children = place().children();
        return cost_of(parents + children, children, 2 * (parents + children));
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto here = place();
        const bool up = r < here.levels();
        const std::uint32_t at = up ? r : 2 * here.levels() - 1 - r;
        const bool meets_parent = !here.is_root() && at == here.level();
        if (here.has_child(at)) {
            if (up) visit(combine_from(here.child(at), at == 0 ? input_blocks(0) : output_blocks(0), output_blocks(0)));
            else visit(send_to(here.child(at), output_blocks(0)));
        }
        if (meets_parent && up)
            visit(send_to(here.parent(), here.children() == 0 ? input_blocks(0) : output_blocks(0)));
        if (meets_parent && !up) visit(receive_from(here.parent(), output_blocks(0)));
    }
};
UNISONO_CERTIFY(collective_schedule<TreeAllReduce>);

/// Each rank sends all blocks of its subtree to its parent. Cost per rank: one message (two if its
/// blocks wrap around the end), at most p / 2 blocks; the root receives p - 1. Scratch: the
/// subtree's blocks at ranks between root and leaves.
struct TreeGather : detail::OnTree<Collective::gather> {
    static constexpr std::string_view name = "tree gather";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : place().levels(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        return place().is_root() || place().subtree() == 1 ? 0 : place().subtree();
    }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = place();
        const std::uint64_t sent = here.is_root() ? 0 : here.subtree();
        const auto messages =
            here.is_root() ? 0 : detail::count_ranges(detail::rank_of(shape), here.subtree(), blocks());
        return {.messages = messages,
                .blocks_sent = sent,
                .blocks_combined = 0,
                .rounds = here.children() + (here.is_root() ? 0u : 1u)};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = place();
        const std::uint32_t own = detail::rank_of(shape), world = blocks();
        const bool leaf = !here.is_root() && here.subtree() == 1;
        const auto gathered = [&](std::uint32_t first, std::uint32_t count) {
            return here.is_root() ? output_blocks(first, count)
                   : leaf         ? input_blocks(first, count)
                                  : detail::in_run(first, count, own, world);
        };
        if (r == 0 && !leaf) visit(copy_blocks(input_blocks(own), gathered(own, 1)));
        if (here.has_child(r)) {
            detail::for_each_range(detail::block_at(shape, 1 << r), here.subtree_of_child(r), world,
                                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                                       visit(receive_from(here.child(r), gathered(first, count), part));
                                   });
        }
        if (!here.is_root() && r == here.level()) {
            detail::for_each_range(own, here.subtree(), world,
                                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                                       visit(send_to(here.parent(), gathered(first, count), part));
                                   });
        }
    }
};
UNISONO_CERTIFY(collective_schedule<TreeGather>);

/// Each rank sends each child the blocks of the child's subtree. Cost per rank: a message to each
/// child (two if its blocks wrap around the end); the root sends p - 1 blocks. Scratch: the
/// subtree's blocks at ranks between root and leaves.
struct TreeScatter : detail::OnTree<Collective::scatter> {
    static constexpr std::string_view name = "tree scatter";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : place().levels(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        return place().is_root() || place().subtree() == 1 ? 0 : place().subtree();
    }
    [[nodiscard]] constexpr Cost cost() const {
        const auto here = place();
        std::uint64_t messages = 0;
        for (std::uint32_t at = 0; at < here.level(); ++at)
            if (here.has_child(at))
                messages += detail::count_ranges(detail::block_at(shape, 1 << at), here.subtree_of_child(at), blocks());
        return {.messages = messages,
                .blocks_sent = here.subtree() - 1,
                .blocks_combined = 0,
                .rounds = here.children() + (here.is_root() ? 0u : 1u)};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const auto here = place();
        const std::uint32_t own = detail::rank_of(shape), world = blocks();
        const bool leaf = !here.is_root() && here.subtree() == 1;
        const auto passing = [&](std::uint32_t first, std::uint32_t count) {
            return here.is_root() ? input_blocks(first, count)
                   : leaf         ? output_blocks(first, count)
                                  : detail::in_run(first, count, own, world);
        };
        // One round after the blocks arrived; at the root, the first round.
        if (!leaf && r == here.levels() - here.level()) visit(copy_blocks(passing(own, 1), output_blocks(own)));
        if (shape.world == 1) return;
        const std::uint32_t at = here.levels() - 1 - r;
        if (here.has_child(at)) {
            detail::for_each_range(detail::block_at(shape, 1 << at), here.subtree_of_child(at), world,
                                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                                       visit(send_to(here.child(at), passing(first, count), part));
                                   });
        }
        if (!here.is_root() && at == here.level()) {
            detail::for_each_range(own, here.subtree(), world,
                                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                                       visit(receive_from(here.parent(), passing(first, count), part));
                                   });
        }
    }
};
UNISONO_CERTIFY(collective_schedule<TreeScatter>);

} // namespace schedule

UNISONO_NAMESPACE_END
