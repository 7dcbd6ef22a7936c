#pragma once

/// \file
/// Reducers that sum by a schedule: the transport's best one, or one by its name.

#include "unisono/reducer/reducer.hpp"
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN

/// Over mapped memory, each rank reduces its slice directly from the peers' memory and writes the
/// sum to all ranks, in rank order. Otherwise the schedule depends on the size: see NativeSchedule.
struct NativeReducer {
    static constexpr std::string_view name = "native";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const NativeReducer&, const NativeReducer&) = default;

    template <class World>
    [[nodiscard]] auto start(World&) const {
        return ScheduledReduction<NativeSchedule>{};
    }
};

/// Bandwidth-optimal: each rank sends 2 (p-1)/p of the data in 2 (p-1) rounds. Sums to an owner use
/// a chain.
/// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009).
struct RingReducer {
    std::size_t chunk_bytes = std::size_t{1} << 20; ///< a block travels in chunks of at most this size

    static constexpr std::string_view name = "ring";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const RingReducer&, const RingReducer&) = default;

    template <class World>
    [[nodiscard]] auto start(World&) const {
        if (chunk_bytes == 0) refuse_input("RingReducer.chunk_bytes is 0; expected at least 1");
        RingSchedule ring;
        ring.chunk_bytes = chunk_bytes;
        return ScheduledReduction<RingSchedule>{ring, ring};
    }
};

/// Up to rank 0 and down again: 2 ceil(log2 p) rounds of all data, the least latency among the
/// schedules that send messages of full size.
/// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
/// MPICH" (2005).
struct TreeReducer {
    static constexpr std::string_view name = "tree";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const TreeReducer&, const TreeReducer&) = default;

    template <class World>
    [[nodiscard]] auto start(World&) const {
        return ScheduledReduction<TreeSchedule>{};
    }
};

/// 2 ceil(log2 p) rounds, and 2 (p-1)/p of the data per rank, for any number of ranks. Sums to an
/// owner, and the parameters that it publishes, use a tree.
/// Source: see schedule/halving_doubling.hpp.
struct HalvingDoublingReducer {
    static constexpr std::string_view name = "halving-doubling";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const HalvingDoublingReducer&, const HalvingDoublingReducer&) = default;

    template <class World>
    [[nodiscard]] auto start(World&) const {
        return ScheduledReduction<HalvingDoublingSchedule, TreeSchedule>{};
    }
};

UNISONO_NAMESPACE_END
