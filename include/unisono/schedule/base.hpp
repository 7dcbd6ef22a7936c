#pragma once

/// \file
/// The base of schedules: the shape, and the figures that most of them have. A schedule derives
/// from `ScheduleBase`, adds its name, its rounds and its cost, and hides a figure that differs.

#include "unisono/schedule/circular.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// A schedule of messages with p blocks and without scratch, in which no step has more than one
/// block. A schedule that adds members of its own also defines `==`: groups keep one plan for all
/// equal schedules of a type.
template <Collective What>
struct ScheduleBase {
    static constexpr Collective collective = What;
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    /// One message waits in a channel where ranks send in circles, none where all data flow from or
    /// to a root.
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return shape.world == 1 || has_root(What) ? 0 : 1; }

    friend constexpr bool operator==(const ScheduleBase&, const ScheduleBase&) = default;
};

} // namespace schedule

UNISONO_NAMESPACE_END
