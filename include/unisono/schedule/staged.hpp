#pragma once

/// \file
/// Mapped schedules for small data: each rank leaves a copy beside its flag and everybody reads the copies. One flag and one
/// round, as nobody touches another's buffers; the copies alternate between two places, so the next operation needs no
/// flag either. All ranks do the whole work: for a few hundred bytes. Every rank waits for all, also where it reads from none
/// (a broadcast's root), so that what ranks do not agree on is found by each of them.

#include "unisono/schedule/mapped.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {
constexpr Cost staged_cost(const Shape& shape, std::uint64_t combined) {
    return {.messages = 0, .blocks_sent = 0, .blocks_combined = combined, .rounds = shape.world == 1 ? 0u : 1u};
}
} // namespace detail

/// Cost a rank: reads and combines everything p times, one flag. Every rank adds in rank order: the same bits everywhere.
struct StagedAllReduce {
    static constexpr Collective collective = Collective::all_reduce;
    static constexpr std::string_view name = "staged all_reduce";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, detail::world_of(shape) - 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        if (r == 0) return detail::meet(visit, input_blocks(0));
        visit(detail::combine_all_ranks(posted_blocks(0), shape.rank, output_blocks(0)));
    }

    friend constexpr bool operator==(const StagedAllReduce&, const StagedAllReduce&) = default;
};
static_assert(collective_schedule<StagedAllReduce>);

/// Cost a rank: reads its block of everybody's copy and combines p of them, one flag.
struct StagedReduceScatter {
    static constexpr Collective collective = Collective::reduce_scatter;
    static constexpr std::string_view name = "staged reduce_scatter";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = false;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, detail::world_of(shape) - 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (shape.world == 1) return detail::copy_through(own, visit);
        if (r == 0) return detail::meet(visit, input_blocks(0, blocks()));
        visit(detail::combine_all_ranks(posted_blocks(own, own), shape.rank, output_blocks(own)));
    }

    friend constexpr bool operator==(const StagedReduceScatter&, const StagedReduceScatter&) = default;
};
static_assert(collective_schedule<StagedReduceScatter>);

/// Cost a rank: reads everybody's block, one flag.
struct StagedAllGather {
    static constexpr Collective collective = Collective::all_gather;
    static constexpr std::string_view name = "staged all_gather";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 0) {
            detail::copy_through(own, visit);
            if (shape.world != 1) detail::meet(visit, input_blocks(own));
            return;
        }
        detail::for_each_peer(shape, [&](int peer) {
            const auto block = static_cast<std::uint32_t>(peer);
            visit(detail::copy_from(peer, posted_blocks(block), output_blocks(block)));
        });
    }

    friend constexpr bool operator==(const StagedAllGather&, const StagedAllGather&) = default;
};
static_assert(collective_schedule<StagedAllGather>);

/// Cost a rank: reads everything once, one flag.
struct StagedBroadcast {
    static constexpr Collective collective = Collective::broadcast;
    static constexpr std::string_view name = "staged broadcast";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 0 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const bool root = shape.rank == shape.root;
        if (r == 0) return detail::meet(visit, root ? output_blocks(0) : Blocks{});
        if (!root) visit(detail::copy_from(shape.root, posted_blocks(0), output_blocks(0)));
    }

    friend constexpr bool operator==(const StagedBroadcast&, const StagedBroadcast&) = default;
};
static_assert(collective_schedule<StagedBroadcast>);

/// Cost: the root reads and combines everything p times; one flag.
struct StagedReduce {
    static constexpr Collective collective = Collective::reduce;
    static constexpr std::string_view name = "staged reduce";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        return detail::staged_cost(shape, shape.rank == shape.root ? detail::world_of(shape) - 1 : 0);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        if (r == 0) return detail::meet(visit, input_blocks(0));
        if (shape.rank == shape.root) visit(detail::combine_all_ranks(posted_blocks(0), shape.rank, output_blocks(0)));
    }

    friend constexpr bool operator==(const StagedReduce&, const StagedReduce&) = default;
};
static_assert(collective_schedule<StagedReduce>);

/// Cost: the root reads everybody's block; one flag.
struct StagedGather {
    static constexpr Collective collective = Collective::gather;
    static constexpr std::string_view name = "staged gather";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        const bool root = shape.rank == shape.root;
        if (r == 0) {
            if (root) detail::copy_through(own, visit);
            if (shape.world != 1) detail::meet(visit, input_blocks(own));
            return;
        }
        if (root) {
            detail::for_each_peer(shape, [&](int peer) {
                const auto block = static_cast<std::uint32_t>(peer);
                visit(detail::copy_from(peer, posted_blocks(block), output_blocks(block)));
            });
        }
    }

    friend constexpr bool operator==(const StagedGather&, const StagedGather&) = default;
};
static_assert(collective_schedule<StagedGather>);

/// Cost a rank: reads its block of the root's copy; one flag.
struct StagedScatter {
    static constexpr Collective collective = Collective::scatter;
    static constexpr std::string_view name = "staged scatter";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = false;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        const bool root = shape.rank == shape.root;
        if (r == 0) {
            if (root) detail::copy_through(own, visit);
            if (shape.world != 1) detail::meet(visit, root ? input_blocks(0, blocks()) : Blocks{});
            return;
        }
        if (!root) visit(detail::copy_from(shape.root, posted_blocks(own, own), output_blocks(own)));
    }

    friend constexpr bool operator==(const StagedScatter&, const StagedScatter&) = default;
};
static_assert(collective_schedule<StagedScatter>);

/// Cost a rank: reads the block meant for it of everybody's copy; one flag.
struct StagedAllToAll {
    static constexpr Collective collective = Collective::all_to_all;
    static constexpr std::string_view name = "staged all_to_all";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = false;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::staged_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 0) {
            detail::copy_through(own, visit);
            if (shape.world != 1) detail::meet(visit, input_blocks(0, blocks()));
            return;
        }
        detail::for_each_peer(shape, [&](int peer) {
            visit(detail::copy_from(peer, posted_blocks(own, own), output_blocks(static_cast<std::uint32_t>(peer))));
        });
    }

    friend constexpr bool operator==(const StagedAllToAll&, const StagedAllToAll&) = default;
};
static_assert(collective_schedule<StagedAllToAll>);

} // namespace schedule

UNISONO_NAMESPACE_END
