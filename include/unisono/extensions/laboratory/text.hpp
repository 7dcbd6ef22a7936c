#pragma once

/// \file
/// Steps in words, for reports and drawings: "send output[2..3] to rank 4".

#include "unisono/core/text.hpp"
#include "unisono/schedule/schedule.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

constexpr std::string_view name_of(Buffer where) {
    constexpr std::string_view names[] = {"input", "output", "scratch", "posted"};
    return names[static_cast<std::size_t>(where)];
}

constexpr std::string_view name_of(StepKind kind) {
    constexpr std::string_view names[] = {"send", "receive", "receive_combine", "copy",          "combine_ranks",
                                          "post", "await",   "combine_peers",   "copy_from_peer"};
    return names[static_cast<std::size_t>(kind)];
}

/// "3" or "3..5".
inline std::string describe_numbers(std::uint32_t first, std::uint32_t count) {
    if (count == 0) return "";
    std::string text = std::to_string(first);
    if (count > 1) text += concat({"..", first + count - 1});
    return text;
}

/// "output[3..5]", "scratch[3] in slot 1".
inline std::string describe(const Blocks& blocks) {
    std::string text = concat({name_of(blocks.where), "[", describe_numbers(blocks.first, blocks.count), "]"});
    if (blocks.where == Buffer::scratch) {
        text += concat({" in slot ", blocks.slot});
        if (blocks.ahead != 0) text += concat({" behind ", blocks.ahead});
    }
    return text;
}

/// A step in words.
inline std::string describe(const Step& step) {
    const std::string peer = step.peer == everyone ? std::string("all ranks") : concat({"rank ", step.peer});
    std::string text(name_of(step.kind));
    switch (step.kind) {
    case StepKind::send: text += concat({" ", describe(step.source), " to ", peer}); break;
    case StepKind::receive: text += concat({" ", describe(step.target), " from ", peer}); break;
    case StepKind::receive_combine:
        text += concat({" ", describe(step.source), " with what ", peer, " sends into ", describe(step.target)});
        break;
    case StepKind::copy:
    case StepKind::combine_ranks: text += concat({" ", describe(step.source), " to ", describe(step.target)}); break;
    case StepKind::post:
        if (step.source.count != 0) text += concat({" with ", describe(step.source)});
        break;
    case StepKind::await: break;
    case StepKind::combine_peers:
        text += concat({" ", describe(step.source), " of all ranks into ", describe(step.target), " of ", peer});
        break;
    case StepKind::copy_from_peer:
        text += concat({" ", describe(step.source), " of ", peer, " to ", describe(step.target)});
        break;
    }
    if (step.part != 0) text += concat({", part ", step.part});
    return text;
}

} // namespace schedule

UNISONO_NAMESPACE_END
