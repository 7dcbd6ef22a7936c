#pragma once

/// \file
/// Draws any schedule as SVG. Ranks are lines, rounds are columns from left to right, messages are
/// arrows labelled with the numbers of their blocks. Mapped schedules show flags, and arrows from
/// the memory that is read to its reader. Each mark has a tooltip with its step in words. Readable
/// for up to about 16 ranks.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/svg.hpp"
#include "unisono/extensions/laboratory/verify/program.hpp"

#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Sizes of a drawing.
struct DrawOptions {
    int row_px = 44;          ///< from rank to rank
    int column_px = 132;      ///< from round to round
    std::uint32_t labels = 3; ///< labelled arrows per rank and round; further ones have tooltips only
};

namespace detail {

using unisono::detail::begin_svg;
using unisono::detail::escape_xml;

class Drawing {
public:
    Drawing(const Program& program, const DrawOptions& options) : program_(program), options_(options) {}

    std::string draw() {
        const auto rounds = static_cast<int>(program_.most_rounds());
        const int width = left + (rounds < 2 ? 2 : rounds) * options_.column_px + 24;
        const int height = row(program_.world - 1) + options_.row_px + 44;
        svg_ = head(width, height);
        const std::string rooted = program_.root == 0 ? "" : concat({", root ", program_.root});
        text(16, 24, "title",
             concat({program_.name, ", ", program_.world, program_.world == 1 ? " rank" : " ranks", rooted}));
        for (int round = 0; round < rounds; ++round) {
            text(column(round) + options_.column_px / 2, 48, "round", concat({"round ", round}));
            if (round % 2 == 1)
                svg_ += concat({"<rect class=\"odd\" x=\"", column(round), "\" y=\"56\" width=\"", options_.column_px,
                                "\" height=\"", row(program_.world - 1) - 56 + options_.row_px / 2, "\"/>\n"});
        }
        for (int rank = 0; rank < program_.world; ++rank) {
            line("rank", 76, row(rank), width - 16, row(rank));
            text(16, row(rank) + 4, "name", concat({"rank ", rank}));
        }
        for (int rank = 0; rank < program_.world; ++rank)
            for (std::uint32_t round = 0; round < program_.at(rank).rounds; ++round) draw_round(rank, round);
        svg_ += labels_; // above all lines
        legend(height - 18);
        return concat({svg_, "</svg>\n"});
    }

private:
    static constexpr int left = 84;
    [[nodiscard]] int row(int rank) const { return 76 + rank * options_.row_px; }
    [[nodiscard]] int column(int round) const { return left + round * options_.column_px; }

    static std::string head(int width, int height) {
        return concat(
            {begin_svg(
                 width, height,
                 ".round{fill:#777;text-anchor:middle}"
                 ".label{text-anchor:middle;font-size:10px}.plate{fill:#fff;fill-opacity:0.9}"
                 ".paper{fill:#fff}.rank{stroke:#999;stroke-width:1}.odd{fill:#f4f5f7}"
                 ".send{stroke:#1f6fb4;stroke-width:1.5;fill:none}.combine{stroke:#c8461b;stroke-width:1.5;fill:none}"
                 ".read{stroke:#2c8a4b;stroke-width:1.2;stroke-dasharray:5 3;fill:none}"
                 ".write{stroke:#c8461b;stroke-width:1.2;stroke-dasharray:5 3;fill:none}"
                 ".mark{fill:#222}.sum{fill:#c8461b}.flag{fill:#7a3fa0}.wait{stroke:#7a3fa0;stroke-width:3}"),
             "<defs>", arrow_head("send", "#1f6fb4"), arrow_head("combine", "#c8461b"), arrow_head("read", "#2c8a4b"),
             arrow_head("write", "#c8461b"), "</defs>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"});
    }
    static std::string arrow_head(const std::string& kind, const std::string& colour) {
        return concat({"<marker id=\"", kind,
                       "\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
                       "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"",
                       colour, "\"/></marker>"});
    }

    void text(int x, int y, const char* kind, const std::string& words) {
        svg_ += concat({"<text class=\"", kind, "\" x=\"", x, "\" y=\"", y, "\">", escape_xml(words), "</text>\n"});
    }
    void line(const char* kind, int x1, int y1, int x2, int y2) {
        svg_ +=
            concat({"<line class=\"", kind, "\" x1=\"", x1, "\" y1=\"", y1, "\" x2=\"", x2, "\" y2=\"", y2, "\"/>\n"});
    }
    /// Words on a white plate, centred at (x, y), above all lines.
    void label(int x, int y, const std::string& words) {
        const int width = 6 * static_cast<int>(words.size()) + 4;
        labels_ += concat({"<rect class=\"plate\" x=\"", x - width / 2, "\" y=\"", y - 6, "\" width=\"", width,
                           "\" height=\"12\" rx=\"2\"/><text class=\"label\" x=\"", x, "\" y=\"", y + 4, "\">",
                           escape_xml(words), "</text>\n"});
    }
    void arrow(const std::string& kind, int x1, int y1, int x2, int y2, const std::string& tip) {
        svg_ += concat({"<line class=\"", kind, "\" x1=\"", x1, "\" y1=\"", y1, "\" x2=\"", x2, "\" y2=\"", y2,
                        "\" marker-end=\"url(#", kind, ")\"><title>", escape_xml(tip), "</title></line>\n"});
    }
    void dot(const std::string& kind, int x, int y, const std::string& tip) {
        svg_ += concat({"<circle class=\"", kind, "\" cx=\"", x, "\" cy=\"", y, "\" r=\"4\"><title>", escape_xml(tip),
                        "</title></circle>\n"});
    }

