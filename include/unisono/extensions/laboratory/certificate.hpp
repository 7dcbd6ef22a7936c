#pragma once

/// \file
/// Certificates: what a schedule promises for one world and root, with its steps, as JSON lines. A
/// program that shares no code with this library can check them: tools/check_certificate.py does.
/// docs/schedules.md describes the lines.

#include "unisono/extensions/laboratory/verify/program.hpp"
#include "unisono/schedule/families.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace schedule {
namespace detail {

/// Runs all ranks of a schedule on sums as text: "((0+1)+2)" is the sum of rank 0's and rank 1's
/// contributions, and rank 2's. The first operand is the one with the lowest rank.
class WrittenSums {
public:
    explicit WrittenSums(const Program& program) : program_(program) {
        for (int rank = 0; rank < program.world; ++rank)
            for (std::uint32_t block = 0; block < program.blocks; ++block) {
                const Sum own{rank, std::to_string(rank)};
                if (program.has_input(rank, block)) memory_[{rank, Buffer::input, block}] = own;
                if (program.collective == Collective::broadcast && rank == program.root)
                    memory_[{rank, Buffer::output, block}] = own;
            }
        program.mapped ? run_mapped() : run_messages();
    }
    [[nodiscard]] std::string at(int rank, std::uint32_t block) const {
        const auto found = memory_.find({rank, Buffer::output, block});
        return found == memory_.end() ? std::string() : found->second.text;
    }

private:
    struct Sum {
        int lowest = 0; ///< of its ranks
        std::string text = {};
    };
    using Sums = std::vector<Sum>;

    static Sum add(const Sum& a, const Sum& b) {
        const Sum &first = a.lowest < b.lowest ? a : b, &second = a.lowest < b.lowest ? b : a;
        return {first.lowest, concat({"(", first.text, "+", second.text, ")"})};
    }
    Sum& cell(int rank, const Blocks& range, std::uint32_t i) {
        const std::uint32_t posted = range.where == Buffer::posted ? 1'000'000 * (posts_ % 2) : 0;
        return memory_[{rank, range.where,
                        posted + (range.where == Buffer::scratch ? range.slot + range.ahead + i : range.first + i)}];
    }
    Sums read(int rank, const Blocks& range) {
        Sums all;
        for (std::uint32_t i = 0; i < range.count; ++i) all.push_back(cell(rank, range, i));
        return all;
    }
    void write(int rank, const Blocks& range, const Sums& sums) {
        for (std::uint32_t i = 0; i < range.count; ++i) cell(rank, range, i) = sums[i];
    }
    void combine_ranks(int rank, const Step& step) {
        Sum sum;
        for (int from = 0; from < program_.world; ++from) {
            const auto slot = step.source.slot + static_cast<std::uint32_t>(from < rank ? from : from - 1);
            const Sum value =
                from == rank ? cell(rank, step.source, 0) : cell(rank, scratch_blocks(step.source.first, 1, slot), 0);
            sum = from == 0 ? value : add(sum, value);
        }
        write(rank, step.target, {sum});
    }
    void run_messages() {
        std::vector<Step> steps;
        for (std::uint32_t round = 0; round < program_.most_rounds(); ++round) {
            std::map<std::tuple<int, int, int>, Sums> messages;
            std::vector<std::pair<int, Step>> receives;
            for (int rank = 0; rank < program_.world; ++rank) {
                if (round >= program_.at(rank).rounds) continue;
                program_.steps_of(rank, round, steps);
                for (const Step& step : steps) {
                    if (step.kind == StepKind::copy) write(rank, step.target, read(rank, step.source));
                    else if (step.kind == StepKind::combine_ranks) combine_ranks(rank, step);
                    else if (step.kind == StepKind::send)
                        messages[{rank, step.peer, step.part}] = read(rank, step.source);
                    else receives.emplace_back(rank, step);
                }
            }
            for (const auto& [rank, step] : receives) {
                Sums sums = messages.at({step.peer, rank, step.part});
                for (std::uint32_t i = 0; step.kind == StepKind::receive_combine && i < step.target.count; ++i)
                    sums[i] = add(cell(rank, step.source, i), sums[i]);
                write(rank, step.target, sums);
            }
        }
    }
    /// Between two waits for all ranks, in any order of the ranks.
    void run_mapped() {
        std::vector<std::vector<Step>> left(program_.ranks.size());
        std::vector<std::size_t> next(program_.ranks.size());
        std::vector<Step> steps;
        for (int rank = 0; rank < program_.world; ++rank)
            for (std::uint32_t round = 0; round < program_.at(rank).rounds; ++round) {
                program_.steps_of(rank, round, steps);
                std::vector<Step>& all = left[static_cast<std::size_t>(rank)];
                all.insert(all.end(), steps.begin(), steps.end());
            }
        for (bool moved = true; std::exchange(moved, false); ++posts_)
            for (int rank = 0; rank < program_.world; ++rank) {
                const std::vector<Step>& all = left[static_cast<std::size_t>(rank)];
                for (std::size_t& at = next[static_cast<std::size_t>(rank)]; at < all.size(); moved = true) {
                    const Step& step = all[at++];
                    if (step.kind == StepKind::await) break;
                    run_mapped_step(rank, step);
                }
            }
    }
    void run_mapped_step(int rank, const Step& step) {
        if (step.kind == StepKind::copy) return write(rank, step.target, read(rank, step.source));
        if (step.kind == StepKind::copy_from_peer) {
            // A copy beside a flag was posted before the last wait.
            --posts_;
            const Sums sums = read(step.peer, step.source);
            ++posts_;
            return write(rank, step.target, sums);
        }
        if (step.kind == StepKind::post) {
            Blocks beside = step.source;
            beside.where = Buffer::posted;
            return write(rank, beside, read(rank, step.source));
        }
        --posts_;
        Sums sums = read(0, step.source);
        for (int from = 1; from < program_.world; ++from) {
            const Sums more = read(from, step.source);
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = add(sums[i], more[i]);
        }
        ++posts_;
        for (int to = 0; to < program_.world; ++to)
            if (step.peer == everyone || step.peer == to) write(to, step.target, sums);
    }

