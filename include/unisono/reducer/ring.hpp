#pragma once

/// \file
/// Sums by a ring.

#include "unisono/reducer/reducer.hpp"
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN

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
        return detail::ScheduledReduction<RingSchedule>{ring, ring};
    }
};

UNISONO_NAMESPACE_END
