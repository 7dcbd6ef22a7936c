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
/// - `cost()` equals the counted cost.
///
/// Cost: about 50 ns per step and block; memory for world x blocks values. For tests, not for
/// programs.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/channels.hpp"
#include "unisono/extensions/laboratory/verify/mapped.hpp"
#include "unisono/extensions/laboratory/verify/messages.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The assumptions of a verification.
struct VerifyOptions {
    std::uint32_t lanes = 1; ///< lanes that share the channels between two ranks; more than one is for small worlds
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
    if (!program.mapped && report.violations.size() == before) prove_channels(program, options.lanes, report);
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
