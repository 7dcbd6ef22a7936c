#pragma once

/// \file
/// Runs the actions of a pipeline's stages in virtual time, and finds the total duration and the
/// share of it spent waiting.

#include "unisono/core/math.hpp"
#include "unisono/extensions/parallel/pipeline_program.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The time of one part of the model for one micro-batch, in any unit.
struct PartTimes {
    double forward = 1;
    double backward = 2;
    friend bool operator==(const PartTimes&, const PartTimes&) = default;
};

/// Durations in a simulated pipeline, in any unit.
struct PipelineCosts {
    /// Times of each part along the forward pass; empty: a stage's 1 and 2, divided evenly among
    /// its chunks.
    std::vector<PartTimes> parts = {};
    double transfer = 0; ///< time from the end of a part's work until its neighbour has the data
};

/// The time of one piece of work.
struct PipelineSpan {
    double begin = 0, end = 0;
    int stage = 0;
    PipelineWork work = {};
};

/// The times of all stages' work.
struct PipelineTimeline {
    double total = 0;
    std::vector<double> busy = {};        ///< busy time of each stage
    std::vector<PipelineSpan> spans = {}; ///< by stage, and then by time

    /// The share of all stages' time in which they wait: 0 to 1.
    [[nodiscard]] double bubble() const {
        double all = 0;
        for (const double one : busy) all += one;
        return total > 0 ? 1 - all / (total * static_cast<double>(busy.size())) : 0;
    }
};

/// Each stage computes in its order, as soon as its input has arrived. Messages travel while stages
/// compute.
/// \throws error bad_input: the number of times differs from the number of parts; a time is
/// negative or not finite; the schedule does not end
inline PipelineTimeline pipeline_timeline(const PipelineProgram& program, const PipelineCosts& costs = {}) {
    const std::size_t parts = program.parts(), m = program.micro_batches;
    std::vector<PartTimes> times = costs.parts;
    const double chunks = static_cast<double>(program.chunks);
    if (times.empty()) times.assign(parts, {1 / chunks, 2 / chunks});
    if (times.size() != parts)
        refuse_input({"pipeline_timeline: found times of ", times.size(), " parts, expected ", parts});
    for (const PartTimes& one : times)
        if (!(one.forward >= 0 && one.backward >= 0 && costs.transfer >= 0 &&
              detail::is_finite(one.forward + one.backward + costs.transfer)))
            refuse_input("pipeline_timeline: found a time that is negative or not finite");
    constexpr double unknown = -1;
    std::vector<double> forward(parts * m, unknown), backward(parts * m, unknown); // times of completion
    const auto stages = static_cast<std::size_t>(program.stages);
    std::vector<std::size_t> at(stages, 0);
    std::vector<double> clock(stages, 0);
    std::vector<std::vector<PipelineSpan>> spans(stages);
    PipelineTimeline found;
    found.busy.assign(stages, 0);
    const auto step = [&](std::size_t stage) { // false: the stage has to wait, or has finished
        if (at[stage] == program.actions[stage].size()) return false;
        const PipelineAction& action = program.actions[stage][at[stage]];
        const PipelineShape shape = program.shape(static_cast<int>(stage));
        const std::size_t part = part_of(shape, action.chunk), i = action.micro_batch;
        const bool ahead = action.step == PipelineStep::forward, back = action.step == PipelineStep::backward;
        if (ahead || back) {
            double ready = 0; // the end of the neighbour's work
            if (ahead && part != 0) ready = forward[(part - 1) * m + i];
            if (back) ready = part + 1 != parts ? backward[(part + 1) * m + i] : forward[part * m + i];
            if (ready == unknown) return false;
            const bool travels = stages > 1 && (ahead ? part != 0 : part + 1 != parts);
            const double begin = std::max(clock[stage], ready + (travels ? costs.transfer : 0));
            const double takes = ahead ? times[part].forward : times[part].backward;
            clock[stage] = begin + takes;
            (ahead ? forward : backward)[part * m + i] = clock[stage];
            found.busy[stage] += takes;
            spans[stage].push_back(
                {begin,
                 clock[stage],
                 static_cast<int>(stage),
                 {ahead ? PipelinePhase::forward : PipelinePhase::backward, action.micro_batch, action.chunk}});
        }
        ++at[stage];
        return true;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t stage = 0; stage < stages; ++stage)
            while (step(stage)) moved = true;
    }
    for (std::size_t stage = 0; stage < stages; ++stage) {
        if (at[stage] != program.actions[stage].size())
            refuse_input({"pipeline_timeline: stage ", stage, " of ", program.name, " waits for ever"});
        found.total = std::max(found.total, clock[stage]);
        found.spans.insert(found.spans.end(), spans[stage].begin(), spans[stage].end());
    }
    return found;
}

/// The bubble if all parts take the same time and messages take none. For Interleaved it is exact
/// if the number of stages divides the number of micro-batches.
constexpr double ideal_bubble(int stages, std::uint32_t micro_batches, std::uint32_t chunks = 1) {
    const double waits = stages - 1;
    return waits / (static_cast<double>(chunks) * static_cast<double>(micro_batches) + waits);
}

UNISONO_NAMESPACE_END
