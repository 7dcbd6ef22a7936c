#pragma once

/// \file
/// How long a collective takes, by the usual model: a latency for each round in which a rank waits, a time for each byte that
/// it sends, another for each byte that it combines (R. Hockney's model with a term for arithmetic; Thakur et al. 2005,
/// section 2). Good enough to choose between schedules, from three measured numbers that all ranks agree on.

#include "unisono/core/text.hpp"
#include "unisono/schedule/schedule.hpp"

#include "unisono/core/error.hpp"

#include <cmath>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// What a machine is like; measure and agree on it before choosing by it.
struct CostModel {
    double latency_ns = 2000;          ///< of a round: a message of no size, or a flag seen by all
    double ns_per_byte = 0.1;          ///< sent; 0.1 is 10 GB/s
    double combine_ns_per_byte = 0.05; ///< of one operand combined with another
    friend bool operator==(const CostModel&, const CostModel&) = default;
};

/// Refuses times that are negative, infinite or NaN.
inline void refuse_bad_model(const CostModel& model) {
    const auto check = [](const char* name, double value) {
        if (!std::isfinite(value) || value < 0)
            refuse_input({"CostModel::", name, " is ", value, ", expected a finite time of at least 0"});
    };
    check("latency_ns", model.latency_ns);
    check("ns_per_byte", model.ns_per_byte);
    check("combine_ns_per_byte", model.combine_ns_per_byte);
}

namespace schedule {

/// Bytes that the mapped and staged schedules read from peers' memory count as sent: with messages somebody would send them.
template <collective_schedule Schedule>
constexpr std::uint64_t blocks_moved(const Schedule& schedule) {
    std::uint64_t moved = schedule.cost().blocks_sent;
    if constexpr (Schedule::mapped) {
        const auto world = static_cast<std::uint64_t>(schedule.shape.world);
        for (std::uint32_t r = 0; r < schedule.rounds(); ++r) {
            schedule.round(r, [&](const Step& step) {
                if (step.kind == StepKind::copy_from_peer) moved += step.source.count;
                if (step.kind != StepKind::combine_peers) return;
                moved += (world - 1) * step.source.count; // read, and written where not to itself
                moved += (step.peer == everyone              ? world - 1
                          : step.peer == schedule.shape.rank ? 0
                                                             : 1) *
                         step.target.count;
            });
        }
    }
    return moved;
}

/// Nanoseconds that this rank is busy or waits, for `bytes` in all blocks together, one lane, even blocks.
/// Cost: constant; mapped schedules generate their steps.
template <collective_schedule Schedule>
constexpr double estimate(const Schedule& schedule, std::uint64_t bytes, const CostModel& model) {
    const Cost cost = schedule.cost();
    const double block = schedule.blocks() == 0 ? 0.0 : static_cast<double>(bytes) / schedule.blocks();
    return model.latency_ns * static_cast<double>(cost.rounds) +
           model.ns_per_byte * block * static_cast<double>(blocks_moved(schedule)) +
           model.combine_ns_per_byte * block * static_cast<double>(cost.blocks_combined);
}

/// The same of the whole collective: of its slowest rank. With a root the slowest is not known beforehand: all are looked at.
/// Depends on nothing but its arguments, so all ranks find the same. Cost: `world` estimates.
template <class Factory>
constexpr double estimate_slowest(const Shape& shape, std::uint64_t bytes, const CostModel& model,
                                  const Factory& make) {
    double slowest = 0;
    for (int rank = 0; rank < shape.world; ++rank) {
        const double time = estimate(make(Shape{shape.world, rank, shape.root}), bytes, model);
        slowest = time > slowest ? time : slowest;
    }
    return slowest;
}

} // namespace schedule

UNISONO_NAMESPACE_END
