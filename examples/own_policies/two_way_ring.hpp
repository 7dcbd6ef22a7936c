#pragma once

#include <unisono/reducer/reducer.hpp>
#include <unisono/schedule/families.hpp>

/// Half of the blocks travel around the ring in one direction, the other half in the other.
struct TwoWayRingAllReduce : unisono::schedule::ScheduleBase<unisono::Collective::all_reduce> {
    static constexpr std::string_view name = "two-way ring all_reduce";
    using Ring = unisono::schedule::RingAllReduce;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 2 * Ring{{shape}}.blocks(); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return Ring{{shape}}.rounds(); }
    [[nodiscard]] constexpr unisono::schedule::Cost cost() const {
        const auto one = Ring{{shape}}.cost();
        return {2 * one.messages, 2 * one.blocks_sent, 2 * one.blocks_combined, one.rounds};
    }
    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        Ring{{shape}}.round(r, visit);
        const auto mirrored = [this](int rank) { return (shape.world - rank) % shape.world; };
        Ring{{{shape.world, mirrored(shape.rank)}}}.round(r, [&](unisono::schedule::Step step) {
            if (step.peer != unisono::schedule::everyone) step.peer = mirrored(step.peer);
            if (step.source.count != 0) step.source.first += blocks() / 2;
            if (step.target.count != 0) step.target.first += blocks() / 2;
            // With two ranks, both neighbours are one rank. The part tells the messages apart.
            step.part = 1;
            visit(step);
        });
    }
};

struct TwoWayRingSchedule {
    static constexpr std::string_view name = "two-way ring";
    using schedules = unisono::schedule::List<TwoWayRingAllReduce>;
    friend bool operator==(const TwoWayRingSchedule&, const TwoWayRingSchedule&) = default;
};
static_assert(unisono::schedule_family<TwoWayRingSchedule>);

/// A ring in both directions at once: a rank sends half of its bytes to each neighbour. For ranks
/// with a link to each neighbour (a ring or torus). Behind a switch, RingReducer is as good.
/// Source: Jain and Sabharwal 2010, "Optimal bucket algorithms for large MPI collectives on torus
/// interconnects", for a torus of one dimension.
struct TwoWayRingReducer {
    static constexpr std::string_view name = "two-way ring";
    static constexpr unisono::Family family = unisono::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false;
    friend bool operator==(const TwoWayRingReducer&, const TwoWayRingReducer&) = default;

    /// The policy holds nothing that a run needs, so the run is a copy of the policy.
    [[nodiscard]] TwoWayRingReducer start(const auto&) const { return {}; }
    template <class World, class T>
    unisono::Operation sum(World& group, std::span<T> values) const {
        return unisono::start_all_reduce(group, values, unisono::Sum{}, TwoWayRingSchedule{});
    }
};