    const Program& program_;
    std::map<std::tuple<int, Buffer, std::uint32_t>, Sum> memory_;
    std::uint32_t posts_ = 1; ///< the next post of the ranks
};

/// ["output", 2, 3, 0, 0]: blocks 2 to 4. The last two are the slot and the blocks ahead.
inline std::string certified(const Blocks& range) {
    return concat({"[\"", name_of(range.where), "\", ", range.first, ", ", range.count, ", ", range.slot, ", ",
                   range.ahead, "]"});
}
/// The kind, the peer, the source, the target and the part; -1, null or 0 for what it has not.
inline std::string certified(const Step& step) {
    const bool is_posted = step.kind == StepKind::post && step.source.count != 0;
    const bool has_source =
        is_posted || (step.kind != StepKind::receive && step.kind != StepKind::post && step.kind != StepKind::await);
    const bool has_target = step.kind != StepKind::send && step.kind != StepKind::post && step.kind != StepKind::await;
    return concat({"[\"", name_of(step.kind), "\", ", step.peer, ", ", has_source ? certified(step.source) : "null",
                   ", ", has_target ? certified(step.target) : "null", ", ", int{step.part}, "]"});
}

inline std::string certificate_of(const Program& program) {
    std::string text = concat({R"({"schedule": ")", program.name, R"(", "collective": ")", name_of(program.collective),
                               R"(", "world": )", program.world, R"(, "root": )", program.root, R"(, "blocks": )",
                               program.blocks, R"(, "channel_depth": )", program.at(0).channel_depth, "}\n"});
    std::vector<Step> steps;
    for (int rank = 0; rank < program.world; ++rank) {
        const Program::Rank& one = program.at(rank);
        text += concat({R"({"rank": )", rank, R"(, "scratch_slots": )", one.scratch_slots, R"(, "cost": {"messages": )",
                        one.cost.messages, R"(, "blocks_sent": )", one.cost.blocks_sent, R"(, "blocks_combined": )",
                        one.cost.blocks_combined, R"(, "rounds": )", one.cost.rounds, R"(}, "rounds": [)"});
        for (std::uint32_t round = 0; round < one.rounds; ++round) {
            program.steps_of(rank, round, steps);
            text += round == 0 ? "[" : ", [";
            for (std::size_t i = 0; i < steps.size(); ++i) text += (i == 0 ? "" : ", ") + certified(steps[i]);
            text += "]";
        }
        text += "]}\n";
    }
    const WrittenSums sums(program);
    for (std::uint32_t block = 0; block < program.blocks; ++block) {
        std::map<std::string, std::string> ranks; // by sum
        for (int rank = 0; rank < program.world; ++rank)
            if (program.has_output(rank, block)) {
                std::string& all = ranks[sums.at(rank, block)];
                all += (all.empty() ? "" : ", ") + std::to_string(rank);
            }
        for (const auto& [sum, those] : ranks)
            text += concat({R"({"block": )", block, R"(, "sum": ")", sum, R"(", "ranks": [)", those, "]}\n"});
    }
    return text;
}

} // namespace detail

/// The certificate of a family's schedule for a world and a root. \throws error bad_input: an empty
/// world, or a root that is not in it
template <Collective What, schedule_family Family>
    requires offers<Family, What>
std::string certificate(int world, int root = 0, const Family& family = {}) {
    refuse_bad_shape(Shape{world, 0, root});
    const auto make = [&](const Shape& shape) { return schedule_of<What>(family, shape); };
    return detail::certificate_of(detail::forget_type(world, root, make));
}

} // namespace schedule
UNISONO_NAMESPACE_END
