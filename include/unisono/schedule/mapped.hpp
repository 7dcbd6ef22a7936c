#pragma once

/// \file
/// The direct schedules for transports that map peers' memory: no messages, each rank reads and writes its peers'
/// buffers between two flags. Blocks are combined in rank order, as in direct.hpp, with the same bits.
/// A first flag says that a rank's buffers are ready, a second one that it is done with those of others. The staged schedules
/// leave a copy beside the flag instead, so that nobody waits for readers: for a few hundred bytes.

#include "unisono/schedule/circular.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// Tells all, with a copy of `payload` where it has blocks, and waits for all: the end of a round.
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

/// Rounds of a mapped schedule: both flags, and the work between them. A world of one has one round without flags.
constexpr std::uint32_t mapped_rounds(const Shape& shape) { return shape.world == 1 ? 1 : 2; }
constexpr Cost mapped_cost(const Shape& shape, std::uint64_t combined) {
    return {.messages = 0, .blocks_sent = 0, .blocks_combined = combined, .rounds = shape.world == 1 ? 0u : 2u};
}

} // namespace detail

/// Each rank combines its block straight from all inputs and writes it to all outputs. Cost a rank: reads p blocks, writes p
/// blocks, two flags. Scratch: none.
struct MappedAllReduce {
    static constexpr Collective collective = Collective::all_reduce;
    static constexpr std::string_view name = "mapped all_reduce";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, blocks() - 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 1) visit(detail::combine_all_ranks(input_blocks(own), everyone, output_blocks(own)));
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedAllReduce&, const MappedAllReduce&) = default;
};
static_assert(collective_schedule<MappedAllReduce>);

/// Each rank combines its block straight from all inputs. Cost a rank: reads p blocks, two flags. Scratch: none.
struct MappedReduceScatter {
    static constexpr Collective collective = Collective::reduce_scatter;
    static constexpr std::string_view name = "mapped reduce_scatter";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, blocks() - 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 1) visit(detail::combine_all_ranks(input_blocks(own), shape.rank, output_blocks(own)));
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedReduceScatter&, const MappedReduceScatter&) = default;
};
static_assert(collective_schedule<MappedReduceScatter>);

/// Each rank copies everybody's block. Cost a rank: reads p - 1 blocks, two flags. Scratch: none.
struct MappedAllGather {
    static constexpr Collective collective = Collective::all_gather;
    static constexpr std::string_view name = "mapped all_gather";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r == 0) detail::copy_through(detail::rank_of(shape), visit);
        if (shape.world == 1) return;
        if (r == 1) {
            detail::for_each_peer(shape, [&](int peer) {
                const auto block = static_cast<std::uint32_t>(peer);
                visit(detail::copy_from(peer, input_blocks(block), output_blocks(block)));
            });
        }
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedAllGather&, const MappedAllGather&) = default;
};
static_assert(collective_schedule<MappedAllGather>);

/// Everybody copies from the root. Cost a rank: reads everything once, two flags. Scratch: none.
struct MappedBroadcast {
    static constexpr Collective collective = Collective::broadcast;
    static constexpr std::string_view name = "mapped broadcast";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 0 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r == 1 && shape.rank != shape.root)
            visit(detail::copy_from(shape.root, output_blocks(0), output_blocks(0)));
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedBroadcast&, const MappedBroadcast&) = default;
};
static_assert(collective_schedule<MappedBroadcast>);

/// Each rank combines its block straight from all inputs into the root's output, so that all share the work. Cost a
/// rank: reads p blocks, writes one, two flags. Scratch: none.
struct MappedReduce {
    static constexpr Collective collective = Collective::reduce;
    static constexpr std::string_view name = "mapped reduce";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, blocks() - 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 1) visit(detail::combine_all_ranks(input_blocks(own), shape.root, output_blocks(own)));
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedReduce&, const MappedReduce&) = default;
};
static_assert(collective_schedule<MappedReduce>);

/// The root copies everybody's block. Cost: the root reads p - 1 blocks; two flags. Scratch: none.
struct MappedGather {
    static constexpr Collective collective = Collective::gather;
    static constexpr std::string_view name = "mapped gather";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const bool root = shape.rank == shape.root;
        if (root && r == 0) detail::copy_through(detail::rank_of(shape), visit);
        if (shape.world == 1) return;
        if (root && r == 1) {
            detail::for_each_peer(shape, [&](int peer) {
                const auto block = static_cast<std::uint32_t>(peer);
                visit(detail::copy_from(peer, input_blocks(block), output_blocks(block)));
            });
        }
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedGather&, const MappedGather&) = default;
};
static_assert(collective_schedule<MappedGather>);

/// Each rank copies its block from the root. Cost a rank: reads one block, two flags. Scratch: none.
struct MappedScatter {
    static constexpr Collective collective = Collective::scatter;
    static constexpr std::string_view name = "mapped scatter";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 0 && shape.rank == shape.root) detail::copy_through(own, visit);
        if (shape.world == 1) return;
        if (r == 1 && shape.rank != shape.root)
            visit(detail::copy_from(shape.root, input_blocks(own), output_blocks(own)));
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedScatter&, const MappedScatter&) = default;
};
static_assert(collective_schedule<MappedScatter>);

/// Each rank copies the block meant for it from everybody. Cost a rank: reads p blocks, two flags. Scratch: none.
struct MappedAllToAll {
    static constexpr Collective collective = Collective::all_to_all;
    static constexpr std::string_view name = "mapped all_to_all";
    static constexpr bool mapped = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::mapped_rounds(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return detail::mapped_cost(shape, 0); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 0) detail::copy_through(own, visit);
        if (shape.world == 1) return;
        if (r == 1) {
            detail::for_each_peer(shape, [&](int peer) {
                visit(detail::copy_from(peer, input_blocks(own), output_blocks(static_cast<std::uint32_t>(peer))));
            });
        }
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedAllToAll&, const MappedAllToAll&) = default;
};
static_assert(collective_schedule<MappedAllToAll>);

/// One flag. Cost a rank: one round.
struct MappedBarrier {
    static constexpr Collective collective = Collective::barrier;
    static constexpr std::string_view name = "mapped barrier";
    static constexpr bool mapped = true;
    static constexpr bool staged = true;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 0 : 1; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const {
        return {.messages = 0, .blocks_sent = 0, .blocks_combined = 0, .rounds = rounds()};
    }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        detail::meet(visit);
    }

    friend constexpr bool operator==(const MappedBarrier&, const MappedBarrier&) = default;
};
static_assert(collective_schedule<MappedBarrier>);

} // namespace schedule

UNISONO_NAMESPACE_END