    /// True if the receiver combines the data that `from` sends in a round.
    bool is_combined(int from, const Step& sent, std::uint32_t round) {
        if (sent.peer < 0 || sent.peer >= program_.world) return false;
        program_.steps_of(sent.peer, round, peer_steps_);
        for (const Step& step : peer_steps_)
            if (step.kind == StepKind::receive_combine && step.peer == from && step.part == sent.part) return true;
        return false;
    }

    void draw_round(int rank, std::uint32_t round) {
        program_.steps_of(rank, round, steps_);
        const int x = column(static_cast<int>(round)), y = row(rank);
        const int from = x + 14, to = x + options_.column_px - 18;
        int locals = 0;
        std::uint32_t arrows = 0, drawn = 0;
        int peer = everyone;
        bool one_peer = true;
        for (const Step& step : steps_) {
            if (step.kind != StepKind::send && step.kind != StepKind::copy_from_peer) continue;
            one_peer &= arrows++ == 0 || step.peer == peer;
            peer = step.peer;
        }
        int beside = 0;
        for (const Step& step : steps_) {
            const std::string tip = concat({"rank ", rank, ", round ", round, ": ", describe(step)});
            // Close to the sender's own line, where no other rank's label can be. Labels for
            // several peers stand one behind the other.
            const auto along = [&](int y1, int y2) {
                if (arrows > options_.labels || step.source.count == 0) return;
                const std::string words = describe_numbers(step.source.first, step.source.count);
                const int height = y2 > y1 ? y2 - y1 : y1 - y2;
                const int percent = one_peer ? 100 * (options_.row_px / 3) / (height == 0 ? 1 : height)
                                             : 24 + 40 * static_cast<int>(drawn++) / static_cast<int>(arrows);
                const int half = 3 * static_cast<int>(words.size()) + 3;
                beside += one_peer && beside != 0 ? half : 0;
                label(from + (to - from) * percent / 100 + beside, y1 + (y2 - y1) * percent / 100, words);
                beside += one_peer ? half : 0;
            };
            switch (step.kind) {
            case StepKind::send:
                arrow(is_combined(rank, step, round) ? "combine" : "send", from + 6 * step.part, y, to, row(step.peer),
                      tip);
                along(y, row(step.peer));
                break;
            case StepKind::receive:
            case StepKind::receive_combine: break; // drawn with their sends
            case StepKind::copy: dot("mark", from - 4 + 10 * locals++, y, tip); break;
            case StepKind::combine_ranks: dot("sum", from - 4 + 10 * locals++, y, tip); break;
            case StepKind::post:
                svg_ += concat({"<path class=\"flag\" d=\"M", to - 8, " ", y, " v-14 l10 4 l-10 4 z\"><title>",
                                escape_xml(tip), "</title></path>\n"});
                if (step.source.count != 0)
                    label(to - 8, y - 16, describe_numbers(step.source.first, step.source.count));
                break;
            case StepKind::await: line("wait", to + 10, y - 7, to + 10, y + 7); break;
            case StepKind::combine_peers: draw_combination(rank, step, from, to, tip); break;
            case StepKind::copy_from_peer:
                arrow("read", from, row(step.peer), to - 16, y, tip);
                along(row(step.peer), y);
                break;
            }
        }
    }

    /// Draws all ranks' blocks meeting in the middle of the column, and their sum going where the
    /// step says.
    void draw_combination(int rank, const Step& step, int from, int to, const std::string& tip) {
        const int y = row(rank), middle = (from + to - 16) / 2;
        for (int peer = 0; peer < program_.world; ++peer)
            if (peer != rank) arrow("read", from, row(peer), middle - 4, y, tip);
        dot("sum", middle, y, tip);
        for (int owner = 0; owner < program_.world; ++owner)
            if (owner != rank && (step.peer == everyone || step.peer == owner))
                arrow("write", middle + 4, y, to - 16, row(owner), tip);
        label(middle, y - 8, describe_numbers(step.source.first, step.source.count));
    }

    void legend(int y) {
        int x = 16;
        const auto entry = [&](const char* kind, const char* words, int length) {
            arrow(kind, x, y - 4, x + 26, y - 4, words);
            text(x + 32, y, "name", words);
            x += 44 + length;
        };
        if (program_.mapped) {
            entry("read", "reads", 34);
            entry("write", "combines, writes", 94);
            svg_ += concat({"<path class=\"flag\" d=\"M", x, " ", y, " v-14 l10 4 l-10 4 z\"/>\n"});
            text(x + 14, y, "name", "posts");
            line("wait", x + 58, y - 11, x + 58, y + 3);
            text(x + 64, y, "name", "awaits all");
        } else {
            entry("send", "message", 50);
            entry("combine", "combined", 64);
            text(x, y, "name", "numbers: blocks of the vector");
        }
    }

    const Program& program_;
    DrawOptions options_;
    std::string svg_, labels_;
    std::vector<Step> steps_, peer_steps_;
};

} // namespace detail

/// The schedule that `make` returns for each rank's Shape, as an SVG document. \throws error
/// bad_input: a bad shape
template <class Factory>
std::string draw(int world, int root, const Factory& make, const DrawOptions& options = {}) {
    refuse_bad_shape(Shape{world, 0, root});
    return detail::Drawing(detail::forget_type(world, root, make), options).draw();
}

/// As above, for a schedule type whose only member is its shape.
template <collective_schedule Schedule>
std::string draw(int world, int root = 0, const DrawOptions& options = {}) {
    return draw(
        world, root, [](const Shape& shape) { return Schedule{shape}; }, options);
}

} // namespace schedule

UNISONO_NAMESPACE_END
