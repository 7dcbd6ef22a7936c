#pragma once

/// \file
/// Sums by recursive halving and doubling.

#include "unisono/reducer/reducer.hpp"
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN

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
        return detail::ScheduledReduction<HalvingDoublingSchedule, TreeSchedule>{};
    }
};

UNISONO_NAMESPACE_END
