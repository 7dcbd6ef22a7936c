#pragma once

/// \file
/// The actions of a pipeline's stages, for any schedule: the input of its proof; their run in
/// virtual time, which finds the total duration and the share of it spent waiting; and a drawing.

#include "unisono/core/math.hpp"
#include "unisono/extensions/laboratory/svg.hpp"
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

/// Sizes of a drawing.
struct PipelineDrawing {
    int row_px = 30;
    int width_px = 960; ///< width of the total time
};

/// A pipeline as SVG: stages are rows, time goes from left to right.
inline std::string draw_pipeline(const PipelineProgram& program, const PipelineCosts& costs = {},
                                 const PipelineDrawing& options = {}) {
    const PipelineTimeline timeline = pipeline_timeline(program, costs);
    constexpr int left = 72, top = 48;
    const int width = left + options.width_px + 24, height = top + program.stages * options.row_px + 40;
    const auto across = [&](double time) {
        return fixed_text(left + time * options.width_px / (timeline.total > 0 ? timeline.total : 1), 1);
    };
    std::string svg = detail::begin_svg(
        width, height,
        ".box{text-anchor:middle}.idle{fill:#f0f1f3}.forward{fill:#7fb2e5;stroke:#fff}.forward1{fill:#bcd7f2;"
        "stroke:#fff}.backward{fill:#8fc99a;stroke:#fff}.backward1{fill:#c6e4cc;stroke:#fff}");
    svg += concat({"<text class=\"title\" x=\"16\" y=\"26\">", detail::escape_xml(program.name), ", ", program.stages,
                   " stages, ", program.micro_batches, " micro-batches", program.chunks > 1 ? ", " : "",
                   program.chunks > 1 ? concat({program.chunks, " chunks per stage"}) : std::string(), ": bubble ",
                   fixed_text(100 * timeline.bubble(), 1), " %</text>\n"});
    for (int stage = 0; stage < program.stages; ++stage) {
        const int y = top + stage * options.row_px;
        svg += concat({"<text x=\"16\" y=\"", y + options.row_px / 2 + 4, "\">stage ", stage,
                       "</text>\n<rect class=\"idle\" x=\"", left, "\" y=\"", y + 2, "\" width=\"", options.width_px,
                       "\" height=\"", options.row_px - 4, "\"/>\n"});
    }
    for (const PipelineSpan& one : timeline.spans) {
        const bool forward = one.work.phase == PipelinePhase::forward;
        const int y = top + one.stage * options.row_px;
        const double pixels = (one.end - one.begin) * options.width_px / (timeline.total > 0 ? timeline.total : 1);
        const std::string_view shade = forward ? "forward" : "backward", odd = one.work.chunk % 2 == 1 ? "1" : "";
        svg += concat({"<rect class=\"", shade, odd, "\" x=\"", across(one.begin), "\" y=\"", y + 2, "\" width=\"",
                       fixed_text(pixels, 1), "\" height=\"", options.row_px - 4, "\"><title>stage ", one.stage});
        svg += concat({", chunk ", one.work.chunk, ": micro-batch ", one.work.micro_batch, " ", shade, ", ",
                       fixed_text(one.begin, 2), " to ", fixed_text(one.end, 2), "</title></rect>\n"});
        if (pixels >= 12)
            svg += concat({"<text class=\"box\" x=\"", across((one.begin + one.end) / 2), "\" y=\"",
                           y + options.row_px / 2 + 4, "\">", one.work.micro_batch, "</text>\n"});
    }
    const int y = height - 18;
    svg += concat(
        {"<rect class=\"forward\" x=\"16\" y=\"", y - 10, "\" width=\"14\" height=\"12\"/><text x=\"36\" y=\"", y,
         "\">forward</text>\n<rect class=\"backward\" x=\"96\" y=\"", y - 10,
         "\" width=\"14\" height=\"12\"/><text x=\"116\" y=\"", y,
         "\">backward</text>\n<rect class=\"idle\" x=\"184\" y=\"", y - 10,
         "\" width=\"14\" height=\"12\"/><text x=\"204\" y=\"", y, "\">waits; lighter: odd chunks</text>\n</svg>\n"});
    return svg;
}

/// As above, for a schedule.
template <pipeline_schedule Schedule>
std::string draw_pipeline(const Schedule& schedule, int stages, std::uint32_t micro_batches,
                          const PipelineCosts& costs = {}, const PipelineDrawing& options = {}) {
    return draw_pipeline(pipeline_program(schedule, stages, micro_batches), costs, options);
}

UNISONO_NAMESPACE_END
