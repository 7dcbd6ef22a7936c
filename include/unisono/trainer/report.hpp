#pragma once

/// \file
/// Reports of updates and trainings: the same numbers on every rank.

#include "unisono/sampler/sampler.hpp"
#include "unisono/update/staleness.hpp"

#include <cstdint>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {
/// Tokens without fractions; at most 2^62, which no training counts.
constexpr std::int64_t whole_tokens(double tokens) {
    return tokens < 0x1p62 ? static_cast<std::int64_t>(tokens) : std::int64_t{1} << 62;
}
} // namespace detail

/// One update, as all ranks saw it.
struct UpdateReport {
    bool committed = false; ///< parameters changed; otherwise nothing did
    /// The update used only this rank's gradients (LocalSteps, Asynchronous, ...): all numbers are
    /// this rank's.
    bool alone = false;
    double loss = 0; ///< over all micro-batches of all ranks, weighted as the gradients are
    double learning_rate = 0;
    double gradient_norm = 0; ///< before clipping, if the clipping policy measures it (ClipByNorm); else 0
    double loss_scale = 1;    ///< loss scale of this update's passes
    int offender_rank = -1;   ///< if the guard left the update out: the lowest rank with a gradient that is not finite
    /// Its first such parameter; -1: its loss. If offender_rank is -1: the first parameter whose
    /// sum over all ranks is not finite.
    std::int64_t offender_parameter = -1;
    /// Updates committed so far, including this one; with servers and Hogwild, the updates of all
    /// workers.
    std::uint64_t number = 0;
    std::uint64_t staleness = 0; ///< updates between reading this gradient's parameters and applying it
    /// Clocks by which this worker was ahead of the slowest when it was answered or had updated.
    std::uint64_t ahead = 0;
    /// This worker's gradient was dropped, since enough others had arrived before it
    /// (BackupWorkers).
    bool late = false;
    /// Only in elastic worlds (elastic/): ranks were lost, and this update did not happen on this
    /// rank.
    bool world_changed = false;
    std::int64_t epoch = 0;
    std::int64_t micro_batches = 0; ///< micro-batches of all ranks; 0: no rank had data, and there was no update
    std::int64_t samples = 0;       ///< samples of all ranks, including repeated ones
    std::int64_t tokens = 0;        ///< tokens of all ranks, as the model counted them
};

/// The result of one epoch, over all ranks.
struct EpochReport {
    std::int64_t epoch = 0;
    double loss = 0;          ///< mean over the epoch's updates, each weighted by its samples
    std::int64_t updates = 0; ///< committed
    std::int64_t skipped = 0; ///< left out by the guard or without any weight, or dropped as too late
    std::int64_t samples = 0;
};

/// The result of `fit`, over all ranks.
struct FitReport {
    std::vector<EpochReport> epochs = {};
    Position position = {};   ///< where the next `fit` continues
    bool stopped = false;     ///< the observer of updates stopped the training
    Staleness staleness = {}; ///< staleness in this `fit`; empty if all ranks update together
};

/// A world among the successive worlds of an elastic job. Job 0: it is not elastic.
struct WorldEpoch {
    std::uint64_t job = 0; ///< a number that no other job has
    std::uint64_t epoch = 0;
};

/// The position of a training and its counters, as a checkpoint keeps them. The same on all ranks.
struct TrainingProgress {
    std::uint64_t updates = 0;  ///< committed
    Position position = {};     ///< where the next `fit` continues
    Epoch epoch = Epoch{0};     ///< epoch of the passes of `step`
    std::uint64_t seed = 0;     ///< FitOptions.seed of the last `fit`
    std::int64_t data_size = 0; ///< of the last `fit`; 0: none
    bool restored = false;      ///< restored from a checkpoint, and no `fit` since

    [[nodiscard]] TrainingProgress after(std::uint64_t committed) const {
        TrainingProgress now = *this;
        now.updates = committed;
        return now;
    }
    friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

UNISONO_NAMESPACE_END
