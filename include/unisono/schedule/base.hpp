#pragma once

/// \file
/// The base of schedules: the shape, and the figures that most schedules share. A schedule derives
/// from `ScheduleBase`, adds its name, rounds and cost, and hides a figure that differs.

#include "unisono/schedule/circular.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// A schedule of messages with p blocks and no scratch, each of whose steps handles at most one
/// block. A schedule with further members also defines `==`: groups keep one plan for all equal
/// schedules of a type.
template <Collective What>
struct ScheduleBase {
    static constexpr Collective collective = What;
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return detail::world_of(shape); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    /// At most one message waits in a channel where ranks send in circles, and none where all data
    /// flow from or to a root.
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return shape.world == 1 || has_root(What) ? 0 : 1; }

    friend constexpr bool operator==(const ScheduleBase&, const ScheduleBase&) = default;
};

} // namespace schedule

UNISONO_NAMESPACE_END
