#pragma once

/// \file
/// Sums by the transport's best schedule.

#include "unisono/reducer/reducer.hpp"

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
        return detail::ScheduledReduction<NativeSchedule>{};
    }
};

UNISONO_NAMESPACE_END
