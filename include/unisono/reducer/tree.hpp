#pragma once

/// \file
/// Sums by a binomial tree.

#include "unisono/reducer/reducer.hpp"
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN

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
        return detail::ScheduledReduction<TreeSchedule>{};
    }
};

UNISONO_NAMESPACE_END
