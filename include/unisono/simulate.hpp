#pragma once

/// \file
/// Programs and collectives in virtual time: see extensions/simulated/simulated.hpp. Not part of
/// the umbrella.

#include "unisono/core/text.hpp"
#include "unisono/extensions/simulated/simulated.hpp"
#include "unisono/group/run.hpp"

#include <memory>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Statistics of a simulated world.
struct SimulationReport {
    nanoseconds time = 0; ///< when the last rank finished
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t digest = 0; ///< hash of all events in order: equal for equal seeds
    std::vector<SimulatedRank> ranks;
    friend bool operator==(const SimulationReport&, const SimulationReport&) = default;
};

namespace detail {

inline SimulationReport report_of(const SimulatedWorld& world) {
    SimulationReport report{
        .time = 0, .messages = world.messages(), .bytes = world.bytes(), .digest = world.digest(), .ranks = {}};
    report.ranks.reserve(static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank) {
        report.ranks.push_back(world.statistics(rank));
        report.time = std::max(report.time, report.ranks.back().finished_at);
    }
    return report;
}

} // namespace detail

/// Runs `body(world)`, where `world` is a `Group<Simulated>&`, on `ranks` simulated ranks. Each
/// rank has a thread; one thread runs at a time. Ends and throws as `run`; a rank that crashes
/// because of the options just ends. Deadlines are virtual.
///
/// Determinism: results, times and trace depend on the options and the body alone, if the body
/// depends only on its rank and its world. Errors: as `run`, and bad_input for invalid options.
template <class Body>
SimulationReport simulate(int ranks, const SimulationOptions& options, Body body, const RunOptions& run_options = {}) {
    detail::check_run(ranks, run_options);
    const auto world = std::make_shared<detail::SimulatedWorld>(ranks, options);
    try {
        detail::run_world<Simulated>(world, body, run_options);
    } catch (const SimulatedCrash&) { // the only rank
    }
    return detail::report_of(*world);
}

/// A world whose ranks are all driven by one thread, for collectives on thousands of ranks.
/// Operations are started on all ranks, and then driven to their end. A blocking call on a group
/// would wait for ranks that no thread drives, and end with a fault.
///
///     Simulation simulation(4096, {.link = {.latency_ns = 2'000, .bytes_per_second = 12.5e9}});
///     simulation.run([&](Group<Simulated>& group) {
///         return start_all_reduce(group, data[group.rank()]);
///     });
///     simulation.report().time
///
/// Cost: 6 KiB per rank; 100 bytes for each message in flight, and the message itself.
class Simulation {
public:
    explicit Simulation(int ranks, const SimulationOptions& options = {}) {
        if (ranks < 1 || ranks > 1'000'000) refuse_input({"a simulated world has 1 to 1000000 ranks, found ", ranks});
        world_ = std::make_shared<detail::SimulatedWorld>(ranks, options, detail::SimulatedWorld::Drive::caller);
        groups_.reserve(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) groups_.emplace_back(Simulated(world_, rank));
    }

    [[nodiscard]] int size() const { return world_->size(); }
    [[nodiscard]] Group<Simulated>& group(int rank) { return groups_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] nanoseconds now() const { return world_->clock(); }
    [[nodiscard]] SimulationReport report() const { return detail::report_of(*world_); }

    /// Calls `start(group)`, which returns an `Operation`, on every rank in turn; then drives all
    /// operations to their end.
    template <class Start>
    void run(Start start) {
        std::vector<Operation> operations;
        operations.reserve(groups_.size());
        for (Group<Simulated>& group : groups_) operations.push_back(start(group));
        run_until_done(operations);
    }

    /// Drives one operation per rank, in rank order, to its end. Throws the world's first fault.
    /// Throws timeout if an operation is not done when the group's timeout has passed, or when no
    /// event can happen any more. Does not wait for ranks that crash.
    void run_until_done(std::span<Operation> operations) {
        check_one_a_rank(operations.size());
        drive([&](std::size_t rank) -> Operation* { return operations[rank].poll() ? nullptr : &operations[rank]; });
    }

    /// As above, for any number of operations per rank.
    void run_until_done(std::span<std::vector<Operation>> operations) {
        check_one_a_rank(operations.size());
        std::vector<std::size_t> done(operations.size());
        drive([&](std::size_t rank) -> Operation* {
            std::vector<Operation>& all = operations[rank];
            while (done[rank] < all.size() && all[done[rank]].poll()) ++done[rank];
            return done[rank] == all.size() ? nullptr : &all[done[rank]];
        });
    }

private:
    void check_one_a_rank(std::size_t found) const {
        if (found != groups_.size())
            refuse_input({"run_until_done: found operations of ", found, " ranks, expected ", groups_.size()});
    }

    /// `poll(rank)` drives a rank and returns an unfinished operation, if there is one.
    template <class Poll>
    void drive(Poll poll) {
        std::vector<char> done(groups_.size(), 0);
        std::size_t left = groups_.size();
        const auto look = [&](std::size_t rank) {
            const bool crashed = world_->statistics(static_cast<int>(rank)).crashed;
            if (done[rank] != 0 || (!crashed && poll(rank) != nullptr)) return;
            done[rank] = 1;
            --left;
        };
        const nanoseconds until = deadline_after(now(), groups_[0].timeout());
        for (std::size_t rank = 0; rank < groups_.size(); ++rank) look(rank);
        while (left != 0) {
            const int rank = world_->next_ready(until);
            if (rank < 0) return give_up(poll, done, until);
            look(static_cast<std::size_t>(rank));
        }
    }

    /// Called when no event can happen any more: the first rank that still waits finds the cause.
    template <class Poll>
    void give_up(Poll& poll, const std::vector<char>& done, nanoseconds until) {
        std::size_t rank = 0;
        while (done[rank] != 0) ++rank;
        Operation* const unfinished = poll(rank);
        const nanoseconds left = until == never ? never : std::max<nanoseconds>(1, until - now());
        if (unfinished != nullptr) unfinished->wait(std::chrono::nanoseconds(left));
        UNISONO_ASSERT(false, "an operation ended although nothing happened");
    }

    std::shared_ptr<detail::SimulatedWorld> world_;
    std::vector<Group<Simulated>> groups_;
};

UNISONO_NAMESPACE_END
