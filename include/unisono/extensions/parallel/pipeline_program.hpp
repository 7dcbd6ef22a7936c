#pragma once

/// \file
/// The actions of all stages of a pipeline, for any schedule: the input of proof, simulation and
/// drawing.

#include "unisono/extensions/parallel/pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// The number of *slots* that each chunk of a stage needs: the most micro-batches whose activations
/// it holds at the same time. Micro-batch i takes slot i modulo that number when the chunk's input
/// arrives. On a single stage, the input arrives when the chunk before has computed it, before the
/// chunk's own forward pass. The backward pass frees the slot.
inline std::vector<std::size_t> slots_of(const PipelineShape& shape, const std::vector<PipelineAction>& actions) {
    std::vector<std::size_t> now(shape.chunks, 0), most(shape.chunks, 0);
    const auto take = [&](std::size_t chunk) { most[chunk] = std::max(most[chunk], ++now[chunk]); };
    for (const PipelineAction& one : actions) {
        if (one.chunk >= shape.chunks) continue; // the proof refuses it
        if (one.step == PipelineStep::backward) --now[one.chunk];
        if (one.step != PipelineStep::forward) continue;
        if (shape.stages > 1 || one.chunk == 0) take(one.chunk);
        if (shape.stages == 1 && has_part_behind(shape, one.chunk)) take(one.chunk + 1);
    }
    return most;
}

} // namespace detail

/// The actions of all stages, in order.
struct PipelineProgram {
    std::string name;
    int stages = 1;
    std::uint32_t micro_batches = 1;
    std::uint32_t chunks = 1;
    std::vector<std::vector<PipelineAction>> actions = {};  ///< actions of each stage
    std::vector<std::size_t> in_flight = {};                ///< the limit that the schedule declares for each stage
    std::vector<std::vector<std::size_t>> slot_counts = {}; ///< slots of each chunk of each stage

    [[nodiscard]] PipelineShape shape(int stage) const { return {stages, stage, micro_batches, chunks}; }
    [[nodiscard]] std::uint32_t parts() const { return parts_of(shape(0)); }
};

/// \throws error bad_input: no stages, micro-batches or chunks, or too many
template <pipeline_schedule Schedule>
PipelineProgram pipeline_program(const Schedule& schedule, int stages, std::uint32_t micro_batches) {
    PipelineProgram program{std::string(Schedule::name), stages, micro_batches, schedule.chunks};
    refuse_bad_pipeline(program.shape(0));
    for (int stage = 0; stage < stages; ++stage) {
        program.actions.emplace_back();
        for_each_action(schedule, program.shape(stage),
                        [&](const PipelineAction& action) { program.actions.back().push_back(action); });
        program.in_flight.push_back(schedule.in_flight(program.shape(stage)));
        program.slot_counts.push_back(detail::slots_of(program.shape(stage), program.actions.back()));
    }
    return program;
}

UNISONO_NAMESPACE_END
