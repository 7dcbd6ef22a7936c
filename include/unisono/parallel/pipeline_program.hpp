#pragma once

/// \file
/// The actions of all stages of a pipeline, whatever their schedule: the input of proof, simulation
/// and drawing.

#include "unisono/parallel/pipeline.hpp"

#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The actions of all stages, in order.
struct PipelineProgram {
    std::string name;
    int stages = 1;
    std::uint32_t micro_batches = 1;
    std::uint32_t chunks = 1;
    std::vector<std::vector<PipelineAction>> actions = {}; ///< of each stage
    std::vector<std::size_t> in_flight = {};               ///< as each stage claims

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
    }
    return program;
}

UNISONO_NAMESPACE_END
