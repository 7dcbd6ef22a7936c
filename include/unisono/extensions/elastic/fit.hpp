#pragma once

/// \file
/// One call of `fit` over an elastic world, on one rank: a sequence of calls of `fit` over groups;
/// and the calls that the ranks have begun.
///
/// A rank that is added runs the program from its start, and each call that the others have
/// finished returns at once. The program decides by the trainer's position and by reports. So until
/// this rank has come to the call that the others are in, it sees the positions and reports that
/// they saw: its loop makes their calls.

#include "unisono/core/list.hpp"
#include "unisono/extensions/elastic/state.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/fit.hpp"
#include "unisono/trainer/report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
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
        record.share(world, source);
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
            record.put_one(one.stopped);
            record.put_one(one.has_ended);
            record.put_list(one.epochs);
        }
    }
    void read(StateRecord& record) {
        all_.assign(record.take_length(sizeof(TrainingProgress)), {});
        for (One& one : all_) {
            one.before = record.take_one<TrainingProgress>();
            one.after = record.take_one<Position>();
            one.stopped = record.take_one<bool>();
            one.has_ended = record.take_one<bool>();
            record.take_list(one.epochs);
        }
    }

    std::vector<One> all_;
};

/// `Trainer`: that of trainer.hpp, whose state this object updates.
template <class Trainer, class Data, class OnUpdate>
class ElasticFit {
public:
    ElasticFit(Trainer& trainer, Data& data, const FitOptions& options, OnUpdate& on_update)
        : of_(trainer), state_(trainer.state_), data_(data), options_(options), on_update_(on_update),
          number_(++trainer.begun_fits_), changes_(trainer.world_->changes().size()),
          others_have_begun_(state_.fit_end >= 0) {
        if (options.start) start_ = *options.start;
    }

    FitReport run() {
        of_.world_->set_complete(false);
        of_.missed_ = false;
        if (state_.fits < number_) { // else other ranks have finished this call
            of_.past_.begin(number_, of_.progress());
            of_.repeats_ = false;
            of_.remember();
            try {
                of_.surviving([&] { in_this_world(); });
            } catch (...) {
                state_.fit_end = -1;
                if (of_.inner_) of_.remember(); // drops a start that was refused
                throw;
            }
            if (state_.fits < number_) { // else this rank has got the state of one that has finished
                state_.fits = number_;
                ++state_.passes;
            }
            state_.fit_end = -1;
        }
        of_.world_->set_complete(told_to_stop_ || !state_.sums.stopped);
        if (of_.past_.has_ended(number_)) return of_.past_.report(number_); // others have ended it first
        FitReport mine = report();
        of_.past_.end(number_, mine);
        return mine;
    }

private:
    static constexpr bool observed = !std::is_same_v<OnUpdate, IgnoreUpdates>;

    [[nodiscard]] FitReport report() const {
        if (undisturbed_ && !disturbed()) return *undisturbed_;
        return {.epochs = state_.sums.epochs, .position = state_.progress.position, .stopped = state_.sums.stopped};
    }
    [[nodiscard]] bool disturbed() const { return others_have_begun_ || of_.world_->changes().size() != changes_; }
    [[nodiscard]] bool tell(const UpdateReport& update) {
        const Flag observes(of_.observes_);
        return goes_on(on_update_, update);
    }
    void in_this_world() {
        if constexpr (observed)
            if (std::exchange(of_.missed_, false))
                told_to_stop_ = !telling_all(of_.world_->group(), "Trainer::fit", [&] { return tell(state_.last); });
        if (state_.fits >= number_) return; // other ranks have finished it
        FitOptions rest = options_;
        // The call begins: for the first time, or after a return to a snapshot from before it.
        if (state_.fit_end < 0) {
            state_.sums = {};
            if (options_.start) {
                state_.progress.position = start_;
                state_.progress.restored = false;
            }
            const std::int64_t first = state_.progress.position.epoch.number();
            state_.fit_end = first + std::min(options_.epochs, std::numeric_limits<std::int64_t>::max() - first);
        } else rest.start = {};
        rest.epochs = state_.fit_end - state_.progress.position.epoch.number();
        if (!state_.sums.stopped && (rest.epochs > 0 || !disturbed())) {
            undisturbed_ = of_.inner_->fit(data_, rest, [&](const UpdateReport& update) { return note(update); });
            of_.remember();
            state_.sums.stopped = state_.sums.stopped || undisturbed_->stopped;
        }
        if constexpr (Trainer::has_owners) {
            state_.fits = number_;
            state_.fit_end = -1;
            of_.confirm_snapshot();
        }
    }
    /// Called after each update. Returns true if the training continues.
    bool note(const UpdateReport& update) {
        state_.sums.add(update);
        state_.last = update;
        of_.commit();
        if constexpr (observed) told_to_stop_ = !tell(update);
        state_.sums.stopped = told_to_stop_;
        if (told_to_stop_) return false;
        if constexpr (Trainer::has_owners)
            if (update.committed && update.number % static_cast<std::uint64_t>(of_.every()) == 0)
                of_.copy_slices(false);
        of_.world_->take_in_applicants();
        return true;
    }

    Trainer& of_;
    decltype(Trainer::state_)& state_;
    Data& data_;
    const FitOptions& options_;
    OnUpdate& on_update_;
    std::uint64_t number_; ///< number of this call
    std::size_t changes_;  ///< changes of the world before this call
    bool others_have_begun_;
    bool told_to_stop_ = false; ///< the observer has stopped the training, and not a signal
    Position start_ = {};
    std::optional<FitReport> undisturbed_;
};

} // namespace detail
UNISONO_NAMESPACE_END
