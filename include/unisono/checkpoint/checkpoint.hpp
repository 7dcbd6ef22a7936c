#pragma once

/// \file
/// Checkpoints: the state of a training in files, from which it goes on, on as many ranks or on others.
///
/// What is kept: parameters and buffers (those of rank 0, as `evaluate` uses them), the optimizer's state, updates so far, the
/// position (sampler's seed, epoch, samples consumed), the seed of the random streams (they are counted, not stepped: a
/// function of the seed, epoch, update, replica or sample), the loss scale, the grids of `Reproducible`; of ranks that make updates of
/// their own, each one's optimizer state and what they have in common, where they meet. Gradients are no
/// state between updates; clipping, guards and schedules keep none; costs that were measured are measured anew.
///
/// Laws
/// - A checkpoint is there as a whole or not at all, whatever dies when: the last good one stays until a newer one is durable.
/// - All ranks write, each number is written once; what is in the files does not depend on when they were written.
/// - Resuming checks all of it before any of it is used: the trainer is as it was, or as the saved one was.
/// - With `Replicas` and `Reproducible` the training that goes on, on any number of ranks and with any sharding, comes to the
///   bits of the one that was never stopped.
///
/// | header          | what                                                                                        |
/// |-----------------|---------------------------------------------------------------------------------------------|
/// | checkpoints.hpp | `Checkpoints`: save, resume, keep some; needs a trainer                                     |
/// | safetensors.hpp | `TensorFile`, `write_tensors`: such files alone                                             |
///
/// Not in the umbrella: include it where it is used. Deliberately absent: folders that not all ranks see, compression,
/// encryption, and files of older formats (there are none yet).

#include "unisono/sampler/sampler.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// How `Checkpoints` keeps what it writes; the same on all ranks.
struct CheckpointOptions {
    std::size_t keep = 3;    ///< the newest so many; older ones are removed once a new one is durable
    bool background = false; ///< `save` copies the state, and a thread of each rank writes it
    std::chrono::nanoseconds patience = std::chrono::minutes(10); ///< of that thread, for the other ranks' files
    /// A link or a file that has a checkpoint's name was not made by a training, and is left alone. False: rank 0 says so once on standard
    /// error, and saving goes on beside it. True: `save` throws refused.
    bool refuse_foreign = false;
    friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

/// What `Checkpoints::save` writes beside the state.
struct SaveOptions {
    std::optional<Position> position = {}; ///< in a loop of the user's own: stream.position(); else the trainer's
    std::string note = {};                 ///< anything in UTF-8, given back by `resume`; rank 0's
};

/// What a training went on from.
struct Resumed {
    std::string name = {}; ///< of the checkpoint
    std::uint64_t updates = 0;
    Position position = {};
    int world = 1;             ///< the ranks that wrote it
    std::uint64_t seed = 0;    ///< FitOptions.seed
    std::string note = {};     ///< SaveOptions.note
    std::string policies = {}; ///< what trainer.describe() said on rank 0
};

UNISONO_NAMESPACE_END
