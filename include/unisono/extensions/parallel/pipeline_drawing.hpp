#pragma once

/// \file
/// Draws a pipeline's timeline as SVG: stages are rows, time goes to the right, boxes are forward
/// and backward passes of micro-batches. The gaps in a row are the stage's bubble. Boxes have
/// tooltips.

#include "unisono/extensions/parallel/pipeline_timeline.hpp"

#include <algorithm>
#include <string>

UNISONO_NAMESPACE_BEGIN

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
    std::string svg = concat(
        {"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ",
         width, " ", height,
         "\">\n<style>text{font-family:sans-serif;font-size:11px;fill:#222}.title{font-size:15px;font-weight:bold}"
         ".box{text-anchor:middle}.idle{fill:#f0f1f3}.forward{fill:#7fb2e5;stroke:#fff}.forward1{fill:#bcd7f2;"
         "stroke:#fff}.backward{fill:#8fc99a;stroke:#fff}.backward1{fill:#c6e4cc;stroke:#fff}</style>\n"});
    svg += concat({"<text class=\"title\" x=\"16\" y=\"26\">", program.name, ", ", program.stages, " stages, ",
                   program.micro_batches, " micro-batches", program.chunks > 1 ? ", " : "",
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
        svg += concat({"<rect class=\"",
                       forward ? "forward" : "backward",
                       one.work.chunk % 2 == 1 ? "1" : "",
                       "\" x=\"",
                       across(one.begin),
                       "\" y=\"",
                       y + 2,
                       "\" width=\"",
                       fixed_text(pixels, 1),
                       "\" height=\"",
                       options.row_px - 4,
                       "\"><title>stage ",
                       one.stage,
                       ", chunk ",
                       one.work.chunk,
                       ": micro-batch ",
                       one.work.micro_batch,
                       forward ? " forward, " : " backward, ",
                       fixed_text(one.begin, 2),
                       " to ",
                       fixed_text(one.end, 2),
                       "</title></rect>\n"});
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
