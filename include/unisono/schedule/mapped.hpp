#pragma once

/// \file
/// The direct schedules for transports that map peers' memory. There are no messages: each rank
/// reads and writes its peers' buffers between two flags. Blocks are combined in rank order, as in
/// direct.hpp, with the same bits. The first flag says that a rank's buffers are ready, the second
/// that the rank has finished with its peers' buffers. The staged schedules instead post a copy
/// beside the flag, so that no rank waits for readers: for a few hundred bytes.

#include "unisono/schedule/base.hpp"

#include <array>

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// Ends a round: posts this rank's flag, with a copy of `payload` if it has blocks, and waits for
/// the flags of all ranks.
template <class Visit>
constexpr void meet(Visit&& visit, const Blocks& payload = {}) {
    visit(Step{StepKind::post, everyone, payload, {}, 0});
    visit(Step{StepKind::await, everyone, {}, {}, 0});
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
    if constexpr (What == Collective::broadcast || What == Collective::scatter) {
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

/// Between two flags each rank reads the blocks that it needs from its peers' inputs. Scratch:
/// none. Cost per rank:
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
    using ScheduleBase<What>::shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const {
        return What == Collective::broadcast ? 1 : detail::world_of(shape);
    }
    [[nodiscard]] constexpr std::uint32_t rounds() const {
        return shape.world > 1 ? 2 : What == Collective::broadcast ? 0 : 1;
    }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        return {.blocks_combined = detail::combines(What) ? blocks() - 1 : 0, .rounds = shape.world > 1 ? 2u : 0u};
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (shape.world == 1) return detail::copy_through(own, visit);
        if (r == 0 && detail::keeps_own_block(What, shape)) detail::copy_through(own, visit);
        if (r == 1) work(own, visit);
        detail::meet(visit);
    }

private:
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

} // namespace schedule

UNISONO_NAMESPACE_END
