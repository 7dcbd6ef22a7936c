#pragma once

/// \file
/// The direct schedules for transports that map peers' memory. There are no messages: each rank
/// reads and writes its peers' buffers between two flags. Blocks are combined in rank order, as in
/// direct.hpp, with the same bits. The first flag says that a rank's buffers are ready, the second
/// that the rank has finished with its peers' buffers. If only the root has what the others read
/// (broadcast, scatter) or only the root reads (gather), each rank has one of the two flags, and
/// the others await only the root.
///
/// The staged schedules are for a few hundred bytes: each rank posts a copy beside its flag, and
/// all ranks read the copies. One flag and one round, as no rank touches another's buffers; nor
/// does the next operation need a flag, since a copy stays while a rank may read it. All ranks do
/// the whole work. With a root, a rank awaits only those whose copies it reads; the others continue
/// at once.

#include "unisono/schedule/base.hpp"

#include <array>

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// This rank's flag, with a copy of `payload` if it has blocks.
constexpr Step post(const Blocks& payload = {}) { return {StepKind::post, everyone, payload, {}, 0}; }
constexpr Step await(int peer, std::uint8_t flag = 0) { return {StepKind::await, peer, {}, {}, flag}; }

/// Ends a round: all ranks await one another.
template <class Visit>
constexpr void meet(Visit&& visit, std::uint8_t flag = 0, const Blocks& payload = {}) {
    visit(post(payload));
    visit(await(everyone, flag));
}

constexpr Step combine_all_ranks(const Blocks& source, int owner, const Blocks& target) {
    return {StepKind::combine_peers, owner, source, target, 0};
}
constexpr Step copy_from(int peer, const Blocks& source, const Blocks& target) {
    return {StepKind::copy_from_peer, peer, source, target, 0};
}

constexpr bool combines(Collective what) {
    return what == Collective::all_reduce || what == Collective::reduce_scatter || what == Collective::reduce;
}

/// True if the root's data go to the others.
constexpr bool is_from_root(Collective what) { return what == Collective::broadcast || what == Collective::scatter; }

/// True if this rank's own block of the input is a block of its output.
constexpr bool keeps_own_block(Collective what, const Shape& shape) {
    return what == Collective::all_gather || what == Collective::all_to_all ||
           ((what == Collective::gather || what == Collective::scatter) && shape.rank == shape.root);
}

/// Copies the peers' blocks for this rank into the output. `source(block)` tells where a peer holds
/// a block.
template <Collective What, class Source, class Visit>
constexpr void copy_from_peers(const Shape& shape, Source source, Visit&& visit) {
    const bool is_root = shape.rank == shape.root;
    if constexpr (is_from_root(What)) {
        const std::uint32_t block = What == Collective::scatter ? rank_of(shape) : 0;
        if (!is_root) visit(copy_from(shape.root, source(block), output_blocks(block)));
    } else if (What != Collective::gather || is_root) {
        for_each_peer(shape, [&](int peer) {
            const auto theirs = static_cast<std::uint32_t>(peer);
            visit(copy_from(peer, source(What == Collective::all_to_all ? rank_of(shape) : theirs),
                            output_blocks(theirs)));
        });
    }
}

} // namespace detail

/// Between two flags each rank reads the blocks that it needs from its peers' inputs. With a root,
/// except in reduce, a rank that is read posts and awaits its readers; a reader awaits, reads and
/// posts. Scratch: none. Cost per rank:
/// - all_reduce: reads its block of p inputs, and writes its sum to all outputs.
/// - reduce_scatter: reads its block of p inputs, and writes its sum to its output.
/// - reduce: reads its block of p inputs, and writes its sum to the root's output.
/// - all_gather, all_to_all: reads a block of each peer, and writes p blocks to its output.
/// - gather: the root reads a block of each peer, and writes p blocks to its output.
/// - scatter: reads its block at the root, and writes its output.
/// - broadcast: reads all blocks at the root, and writes its output.
template <Collective What>
struct Mapped : ScheduleBase<What> {
    static constexpr std::string_view name = std::array<std::string_view, 8>{
        "mapped all_reduce", "mapped reduce_scatter", "mapped all_gather", "mapped broadcast",
        "mapped reduce",     "mapped gather",         "mapped scatter",    "mapped all_to_all"}[std::size_t(What)];
    static constexpr bool mapped = true;
    using ScheduleBase<What>::shape, ScheduleBase<What>::is_root;

