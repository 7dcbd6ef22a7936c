#pragma once

/// \file
/// Direct exchange over messages: rank r owns block r and receives it from every other rank. Every
/// owner combines its block in rank order 0 to p - 1, so the bits equal those of the mapped
/// schedules and of one rank that adds in that order. One or two rounds of p - 1 messages each: for
/// few ranks, or where latency counts. Each rank sends to its successor first, so that no rank
/// receives from all others at the same time.

#include "unisono/schedule/base.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// The scratch slot of the block that rank `from` sent to this one. Slots are in rank order; this
/// rank's own block has none.
constexpr std::uint32_t slot_of(const Shape& shape, int from) {
    return static_cast<std::uint32_t>(from < shape.rank ? from : from - 1);
}

/// Sends outgoing(peer) to every peer, beginning with the next rank; then receives incoming(peer)
/// from every peer, beginning with the previous rank.
template <class Outgoing, class Incoming, class Visit>
constexpr void exchange_with_all(const Shape& shape, Outgoing outgoing, Incoming incoming, Visit&& visit) {
    for_each_peer(shape, [&](int peer) { visit(send_to(peer, outgoing(peer))); });
    for (int distance = 1; distance < shape.world; ++distance) {
        const int peer = rank_at(shape, -distance);
        visit(receive_from(peer, incoming(peer)));
    }
}

/// Sends block j of the input to its owner j; collects each rank's block `rank` in scratch.
template <class Visit>
constexpr void exchange_with_owners(const Shape& shape, Visit&& visit) {
    exchange_with_all(
        shape, [](int peer) { return input_blocks(static_cast<std::uint32_t>(peer)); },
        [&](int peer) { return scratch_blocks(rank_of(shape), 1, slot_of(shape, peer)); }, visit);
}

/// Combines the collected blocks and this rank's own one into the output.
template <class Visit>
constexpr void combine_collected(std::uint32_t block, Visit&& visit) {
    visit(Step{StepKind::combine_ranks, everyone, input_blocks(block), output_blocks(block), 0});
}

/// Sends `own` (block `rank`) to all ranks; receives each rank's block in the output.
template <class Visit>
constexpr void publish_own(const Shape& shape, const Blocks& own, Visit&& visit) {
    exchange_with_all(
        shape, [&](int) { return own; }, [](int peer) { return output_blocks(static_cast<std::uint32_t>(peer)); },
        visit);
}

} // namespace detail

/// Cost per rank: 2(p - 1) messages and blocks sent in 2 rounds, p - 1 combined. Scratch: p - 1
/// blocks.
struct DirectAllReduce : ScheduleBase<Collective::all_reduce> {
    static constexpr std::string_view name = "direct all_reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return others(); }
    [[nodiscard]] constexpr Cost cost() const {
        return cost_of(std::uint64_t{2} * others(), others(), shape.world == 1 ? 0 : 2);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        const std::uint32_t own = detail::rank_of(shape);
        if (r == 0) return detail::exchange_with_owners(shape, visit);
        detail::combine_collected(own, visit);
        detail::publish_own(shape, output_blocks(own), visit);
    }
};
UNISONO_CERTIFY(collective_schedule<DirectAllReduce>);

/// Each rank sends its whole vector to all ranks, which combine the vectors in rank order: the
/// latency of one message, the bytes of p - 1 vectors. For very small vectors and few ranks. Cost
/// per rank: p - 1 messages and blocks (a block is the vector) sent and combined in one round.
/// Scratch: p - 1 blocks.
struct ExchangeAllReduce : ScheduleBase<Collective::all_reduce> {
    static constexpr std::string_view name = "exchange all_reduce";

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 1; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return others(); }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), others(), shape.world == 1 ? 0 : 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        if (r == 1) return detail::combine_collected(0, visit);
        detail::exchange_with_all(
            shape, [](int) { return input_blocks(0); },
            [&](int peer) { return scratch_blocks(0, 1, detail::slot_of(shape, peer)); }, visit);
    }
};
UNISONO_CERTIFY(collective_schedule<ExchangeAllReduce>);

/// Cost per rank: p - 1 messages and blocks sent in one round, p - 1 combined. Scratch: p - 1
/// blocks.
struct DirectReduceScatter : ScheduleBase<Collective::reduce_scatter> {
    static constexpr std::string_view name = "direct reduce_scatter";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return others(); }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), others(), shape.world == 1 ? 0 : 1); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        if (r == 0) return detail::exchange_with_owners(shape, visit);
        detail::combine_collected(detail::rank_of(shape), visit);
    }
};
UNISONO_CERTIFY(collective_schedule<DirectReduceScatter>);

