#pragma once

#include <unisono/reducer/scheduled.hpp>

/// Half of the blocks travel around the ring in one direction, the other half in the other.
struct TwoWayRingAllReduce : unisono::schedule::ScheduleBase<unisono::Collective::all_reduce> {
    static constexpr std::string_view name = "two-way ring";
    using Ring = unisono::schedule::RingAllReduce;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 2 * Ring{{shape}}.blocks(); }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return Ring{{shape}}.rounds(); }
    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        Ring{{shape}}.round(r, visit);
        const auto mirrored = [this](int rank) { return (shape.world - rank) % shape.world; };
        Ring{{{shape.world, mirrored(shape.rank)}}}.round(r, [&](unisono::schedule::Step step) {
            if (step.peer != unisono::schedule::everyone) step.peer = mirrored(step.peer);
            step.source.first += blocks() / 2;
            step.target.first += blocks() / 2;
            step.part = 1; // with two ranks, both neighbours are one rank
            visit(step);
        });
    }
};

/// A ring in both directions at once: a rank sends half of its bytes to each neighbour. For ranks
/// with a link to each neighbour. Behind a switch, RingReducer is as good. Source: Jain and
/// Sabharwal 2010, "Optimal bucket algorithms for large MPI collectives on torus interconnects".
struct TwoWayRingReducer {
    static constexpr std::string_view name = "two-way ring";
    static constexpr unisono::Family family = unisono::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true; // by a tree
    friend bool operator==(const TwoWayRingReducer&, const TwoWayRingReducer&) = default;

    using Run = unisono::ScheduledReduction<unisono::OwnSchedule<TwoWayRingAllReduce>, unisono::TreeSchedule>;
    [[nodiscard]] Run start(const auto&) const { return {}; }
};
