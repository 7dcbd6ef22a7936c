#pragma once

/// \file
/// Proves a schedule by running all its ranks on symbolic values: sets of contributions instead of
/// numbers.
///
/// Proven for one world and root:
/// - every contribution is in each result exactly once, and results are in the right block (for
///   barriers: no rank leaves before it has heard of all ranks);
/// - input is never written, nothing is read before it is written, and blocks of any sizes lie
///   where their readers expect them;
/// - no step of a round touches memory that another step of it receives into; mapped schedules have
///   no data race, even if the collective is repeated immediately;
/// - all of this holds in place as well;
/// - sends and receives of a round match in peer, part and blocks, so no rank waits for ever (even
///   if a send completes only with its receive); and channels of `channel_depth()` messages suffice
///   if every step blocks;
/// - `cost()`, if there is one, equals the counted cost.
///
/// Cost: about 50 ns per step and block; memory for world x blocks values; over mapped memory, both
/// times the number of ranks that read a block. For tests, not for programs.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/mapped.hpp"
#include "unisono/extensions/laboratory/verify/messages.hpp"
#include "unisono/extensions/laboratory/verify/program.hpp"

#include <cstdint>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace schedule {
namespace detail {

/// The proof of bounded channels. Every rank runs its steps one by one in the order given, and each
/// step blocks: a send while its channel is full, a receive while it is empty. Depth 0 is a
/// rendezvous of send and receive. With one lane such a network is deterministic (sequential
/// processes, one sender and one receiver per channel), so one run stands for all. Several lanes
/// share the channels between two ranks, so runs differ, and the proof tries a number of orders.
class ChannelProof {
public:
    ChannelProof(const Program& program, std::uint32_t lanes, std::uint64_t seed = 0)
        : program_(program), lanes_(lanes), random_(seed), processes_(program.ranks.size() * lanes),
          held_(program.ranks.size() * program.ranks.size() * lanes),
          total_(program.ranks.size() * program.ranks.size()) {}

    /// True if all ranks end with `depth` messages per lane between each two ranks. Otherwise
    /// `stuck()` says where they stop.
    bool ends(std::uint32_t depth) {
        depth_ = depth;
        for (auto& count : held_) count = 0;
        for (auto& count : total_) count = 0;
        std::size_t running = 0;
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            processes_[i] = {};
            processes_[i].next_round = 0;
            running += load(i) ? 1 : 0;
        }
        for (bool moved = true; moved && running != 0;) {
            moved = false;
            const std::size_t start = random_ == 0 ? 0 : next_random() % processes_.size();
            for (std::size_t k = 0; k < processes_.size() && running != 0; ++k) {
                const std::size_t i = (start + k) % processes_.size();
                // In a seeded run a lane takes a few steps at a time, so that lanes overtake one
                // another in many orders.
                for (std::size_t left = random_ == 0 ? ~std::size_t{0} : next_random() % 4;
                     left != 0 && try_step(i, running); --left)
                    moved = true;
            }
            if (!moved && random_ != 0 && running != 0) // every rank may have drawn zero steps
                for (std::size_t i = 0; i < processes_.size(); ++i) moved |= try_step(i, running);
        }
        return running == 0;
    }

    [[nodiscard]] std::string stuck() const {
        std::string text;
        std::size_t count = 0;
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            const Process& process = processes_[i];
            if (process.done()) continue;
            if (++count > 4) continue;
            const Operation& operation = process.now();
            text += concat({count == 1 ? "rank " : ", rank ", i / lanes_,
                            (operation.sends ? " to send to rank " : " to receive from rank "), operation.peer,
                            " in round ", process.next_round - 1});
            if (lanes_ > 1) text += concat({" of lane ", i % lanes_});
        }
        if (count > 4) text += concat({" and ", count - 4, " more"});
        return text;
    }

