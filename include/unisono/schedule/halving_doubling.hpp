#pragma once

/// \file
/// Recursive halving and doubling for any world: ceil(log2 p) rounds in each direction and p - 1
/// blocks, the minimum of both. Ranks work on circular ranges: rank r sees block (r + i) mod p as
/// its i-th. The range that a rank works on shrinks from s(0) = p to s(k + 1) = ceil(s(k) / 2); in
/// round k its upper part goes to rank + s(k + 1). For powers of two this has the rounds and the
/// volume of the classic algorithm, and other worlds need no extra round. Sums grow along a fixed
/// circulant graph: the same bits on all ranks; the bits depend on p.
/// Source: J. L. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024,
/// algorithms 1 and 2; all_gather: J. Bruck et al., "Efficient algorithms for all-to-all
/// communications", TPDS 1997, section 4.

#include "unisono/schedule/base.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// Round k of ceil(log2 p): the range [0, wide) is cut to [0, narrow).
struct Halving {
    std::uint32_t wide = 0;
    std::uint32_t narrow = 0;

    constexpr Halving(std::uint32_t world, std::uint32_t k) : wide(world), narrow(world - world / 2) {
        for (; k != 0; --k) {
            wide = narrow;
            narrow = wide - wide / 2;
        }
    }
    /// The number of blocks that move: narrow or narrow - 1.
    [[nodiscard]] constexpr std::uint32_t moving() const { return wide - narrow; }
    [[nodiscard]] constexpr int distance() const { return static_cast<int>(narrow); }
};

/// Messages in one direction. A range that wraps around the end takes two.
constexpr std::uint64_t halving_messages(const Shape& shape, bool upper) {
    std::uint64_t count = 0;
    for (std::uint32_t k = 0; k < ceil_log2(world_of(shape)); ++k) {
        const Halving halving(world_of(shape), k);
        const std::uint32_t first = upper ? block_at(shape, halving.distance()) : rank_of(shape);
        count += count_ranges(first, halving.moving(), world_of(shape));
    }
    return count;
}

/// A round of doubling: sends the present range, [0, moving), to rank - distance; receives [narrow,
/// wide) from rank + distance.
template <class Visit>
constexpr void double_range(const Shape& shape, const Halving& halving, bool from_input, Visit&& visit) {
    const std::uint32_t own = rank_of(shape), world = world_of(shape);
    const int further = rank_at(shape, halving.distance()), back = rank_at(shape, -halving.distance());
    for_each_range(own, halving.moving(), world, [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
        visit(send_to(back, from_input ? input_blocks(first, count) : output_blocks(first, count), part));
    });
    for_each_range(static_cast<std::uint32_t>(further), halving.moving(), world,
                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                       visit(receive_from(further, output_blocks(first, count), part));
                   });
}

/// A round of halving: sends [narrow, wide) to rank + distance; combines the received blocks into
/// [0, moving). Partial sums are in `sums(first, count)`, results in `results(first, count)`; in
/// round 0 all blocks are still in the input.
template <class Sums, class Results, class Visit>
constexpr void halve_range(const Shape& shape, std::uint32_t k, Sums&& sums, Results&& results, Visit&& visit) {
    const std::uint32_t own = rank_of(shape), world = world_of(shape);
    const Halving halving(world, k);
    const int further = rank_at(shape, halving.distance()), back = rank_at(shape, -halving.distance());
    const auto so_far = [&](std::uint32_t first, std::uint32_t count) {
        return k == 0 ? input_blocks(first, count) : sums(first, count);
    };
    // The middle block of an odd range has no partner in round 0. From round 1 on it is in the
    // sums.
    if (k == 0 && halving.moving() != halving.narrow) {
        const std::uint32_t middle = block_at(shape, static_cast<int>(halving.moving()));
        visit(copy_blocks(input_blocks(middle), sums(middle, 1)));
    }
    for_each_range(static_cast<std::uint32_t>(further), halving.moving(), world,
                   [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
                       visit(send_to(further, so_far(first, count), part));
                   });
    for_each_range(own, halving.moving(), world, [&](std::uint32_t first, std::uint32_t count, std::uint8_t part) {
        visit(combine_from(back, so_far(first, count), halving.narrow == 1 ? results(first, count) : sums(first, count),
                           part));
    });
}

} // namespace detail

/// Cost per rank: ceil(log2 p) rounds, p - 1 blocks sent and combined, a message per round (two
/// where a range wraps around the end). Scratch: ceil(p / 2) blocks (p > 2).
struct HalvingReduceScatter : ScheduleBase<Collective::reduce_scatter> {
    static constexpr std::string_view name = "halving reduce_scatter";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : detail::ceil_log2(blocks()); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const {
        return shape.world < 3 ? 0 : detail::Halving(blocks(), 0).narrow;
    }
    [[nodiscard]] constexpr Cost cost() const {
        return {detail::halving_messages(shape, true), others(), others(), detail::ceil_log2(blocks())};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t own = detail::rank_of(shape), world = blocks();
        detail::halve_range(
            shape, r,
            [=](std::uint32_t first, std::uint32_t count) { return detail::in_run(first, count, own, world); },
            [](std::uint32_t first, std::uint32_t count) { return output_blocks(first, count); }, visit);
    }
};
UNISONO_CERTIFY(collective_schedule<HalvingReduceScatter>);

/// Cost per rank: ceil(log2 p) rounds, p - 1 blocks sent, a message per round (two where a range
/// wraps around the end). Scratch: none.
struct DoublingAllGather : ScheduleBase<Collective::all_gather> {
    static constexpr std::string_view name = "doubling all_gather";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : detail::ceil_log2(blocks()); }
    [[nodiscard]] constexpr Cost cost() const {
        return {detail::halving_messages(shape, false), others(), 0, detail::ceil_log2(blocks())};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r == 0) detail::copy_through(detail::rank_of(shape), visit);
        if (shape.world == 1) return;
        detail::double_range(shape, detail::Halving(blocks(), rounds() - 1 - r), r == 0, visit);
    }
};
UNISONO_CERTIFY(collective_schedule<DoublingAllGather>);

/// Reduce-scatter, then all-gather, on p even parts of a vector. Cost per rank: 2 ceil(log2 p)
/// rounds, 2(p - 1) blocks sent, p - 1 combined. Scratch: none; sums grow in the output.
struct HalvingDoublingAllReduce : ScheduleBase<Collective::all_reduce> {
    static constexpr std::string_view name = "halving_doubling all_reduce";
    static constexpr bool single_blocks = false;

    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world == 1 ? 1 : 2 * detail::ceil_log2(blocks());
    }
    [[nodiscard]] constexpr Cost cost() const {
        const std::uint64_t others = blocks() - 1;
        return {.messages = detail::halving_messages(shape, true) + detail::halving_messages(shape, false),
                .blocks_sent = 2 * others,
                .blocks_combined = others,
                .rounds = std::uint64_t{2} * detail::ceil_log2(blocks())};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const auto output = [](std::uint32_t first, std::uint32_t count) { return output_blocks(first, count); };
        const std::uint32_t turns = rounds() / 2;
        if (r < turns) detail::halve_range(shape, r, output, output, visit);
        else detail::double_range(shape, detail::Halving(blocks(), rounds() - 1 - r), false, visit);
    }
};
UNISONO_CERTIFY(collective_schedule<HalvingDoublingAllReduce>);

} // namespace schedule

UNISONO_NAMESPACE_END