    [[nodiscard]] constexpr std::uint32_t blocks() const {
        return What == Collective::broadcast ? 1 : detail::world_of(shape);
    }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        if (shape.world == 1) return What == Collective::broadcast ? 0 : 1;
        return one_sided && !reads() ? 1 : 2;
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        return {.blocks_combined = detail::combines(What) ? blocks() - 1 : 0,
                .rounds = shape.world == 1 ? 0u
                          : one_sided      ? 1u
                                           : 2u};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (shape.world == 1) return detail::copy_through(own, visit);
        if (r == 0 && detail::keeps_own_block(What, shape)) detail::copy_through(own, visit);
        if constexpr (one_sided) return one_side(r, own, visit);
        if (r == 1) work(own, visit);
        detail::meet(visit, static_cast<std::uint8_t>(r));
    }

private:
    static constexpr bool one_sided = detail::is_from_root(What) || What == Collective::gather;

    /// A round between the root and the others.
    template <class Visit>
    constexpr void one_side(std::uint32_t r, std::uint32_t own, Visit&& visit) const {
        if (r == 1) work(own, visit);
        if (r == (reads() ? 1 : 0)) visit(detail::post());
        if (r == 0) visit(detail::await(is_root() ? everyone : shape.root));
    }
    [[nodiscard]] constexpr bool reads() const { return is_root() != detail::is_from_root(What); }
    /// The steps between the two flags.
    template <class Visit>
    constexpr void work(std::uint32_t own, Visit&& visit) const {
        if constexpr (detail::combines(What)) {
            const int owner = What == Collective::all_reduce       ? everyone
                              : What == Collective::reduce_scatter ? shape.rank
                                                                   : shape.root;
            visit(detail::combine_all_ranks(input_blocks(own), owner, output_blocks(own)));
        } else {
            const auto lies = [](std::uint32_t block) {
                return What == Collective::broadcast ? output_blocks(block) : input_blocks(block);
            };
            detail::copy_from_peers<What>(shape, lies, visit);
        }
    }
};
UNISONO_CERTIFY(collective_schedule<Mapped<Collective::all_reduce>>);

/// One flag. Cost per rank: one round.
struct MappedBarrier : ScheduleBase<Collective::barrier> {
    static constexpr std::string_view name = "mapped barrier";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world > 1 ? 1 : 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return {.rounds = rounds()}; }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        detail::meet(visit);
    }
};
UNISONO_CERTIFY(collective_schedule<MappedBarrier>);

/// Each rank posts its data with its flag, and reads what it needs from its peers' copies. Scratch:
/// none. Sums are computed in rank order: the same bits on all ranks. Cost per rank: at most one
/// flag, and
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
        if (shape.world == 1) return What == Collective::broadcast ? 0 : 1;
        return reads() ? 2 : 1;
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        const bool adds = detail::combines(What) && (What != Collective::reduce || is_root());
        return {.blocks_combined = adds ? others() : 0, .rounds = shape.world > 1 && reads() ? 1u : 0u};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = moves_vectors(What) ? 0 : detail::rank_of(shape);
        if (shape.world == 1) return detail::copy_through(own, visit);
        if (r == 0) {
            if (detail::keeps_own_block(What, shape)) detail::copy_through(own, visit);
            if (posts()) visit(detail::post(payload(own)));
            if (reads()) visit(detail::await(detail::is_from_root(What) ? shape.root : everyone));
            return;
        }
        const auto copy = [](std::uint32_t block) { return posted_blocks(block, single_blocks ? 0 : block); };
        if constexpr (!detail::combines(What)) detail::copy_from_peers<What>(shape, copy, visit);
        else if (What != Collective::reduce || is_root())
            visit(detail::combine_all_ranks(copy(own), shape.rank, output_blocks(own)));
    }

private:
    /// True if this rank reads copies of others.
    [[nodiscard]] constexpr bool reads() const { return !has_root(What) || is_root() != detail::is_from_root(What); }
    /// True if a rank reads this rank's copy.
    [[nodiscard]] constexpr bool posts() const {
        return !has_root(What) || What == Collective::reduce || is_root() == detail::is_from_root(What);
    }
    /// The blocks that this rank posts beside its flag.
    [[nodiscard]] constexpr Blocks payload(std::uint32_t own) const {
        if (What == Collective::broadcast) return output_blocks(0);
        return single_blocks ? input_blocks(own) : input_blocks(0, blocks());
    }
};
UNISONO_CERTIFY(collective_schedule<Staged<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