private:
    struct Operation {
        int peer = 0;
        std::uint8_t part = 0;
        bool sends = false;
    };
    struct Process {
        std::vector<Operation> operations = {};
        std::size_t at = 0;
        std::uint32_t next_round = 0;
        [[nodiscard]] bool done() const { return at == operations.size(); }
        [[nodiscard]] const Operation& now() const { return operations[at]; }
    };

    std::uint64_t next_random() {
        random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
        return random_;
    }

    /// Loads the next round of a process that has messages; false at its end.
    bool load(std::size_t i) {
        Process& process = processes_[i];
        const int rank = static_cast<int>(i / lanes_);
        process.operations.clear();
        process.at = 0;
        while (process.operations.empty() && process.next_round < program_.at(rank).rounds) {
            program_.steps_of(rank, process.next_round++, steps_);
            for (const Step& step : steps_) {
                const bool sends = step.kind == StepKind::send;
                if (!sends && step.kind != StepKind::receive && step.kind != StepKind::receive_combine) continue;
                if (step.peer >= 0 && step.peer < program_.world)
                    process.operations.push_back({step.peer, step.part, sends});
            }
        }
        return !process.operations.empty();
    }

    void finish_step(std::size_t i, std::size_t& running) {
        Process& process = processes_[i];
        if (++process.at == process.operations.size() && !load(i)) --running;
    }

    bool try_step(std::size_t i, std::size_t& running) {
        const Process& process = processes_[i];
        if (process.done()) return false;
        const Operation operation = process.now();
        const std::size_t rank = i / lanes_, lane = i % lanes_, peer = static_cast<std::size_t>(operation.peer);
        const std::size_t pair =
            operation.sends ? rank * program_.ranks.size() + peer : peer * program_.ranks.size() + rank;
        if (depth_ == 0) {
            const std::size_t other = peer * lanes_ + lane;
            const Process& partner = processes_[other];
            if (partner.done() || partner.now().peer != static_cast<int>(rank) ||
                partner.now().sends == operation.sends)
                return false;
            finish_step(i, running), finish_step(other, running);
            return true;
        }
        if (operation.sends) {
            if (total_[pair] >= depth_ * lanes_) return false;
            ++total_[pair], ++held_[pair * lanes_ + lane];
        } else {
            if (held_[pair * lanes_ + lane] == 0) return false;
            --total_[pair], --held_[pair * lanes_ + lane];
        }
        finish_step(i, running);
        return true;
    }

    const Program& program_;
    std::size_t lanes_;
    std::uint32_t depth_ = 0;
    std::uint64_t random_;
    std::vector<Process> processes_;
    std::vector<std::uint16_t> held_;  ///< messages in the channel of a pair, by lane
    std::vector<std::uint32_t> total_; ///< messages in the channel of a pair, all lanes together
    std::vector<Step> steps_;
};

/// Checks the schedule's channel_depth(), and finds the smallest depth that suffices.
inline void prove_channels(const Program& program, std::uint32_t lanes, Report& report) {
    const std::uint32_t claimed = program.ranks.front().channel_depth;
    for (int rank = 1; rank < program.world; ++rank)
        if (program.at(rank).channel_depth != claimed)
            return report.add(concat({"rank ", rank, " claims channel depth ", program.at(rank).channel_depth,
                                      ", rank 0 claims ", claimed}));
    ChannelProof proof(program, 1);
    if (!proof.ends(claimed))
        return report.add(concat({"deadlock with channels of depth ", claimed,
                                  ", which channel_depth() claims suffice; waiting: ", proof.stuck()}));
    report.least_depth = claimed;
    while (report.least_depth != 0 && proof.ends(report.least_depth - 1)) --report.least_depth;
    if (lanes == 1) return;
    for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u}) {
        ChannelProof several(program, lanes, seed);
        if (!several.ends(claimed))
            return report.add(concat({"deadlock with ", lanes, " lanes and channels of depth ", claimed,
                                      " a lane; waiting: ", several.stuck()}));
    }
}

} // namespace detail

/// The assumptions of a verification.
struct VerifyOptions {
    std::uint32_t lanes = 1; ///< lanes that share the channels between two ranks; more than one is for small worlds
    bool channels = true;    ///< false: channel_depth() is not known, and not proven
};

namespace detail {

inline void verify_program(const Program& program, const VerifyOptions& options, Report& report) {
    const std::size_t before = report.violations.size();
    for (int rank = 1; rank < program.world; ++rank)
        if (program.at(rank).blocks != program.blocks)
            return report.add(
                concat({"rank ", rank, " has ", program.at(rank).blocks, " blocks, rank 0 has ", program.blocks}));
    for (const bool in_place : {false, true}) {
        if (in_place && !program.can_be_in_place()) continue;
        const std::size_t found = report.violations.size();
        if (program.mapped) MappedProof(program, in_place, report).run();
        else MessageProof(program, in_place, report).run();
        if (in_place)
            for (std::size_t i = found; i < report.violations.size(); ++i)
                report.violations[i] = concat({"in place: ", report.violations[i]});
        if (report.violations.size() != found) break;
    }
    // If messages do not match, the channels would report the same fault again.
    if (options.channels && !program.mapped && report.violations.size() == before)
        prove_channels(program, options.lanes, report);
    const std::string title = concat({program.name, " on ", program.world, " ranks, root ", program.root, ": "});
    for (std::size_t i = before; i < report.violations.size(); ++i) report.violations[i] = title + report.violations[i];
}

} // namespace detail

/// Proves the schedule that `make` returns for each rank's Shape. \throws error bad_input: an empty
/// world, or one above 32,767 ranks
template <class Factory>
Report verify(int world, int root, const Factory& make, const VerifyOptions& options = {}) {
    refuse_bad_shape(Shape{world, 0, root});
    if (world > detail::ContributionSets::most_ranks)
        refuse_input(
            {"world is ", world, ", expected at most ", detail::ContributionSets::most_ranks, " ranks to verify"});
    Report report;
    detail::verify_program(detail::forget_type(world, root, make), options, report);
    return report;
}

/// As above, for a schedule type whose only member is its shape.
template <collective_schedule Schedule>
Report verify(int world, int root = 0, const VerifyOptions& options = {}) {
    return verify(
        world, root, [](const Shape& shape) { return Schedule{shape}; }, options);
}

} // namespace schedule

UNISONO_NAMESPACE_END
