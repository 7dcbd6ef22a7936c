#pragma once

/// \file
/// The base of schedules: the shape, and the figures that most schedules share. A schedule derives
/// from `ScheduleBase`, adds its name, `rounds` and `round`, and hides a figure that differs. It
/// may claim its cost, for its readers: schedule_laws then compares the claim with a count.

#include "unisono/schedule/circular.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// A schedule of messages without scratch, each of whose steps handles at most one block. A
/// schedule with further members also defines `==`: groups keep one plan for all equal schedules of
/// a type.
template <Collective What>
struct ScheduleBase {
    static constexpr Collective collective = What;
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    Shape shape;

    /// One block where a whole vector goes to or from a root, none in a barrier, else one per rank.
    [[nodiscard]] constexpr std::uint32_t blocks() const {
        if (What == Collective::barrier) return 0;
        return has_root(What) && moves_vectors(What) ? 1 : detail::world_of(shape);
    }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    /// At most one message waits in a channel where ranks send in circles, and none where all data
    /// flow from or to a root.
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return shape.world == 1 || has_root(What) ? 0 : 1; }

    friend constexpr bool operator==(const ScheduleBase&, const ScheduleBase&) = default;

protected:
    /// The number of other ranks.
    [[nodiscard]] constexpr std::uint32_t others() const { return detail::world_of(shape) - 1; }
    [[nodiscard]] constexpr bool is_root() const { return shape.rank == shape.root; }
    /// The cost of `messages` that have one block each.
    static constexpr Cost cost_of(std::uint64_t messages, std::uint64_t combined, std::uint64_t rounds) {
        return {messages, messages, combined, rounds};
    }
};

} // namespace schedule

UNISONO_NAMESPACE_END
