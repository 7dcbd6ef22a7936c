#pragma once

/// \file
/// Checkpoints: the state of a training in files, from which it continues on any number of ranks.
///
/// A checkpoint contains parameters and buffers (those of rank 0, as `evaluate` uses them), the
/// optimizer's state, the number of updates, the position (sampler's seed, epoch, samples
/// consumed), the seed of the random streams (a stream is a function of the seed, epoch, update,
/// replica or sample, and has no state), the loss scale, and the grids of `Reproducible`. If ranks
/// make updates of their own, it contains each rank's optimizer state and the common state, as of a
/// synchronisation. It contains no gradients, which are not needed between updates. Clipping,
/// guards and schedules have no state; costs are measured again.
///
/// Laws
/// - A checkpoint exists as a whole or not at all, whichever process dies at any time: the last
///   complete one stays until a newer one is durable.
/// - All ranks write, and each number is written once. The contents do not depend on the time of
///   writing.
/// - Resuming checks everything before it uses anything: after an error the trainer is unchanged.
/// - With `Replicas` and `Reproducible`, a training that continues on any number of ranks, with any
///   sharding, computes the bits of a training that was never stopped.
///
/// Headers:
/// - checkpoints.hpp: `Checkpoints` saves and resumes a trainer, and keeps the newest checkpoints.
/// - safetensors.hpp: `TensorFile` and `write_tensors`, for files of tensors alone.
///
/// Not in the umbrella: include it where it is used. Deliberately absent: folders that not all
/// ranks see, compression, encryption, and files of older formats (there are none yet).

#include "unisono/sampler/sampler.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// Options of `Checkpoints`; the same on all ranks.
struct CheckpointOptions {
    /// Number of newest checkpoints that are kept; older ones are removed once a new one is
    /// durable.
    std::size_t keep = 3;
    bool background = false; ///< `save` copies the state, and a thread of each rank writes it
    /// Time for which that thread waits for the other ranks' files.
    std::chrono::nanoseconds patience = std::chrono::minutes(10);
    /// A link or a file with a checkpoint's name was not made by a training, and is left unchanged.
    /// False: rank 0 reports it once on standard error, and saving continues with another name.
    /// True: `save` throws refused.
    bool refuse_foreign = false;
    friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

/// Additions of `Checkpoints::save` to the state.
struct SaveOptions {
    /// In a loop of your own: stream.position(); default: the trainer's position.
    std::optional<Position> position = {};
    std::string note = {}; ///< any text in UTF-8, which `resume` returns; rank 0's text is saved
};

/// The checkpoint from which a training continued.
struct Resumed {
    std::string name = {}; ///< name of the checkpoint
    std::uint64_t updates = 0;
    Position position = {};
    int world = 1;             ///< number of ranks that wrote it
    std::uint64_t seed = 0;    ///< FitOptions.seed
    std::string note = {};     ///< SaveOptions.note
    std::string policies = {}; ///< the text of trainer.describe() on rank 0
};

UNISONO_NAMESPACE_END
