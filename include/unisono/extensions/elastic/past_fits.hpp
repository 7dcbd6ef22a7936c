#pragma once

/// \file
/// The calls of `fit` that the ranks of an elastic world have begun. A rank that is added runs the
/// program from its start, and each call that the others have finished returns at once. The program
/// decides by the trainer's position and by reports. So until this rank has come to the call that
/// the others are in, it sees the positions and reports that they saw: its loop makes their calls.

#include "unisono/collective/rooted.hpp"
#include "unisono/core/list.hpp"
#include "unisono/extensions/elastic/state.hpp"
#include "unisono/trainer/report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class PastFits {
public:
    /// The calls that have begun, with the one in progress.
    [[nodiscard]] std::size_t size() const { return all_.size(); }
    /// The progress with which call `number`, from 1, began.
    [[nodiscard]] const TrainingProgress& before(std::uint64_t number) const { return at(number).before; }
    /// False if the call is in progress, or was refused.
    [[nodiscard]] bool has_ended(std::uint64_t number) const { return number <= size() && at(number).has_ended; }
    /// The report of a call that has ended.
    [[nodiscard]] FitReport report(std::uint64_t number) const {
        return {.epochs = at(number).epochs, .position = at(number).after, .stopped = at(number).stopped};
    }

    /// Call `number` begins on this rank, which knows of it already if it was added later.
    void begin(std::uint64_t number, const TrainingProgress& before) {
        if (number > size()) all_.resize(number, {.before = before});
    }
    void end(std::uint64_t number, const FitReport& report) {
        begin(number, {});
        One& one = all_[number - 1];
        one.epochs = report.epochs;
        one.after = report.position;
        one.stopped = report.stopped;
        one.has_ended = true;
    }

    /// Gives the calls that `source` knows of to the ranks that know of fewer ends: ranks that are
    /// new here, and those that were interrupted at the end of a call. True on the ranks that are
    /// new here, if they got any. Collective. Cost: 8 bytes per rank, and a broadcast if needed.
    template <class World>
    bool share(World& world, int source, bool new_here) {
        if (world.size() == 1) return false;
        const auto ended = static_cast<std::uint64_t>(
            std::count_if(all_.begin(), all_.end(), [](const One& one) { return one.has_ended; }));
        const std::array<std::uint64_t, 1> mine = {new_here ? 0 : 1 + ended};
        List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
        gather_words(world, mine, all);
        const std::uint64_t most = all[static_cast<std::size_t>(source)];
        if (std::none_of(all.begin(), all.end(), [&](std::uint64_t one) { return one < most; })) return false;
        StateRecord record;
        if (world.rank() == source) write(record);
        std::array<std::uint64_t, 1> bytes = {record.bytes().size()};
        broadcast(world, bytes, source);
        record.bytes().resize(bytes[0]);
        broadcast(world, std::span<std::uint8_t>(record.bytes()), source);
        if (mine[0] < most) read(record);
        return new_here && size() > 0;
    }

private:
    struct One {
        TrainingProgress before = {};
        Position after = {};
        bool stopped = false, has_ended = false;
        std::vector<EpochReport> epochs = {};
    };
    [[nodiscard]] const One& at(std::uint64_t number) const { return all_[number - 1]; }

    void write(StateRecord& record) const {
        record.put_one(std::uint64_t{size()});
        for (const One& one : all_) {
            record.put_one(one.before);
            record.put_one(one.after);
            record.put_one(std::uint64_t{one.stopped});
            record.put_one(std::uint64_t{one.has_ended});
            record.put_one(std::uint64_t{one.epochs.size()});
            record.put(std::span<const EpochReport>(one.epochs));
        }
    }
    void read(StateRecord& record) {
        all_.assign(record.take_one<std::uint64_t>(), {});
        for (One& one : all_) {
            one.before = record.take_one<TrainingProgress>();
            one.after = record.take_one<Position>();
            one.stopped = record.take_one<std::uint64_t>() != 0;
            one.has_ended = record.take_one<std::uint64_t>() != 0;
            one.epochs.resize(record.take_one<std::uint64_t>());
            record.take(std::span<EpochReport>(one.epochs));
        }
    }

    std::vector<One> all_;
};

} // namespace detail
UNISONO_NAMESPACE_END
