#pragma once

/// \file
/// Mapped schedules for small data: each rank posts a copy beside its flag, and all ranks read the
/// copies. One flag and one round, as no rank touches another's buffers; the copies alternate
/// between two slots, so the next operation needs no flag either. All ranks do the whole work: for
/// a few hundred bytes. Every rank waits for all ranks, also a rank that reads from none (a
/// broadcast's root), so that each rank detects a mismatch.

#include "unisono/schedule/mapped.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Each rank posts its data with its flag, and reads what it needs from its peers' copies. Scratch:
/// none. Sums are computed in rank order: the same bits on all ranks. Cost per rank: one flag, and
/// - all_reduce: posts its vector; reads p vectors, and combines them.
/// - reduce: posts its vector; the root reads p vectors, and combines them.
/// - reduce_scatter: posts p blocks; reads its block of p copies, and combines them.
/// - all_gather: posts its block; reads a block of each peer.
/// - gather: posts its block; the root reads a block of each peer.
/// - all_to_all: posts p blocks; reads its block of each peer.
/// - scatter: the root posts p blocks; each rank reads its block of the root's copy.
/// - broadcast: the root posts the vector; each rank reads the root's copy.
template <Collective What>
struct Staged : ScheduleBase<What> {
    static constexpr std::string_view name = std::array<std::string_view, 8>{
        "staged all_reduce", "staged reduce_scatter", "staged all_gather", "staged broadcast",
        "staged reduce",     "staged gather",         "staged scatter",    "staged all_to_all"}[std::size_t(What)];
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks =
        What != Collective::reduce_scatter && What != Collective::scatter && What != Collective::all_to_all;
    using ScheduleBase<What>::shape, ScheduleBase<What>::is_root, ScheduleBase<What>::others;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return moves_vectors(What) ? 1 : detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world > 1 ? 2 : What == Collective::broadcast ? 0 : 1;
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        const bool adds = detail::combines(What) && (What != Collective::reduce || is_root());
        return {.blocks_combined = adds ? others() : 0, .rounds = shape.world > 1 ? 1u : 0u};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = moves_vectors(What) ? 0 : detail::rank_of(shape);
        if (shape.world == 1) return detail::copy_through(own, visit);
        if (r == 0) {
            if (detail::keeps_own_block(What, shape)) detail::copy_through(own, visit);
            return detail::meet(visit, payload(own));
        }
        const auto copy = [](std::uint32_t block) { return posted_blocks(block, single_blocks ? 0 : block); };
        if constexpr (!detail::combines(What)) detail::copy_from_peers<What>(shape, copy, visit);
        else if (What != Collective::reduce || is_root())
            visit(detail::combine_all_ranks(copy(own), shape.rank, output_blocks(own)));
    }

private:
    /// The blocks that this rank posts beside its flag.
    [[nodiscard]] constexpr Blocks payload(std::uint32_t own) const {
        if ((What == Collective::broadcast || What == Collective::scatter) && !is_root()) return {};
        if (What == Collective::broadcast) return output_blocks(0);
        return single_blocks ? input_blocks(own) : input_blocks(0, blocks());
    }
};
UNISONO_CERTIFY(collective_schedule<Staged<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
