#pragma once

/// \file
/// One call of `fit` over an elastic world, on one rank: a sequence of calls of `fit` over groups.

#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/fit.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