/// Cost per rank: p - 1 messages and blocks sent in one round. Scratch: none.
struct DirectAllGather : ScheduleBase<Collective::all_gather> {
    static constexpr std::string_view name = "direct all_gather";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return 1; }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), 0, shape.world == 1 ? 0 : 1); }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        detail::copy_through(own, visit);
        detail::publish_own(shape, input_blocks(own), visit);
    }
};
UNISONO_CERTIFY(collective_schedule<DirectAllGather>);

/// The root sends the whole vector to all ranks. Cost: p - 1 messages of the whole vector at the
/// root, one round. Scratch: none.
struct DirectBroadcast : ScheduleBase<Collective::broadcast> {
    static constexpr std::string_view name = "direct broadcast";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 0 : 1; }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(is_root() ? others() : 0, 0, rounds()); }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        if (!is_root()) return visit(receive_from(shape.root, output_blocks(0)));
        detail::for_each_peer(shape, [&](int peer) { visit(send_to(peer, output_blocks(0))); });
    }
};
UNISONO_CERTIFY(collective_schedule<DirectBroadcast>);

/// All ranks send the whole vector to the root, which combines in rank order, as a parameter server
/// does. Cost: one message of the whole vector per rank; p - 1 combinations at the root. Scratch: p
/// - 1 vectors at the root.
struct DirectReduce : ScheduleBase<Collective::reduce> {
    static constexpr std::string_view name = "direct reduce";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 || !is_root() ? 1 : 2; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return is_root() ? others() : 0; }
    [[nodiscard]] constexpr Cost cost() const {
        return cost_of(is_root() ? 0 : 1, scratch_slots(), shape.world == 1 ? 0 : 1);
    }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (shape.world == 1) return detail::copy_through(0, visit);
        if (!is_root()) return visit(send_to(shape.root, input_blocks(0)));
        if (r == 1) return detail::combine_collected(0, visit);
        detail::for_each_peer(
            shape, [&](int peer) { visit(receive_from(peer, scratch_blocks(0, 1, detail::slot_of(shape, peer)))); });
    }
};
UNISONO_CERTIFY(collective_schedule<DirectReduce>);

/// All send their block to the root. Cost: one message per rank, one round. Scratch: none.
struct DirectGather : ScheduleBase<Collective::gather> {
    static constexpr std::string_view name = "direct gather";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return 1; }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(is_root() ? 0 : 1, 0, shape.world == 1 ? 0 : 1); }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (!is_root()) return visit(send_to(shape.root, input_blocks(own)));
        detail::copy_through(own, visit);
        detail::for_each_peer(
            shape, [&](int peer) { visit(receive_from(peer, output_blocks(static_cast<std::uint32_t>(peer)))); });
    }
};
UNISONO_CERTIFY(collective_schedule<DirectGather>);

/// The root sends each rank its block. Cost: p - 1 messages at the root, one round. Scratch: none.
struct DirectScatter : ScheduleBase<Collective::scatter> {
    static constexpr std::string_view name = "direct scatter";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return 1; }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(is_root() ? others() : 0, 0, shape.world == 1 ? 0 : 1); }

    template <class Visit>
    constexpr void round(std::uint32_t, Visit&& visit) const {
        const std::uint32_t own = detail::rank_of(shape);
        if (!is_root()) return visit(receive_from(shape.root, output_blocks(own)));
        detail::copy_through(own, visit);
        detail::for_each_peer(shape,
                              [&](int peer) { visit(send_to(peer, input_blocks(static_cast<std::uint32_t>(peer)))); });
    }
};
UNISONO_CERTIFY(collective_schedule<DirectScatter>);

/// One distance per round: in round k each rank sends to rank + k + 1. Cost per rank: p - 1
/// messages, blocks sent and rounds. Scratch: none. Not in place.
struct DirectAllToAll : ScheduleBase<Collective::all_to_all> {
    static constexpr std::string_view name = "direct all_to_all";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return shape.world == 1 ? 1 : others(); }
    [[nodiscard]] constexpr Cost cost() const { return cost_of(others(), 0, others()); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r == 0) detail::copy_through(detail::rank_of(shape), visit);
        if (shape.world == 1) return;
        const int distance = static_cast<int>(r) + 1;
        const int to = detail::rank_at(shape, distance), from = detail::rank_at(shape, -distance);
        visit(send_to(to, input_blocks(static_cast<std::uint32_t>(to))));
        visit(receive_from(from, output_blocks(static_cast<std::uint32_t>(from))));
    }
};
UNISONO_CERTIFY(collective_schedule<DirectAllToAll>);

} // namespace schedule

UNISONO_NAMESPACE_END
