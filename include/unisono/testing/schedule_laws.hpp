#pragma once

/// \file
/// The laws of schedule/schedule.hpp for any family of schedules, proven by the verifier, and a
/// minimal family.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/testing/testing.hpp"

#include <exception>
#include <set>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal schedule, and the minimal family: a broadcast in one round, in which the root sends
/// everything to each rank.
struct ArchetypeBroadcast {
    static constexpr Collective collective = Collective::broadcast;
    static constexpr std::string_view name = "archetype broadcast";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    schedule::Shape shape;
    friend bool operator==(const ArchetypeBroadcast&, const ArchetypeBroadcast&) = default;

    [[nodiscard]] std::uint32_t blocks() const { return 1; }
    [[nodiscard]] std::uint32_t rounds() const { return 1; }
    [[nodiscard]] std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] std::uint32_t channel_depth() const { return 0; }
    template <class Visit>
    void round(std::uint32_t, Visit&& visit) const {
        if (shape.rank != shape.root) return visit(schedule::receive_from(shape.root, schedule::output_blocks(0)));
        for (int peer = 0; peer < shape.world; ++peer)
            if (peer != shape.root) visit(schedule::send_to(peer, schedule::output_blocks(0)));
    }
};
static_assert(collective_schedule<ArchetypeBroadcast>);

/// The minimum that a family of schedules must have.
struct ArchetypeSchedule {
    static constexpr std::string_view name = "archetype schedule";
    friend bool operator==(const ArchetypeSchedule&, const ArchetypeSchedule&) = default;
    using schedules = schedule::List<ArchetypeBroadcast>;
};
static_assert(schedule_family<ArchetypeSchedule>);

/// The parameters of the trial.
struct ScheduleTrial {
    /// Add the sizes that you will run.
    std::vector<int> worlds = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 32, 33};
};

/// Proves every collective of the family, for each world, and if it has a root, for the first, a
/// middle and the last one. A schedule that breaks these laws may write outside of its memory.
template <schedule_family F>
Violations schedule_laws(const F& family, const ScheduleTrial& trial = {}) {
    Violations found{std::string(F::name)};
    schedule::for_each_collective<F>([&](auto each) {
        constexpr Collective what = each;
        const auto make = [&](const schedule::Shape& shape) { return schedule::schedule_of<what>(family, shape); };
        for (const int world : trial.worlds) {
            for (const int root : std::set{0, world / 2, world - 1}) {
                if (found.full() || (root != 0 && !has_root(what))) continue;
                try {
                    for (const std::string& one : schedule::verify(world, root, make).violations) found.add(one);
                } catch (const std::exception& thrown) {
                    found.add(concat({name_of(what), " on ", world, " ranks threw ", thrown.what()}));
                }
            }
        }
    });
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
