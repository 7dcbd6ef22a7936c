#pragma once

/// \file
/// Rings and chains: every rank talks to its two neighbours only. Fewest bytes, most rounds; the
/// choice for large data over messages. Blocks are combined in rank order around the circle, block
/// b starting at rank b (all_reduce) or b + 1 (reduce_scatter), so equal shapes give equal bits on
/// all ranks.
/// Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", JPDC 2009, section 3; chains: pipelined trees of degree one.

#include "unisono/schedule/base.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// p even parts of a vector travel around the circle twice: first to gather sums, then to publish
/// them. Cost per rank: 2(p - 1) messages, rounds and blocks sent, p - 1 combined. Scratch: none;
/// sums grow in the output.
struct RingAllReduce : ScheduleBase<Collective::all_reduce> {
    static constexpr std::string_view name = "ring all_reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2 * others(); }
    [[nodiscard]] constexpr Cost cost() const {
        return cost_of(std::uint64_t{2} * others(), others(), std::uint64_t{2} * others());
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const int turns = shape.world - 1;
        const int turn = static_cast<int>(r);
        const int next = detail::rank_at(shape, 1), previous = detail::rank_at(shape, -1);
        if (turn < turns) {
            const auto out = detail::block_at(shape, -turn), in = detail::block_at(shape, -turn - 1);
            visit(send_to(next, turn == 0 ? input_blocks(out) : output_blocks(out)));
            visit(combine_from(previous, input_blocks(in), output_blocks(in)));
        } else {
            visit(send_to(next, output_blocks(detail::block_at(shape, 1 - (turn - turns)))));
            visit(receive_from(previous, output_blocks(detail::block_at(shape, -(turn - turns)))));
        }
    }
};
UNISONO_CERTIFY(collective_schedule<RingAllReduce>);

/// The first half of RingAllReduce, shifted so that each rank ends with its own block. Cost per
/// rank: p - 1 messages, rounds, blocks sent and combined. Scratch: two blocks (p > 3).
struct RingReduceScatter : ScheduleBase<Collective::reduce_scatter> {
    static constexpr std::string_view name = "ring reduce_scatter";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : others(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        return shape.world < 3 ? 0 : shape.world == 3 ? 1 : 2; // one partial sum leaves while the next one grows
    }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), others(), others()); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const int turn = static_cast<int>(r);
        const auto out = detail::block_at(shape, -turn - 1);
        const auto in = turn == shape.world - 2 ? detail::rank_of(shape) : detail::block_at(shape, -turn - 2);
        visit(send_to(detail::rank_at(shape, 1), turn == 0 ? input_blocks(out) : scratch_blocks(out, 1, (r - 1) % 2)));
        visit(combine_from(detail::rank_at(shape, -1), input_blocks(in),
                           turn == shape.world - 2 ? output_blocks(in) : scratch_blocks(in, 1, r % 2)));
    }
};
UNISONO_CERTIFY(collective_schedule<RingReduceScatter>);

/// Every block travels around the circle once. Cost per rank: p - 1 messages, rounds and blocks
/// sent. Scratch: none.
struct RingAllGather : ScheduleBase<Collective::all_gather> {
    static constexpr std::string_view name = "ring all_gather";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : others(); }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), 0, others()); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const int turn = static_cast<int>(r);
        if (turn == 0) detail::copy_through(detail::rank_of(shape), visit);
        if (shape.world == 1) return;
        const auto out = detail::block_at(shape, -turn);
        visit(send_to(detail::rank_at(shape, 1), turn == 0 ? input_blocks(out) : output_blocks(out)));
        visit(receive_from(detail::rank_at(shape, -1), output_blocks(detail::block_at(shape, -turn - 1))));
    }
};
UNISONO_CERTIFY(collective_schedule<RingAllGather>);

namespace detail {
/// A chain of ranks that begins at the root.
template <Collective What>
struct OnChain : ScheduleBase<What> {
protected:
    [[nodiscard]] constexpr std::uint32_t position() const { return from_root(this->shape); }
    [[nodiscard]] constexpr bool is_last() const { return position() == this->others(); }
};
} // namespace detail

/// A chain away from the root; lanes pipeline it. Cost per rank: one message of the whole vector
/// (none at the end of the chain). With L lanes the last rank ends after p - 2 + L messages of n /
/// L. Scratch: none.
struct RingBroadcast : detail::OnChain<Collective::broadcast> {
    static constexpr std::string_view name = "ring broadcast";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return position() + (is_last() ? 0 : 1); }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t sends = is_last() ? 0 : 1, receives = position() == 0 ? 0 : 1;
        return cost_of(sends, 0, sends + receives);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r + 1 == position()) visit(receive_from(detail::rank_at(shape, -1), output_blocks(0)));
        if (r == position() && !is_last()) visit(send_to(detail::rank_at(shape, 1), output_blocks(0)));
    }
};
UNISONO_CERTIFY(collective_schedule<RingBroadcast>);

/// A chain towards the root, in which each rank adds its input; lanes pipeline it. Cost per rank:
/// one message of the whole vector (none at the root), one combination (none at the far end).
/// Scratch: one vector at ranks between the two ends of the chain.
struct RingReduce : detail::OnChain<Collective::reduce> {
    static constexpr std::string_view name = "ring reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : detail::world_of(shape) - (position() == 0 ? 1 : position());
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return position() == 0 || is_last() ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t sends = position() == 0 ? 0 : 1, receives = is_last() ? 0 : 1;
        return cost_of(sends, receives, sends + receives);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t turns_left = others() - r;
        if (turns_left == position() + 1)
            visit(combine_from(detail::rank_at(shape, 1), input_blocks(0),
                               position() == 0 ? output_blocks(0) : scratch_blocks(0, 1, 0)));
        if (turns_left == position() && position() != 0)
            visit(send_to(detail::rank_at(shape, -1), is_last() ? input_blocks(0) : scratch_blocks(0, 1, 0)));
    }
};
UNISONO_CERTIFY(collective_schedule<RingReduce>);

} // namespace schedule

UNISONO_NAMESPACE_END
