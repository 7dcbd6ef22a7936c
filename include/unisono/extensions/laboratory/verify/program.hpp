#pragma once

/// \file
/// A schedule as the proofs see it: one table of facts for all ranks, and the steps by rank and
/// round, independent of the schedule's type. And steps in words, for reports and drawings: "send
/// output[2..3] to rank 4".

#include "unisono/core/text.hpp"
#include "unisono/schedule/circular.hpp"
#include "unisono/schedule/schedule.hpp"

#include <string>
#include <utility>
#include <vector>

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
    case StepKind::await:
        if (step.peer != everyone) text += concat({" ", peer});
        break;
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

namespace schedule {

/// The result of `verify`. Without violations the schedule is proven.
struct Report {
    std::vector<std::string> violations = {};
    std::size_t most_violations = 16; ///< further ones are dropped, as one fault tends to cause many
    /// The number of messages between each two ranks that channels must hold if every step blocks.
    /// 0: rendezvous of send and receive suffices.
    std::uint32_t least_depth = 0;
    std::uint64_t steps = 0; ///< of all ranks

    [[nodiscard]] bool proven() const { return violations.empty(); }
    [[nodiscard]] bool full() const { return violations.size() >= most_violations; }
    void add(std::string text) {
        if (!full()) violations.push_back(std::move(text));
    }
};

namespace detail {

/// A schedule of all ranks with its type erased. Refers to the factory, which must outlive it.
struct Program {
    std::string name;
    Collective collective = Collective::barrier;
    bool mapped = false;
    bool single_blocks = false;
    bool staged = false;
    bool claims_cost = false;
    int world = 1;
    int root = 0;
    std::uint32_t blocks = 0;
    struct Rank {
        std::uint32_t blocks = 0, rounds = 0, scratch_slots = 0, channel_depth = 0;
        Cost cost;
    };
    std::vector<Rank> ranks;
    const void* factory = nullptr;
    void (*generate)(const void* factory, const Shape& shape, std::uint32_t round, std::vector<Step>& steps) = nullptr;

    void steps_of(int rank, std::uint32_t round, std::vector<Step>& steps) const {
        steps.clear();
        generate(factory, Shape{world, rank, root}, round, steps);
    }
    [[nodiscard]] const Rank& at(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::uint32_t most_rounds() const {
        std::uint32_t most = 0;
        for (const Rank& rank : ranks) most = rank.rounds > most ? rank.rounds : most;
        return most;
    }

    /// True if a rank is given a block; and if it has to fill one.
    [[nodiscard]] bool has_input(int rank, std::uint32_t block) const {
        return holds_block(buffer_use(collective).input, rank == root, block == static_cast<std::uint32_t>(rank));
    }
    [[nodiscard]] bool has_output(int rank, std::uint32_t block) const {
        return holds_block(buffer_use(collective).output, rank == root, block == static_cast<std::uint32_t>(rank));
    }
    /// True if the caller may pass the same memory as input and output.
    [[nodiscard]] bool can_be_in_place() const {
        return collective != Collective::broadcast && collective != Collective::all_to_all &&
               collective != Collective::barrier;
    }
};

template <class Factory>
Program forget_type(int world, int root, const Factory& make) {
    using Schedule = decltype(make(Shape{}));
    static_assert(collective_schedule<Schedule>, "the factory must return a collective_schedule for a Shape");
    Program program;
    program.name = std::string(std::string_view(Schedule::name));
    program.collective = Schedule::collective;
    program.mapped = Schedule::mapped;
    program.single_blocks = Schedule::single_blocks;
    program.staged = is_staged<Schedule>;
    program.claims_cost = requires(const Schedule& schedule) { schedule.cost(); };
    program.world = world;
    program.root = root;
    program.factory = &make;
    program.generate = [](const void* factory, const Shape& shape, std::uint32_t round, std::vector<Step>& steps) {
        (*static_cast<const Factory*>(factory))(shape).round(round, [&](const Step& step) { steps.push_back(step); });
    };
    for (int rank = 0; rank < world; ++rank) {
        const Schedule schedule = make(Shape{world, rank, root});
        program.ranks.push_back({schedule.blocks(), schedule.rounds(), schedule.scratch_slots(),
                                 schedule.channel_depth(), cost_of_rank(schedule)});
    }
    program.blocks = program.ranks.front().blocks;
    return program;
}

/// The position of a proof, for its messages.
struct Place {
    int rank = 0;
    std::uint32_t round = 0;
    std::size_t step = 0;
    const Step* what = nullptr;

    [[nodiscard]] std::string text() const {
        std::string where = concat({"rank ", rank, ", round ", round});
        if (what != nullptr) where += concat({", step ", step, " (", describe(*what), ")"});
        return concat({where, ": "});
    }
};

/// Reports faults together with the position of the proof.
struct Journal {
    Report& report;
    Place place = {};
    void fail(const std::string& text) { report.add(place.text() + text); }
};

/// Compares a rank's counted cost with the claimed one, if the schedule claims one.
inline void compare_cost(const Program& program, int rank, const Cost& counted, Report& report) {
    if (!program.claims_cost) return;
    const Cost& claimed = program.at(rank).cost;
    const auto compare = [&](const char* what, std::uint64_t claim, std::uint64_t count) {
        if (claim != count)
            report.add(concat({"rank ", rank, ": cost() claims ", claim, " ", what, ", counted ", count}));
    };
    compare("messages", claimed.messages, counted.messages);
    compare("blocks sent", claimed.blocks_sent, counted.blocks_sent);
    compare("blocks combined", claimed.blocks_combined, counted.blocks_combined);
    compare("rounds", claimed.rounds, counted.rounds);
}

} // namespace detail
} // namespace schedule

UNISONO_NAMESPACE_END
