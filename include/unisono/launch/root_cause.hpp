#pragma once

/// \file
/// The cause of a timeout: not the neighbour that is late because it waits itself, but the rank for
/// which the neighbour waits, directly or indirectly. A pure function of all ranks' answers.

#include "unisono/core/list.hpp"
#include "unisono/launch/launch.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// "rank 3", "ranks 1, 2, 5"; for many ranks, the first ones.
std::string list_of(const std::vector<int>& ranks);

/// The meaning of a rank's answer, or of its silence; worse values come later.
enum class Standing : std::uint8_t {
    waits,   ///< waits for others, in a call of the library
    works,   ///< computes in the program's code
    left,    ///< said goodbye
    silent,  ///< did not answer in time
    stopped, ///< its process is stopped: by a signal or a debugger
};

struct Answer {
    Standing standing = Standing::silent;
    Wait wait = {};
};

struct Culprit {
    int rank = -1;        ///< -1: no particular rank
    std::string why = {}; ///< the end of the sentence in the fault's message
};

std::string describe(int rank, const Answer& answer);

/// Follows the waits from the rank that complained. Of all ranks that are reached, the one with the
/// worst standing is to blame; among equals, the one that is reached first. If all wait, a rank
/// that waits for another operation than the complaining rank is to blame. If there is none, no
/// rank is, and the message says what each rank waits for.
Culprit find_root_cause(int reporter, Part<const Answer> answers);

/// The fault of the rank that complained, with this culprit.
inline Fault with_culprit(Fault fault, const Culprit& culprit) {
    if (culprit.rank >= 0) fault.peer = culprit.rank;
    fault.message += culprit.why;
    return fault;
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string list_of(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size() && i < 16; ++i) text += concat({i == 0 ? "" : ", ", ranks[i]});
    return concat({text, ranks.size() > 16 ? ", ..." : ""});
}

UNISONO_DEFINITION std::string describe(int rank, const Answer& answer) {
    std::string who = concat({"rank ", rank});
    switch (answer.standing) {
    case Standing::waits: {
        std::string text = concat({who, " waits in ", answer.wait.operation});
        if (answer.wait.sequence != 0) text += concat({" #", answer.wait.sequence});
        return text;
    }
    case Standing::works: return concat({who, " is in no call of the library"});
    case Standing::left: return concat({who, " has left"});
    case Standing::silent: return concat({who, " does not answer (is its host overloaded or unreachable?)"});
    case Standing::stopped: return concat({who, " is stopped (by a signal or a debugger)"});
    }
    return who;
}

/// The ends of a message are one operation with two names.
inline bool is_message(const Wait& wait) {
    const std::string_view operation = wait.operation;
    return operation.starts_with("send of ") || operation.starts_with("receive of ");
}

UNISONO_DEFINITION Culprit find_root_cause(int reporter, Part<const Answer> answers) {
    List<std::uint8_t> reached(answers.size());
    List<int> order{reporter};
    reached[static_cast<std::size_t>(reporter)] = 1;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Answer& answer = answers[static_cast<std::size_t>(order[i])];
        if (answer.standing != Standing::waits) continue;
        for (const int peer : answer.wait.peers) {
            if (std::exchange(reached[static_cast<std::size_t>(peer)], std::uint8_t{1}) != 0) continue;
            order.push_back(peer);
        }
    }
    const Wait& own = answers[static_cast<std::size_t>(reporter)].wait;
    int worst = -1;
    int elsewhere = -1;
    for (std::size_t i = 1; i < order.size(); ++i) {
        const Answer& answer = answers[static_cast<std::size_t>(order[i])];
        if (answer.standing == Standing::waits) {
            const bool same = answer.wait.context == own.context && answer.wait.sequence == own.sequence &&
                              (answer.wait.operation == own.operation || (is_message(answer.wait) && is_message(own)));
            if (!same && elsewhere < 0) elsewhere = order[i];
        } else if (worst < 0 || answer.standing > answers[static_cast<std::size_t>(worst)].standing) {
            worst = order[i];
        }
    }
    Culprit culprit{.rank = worst >= 0 ? worst : elsewhere};
    std::size_t told = 0;
    const auto tell = [&](int rank) {
        if (told++ < 8) culprit.why += concat({"; ", describe(rank, answers[static_cast<std::size_t>(rank)])});
    };
    if (culprit.rank >= 0) tell(culprit.rank);
    for (const int rank : order)
        if (rank != culprit.rank && (rank != reporter || order.size() == 1)) tell(rank);
    if (told > 8) culprit.why += concat({"; and so on for ", told - 8, " more"});
    return culprit;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
