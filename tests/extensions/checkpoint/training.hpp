// One training in many ways, compiled once. Optimizer, sharding and events are chosen at run time.
#pragma once

#include "../../support/folder.hpp"
#include "unisono/core/error.hpp"
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/observe/hash_log.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace unisono_test {

namespace un = unisono;

/// The values of `Case::optimizer`. The optimizers have none to three arrays of state.
enum class Which { sgd, momentum, adam, amsgrad, adamw, adagrad, rmsprop };
inline constexpr Which every_optimizer[] = {Which::sgd,   Which::momentum, Which::adam,   Which::amsgrad,
                                            Which::adamw, Which::adagrad,  Which::rmsprop};

// 3 epochs of 4: training can save within an epoch.
inline constexpr std::uint64_t updates_in_all = 12;

struct Case {
    int ranks = 1;
    bool sharded = false;
    Which optimizer = Which::adam;
    std::string folder = {};
    un::CheckpointOptions checkpoints = {};

    bool resume = false;
    std::string name = {};          ///< of the checkpoint; empty: the newest
    std::uint64_t save_every = 0;   ///< updates between checkpoints
    std::uint64_t stop_after = 0;   ///< after this update of the whole training; 0: never
    std::uint64_t sampler_seed = 3; ///< must be the same on resume
    std::uint64_t seed = 5;
    std::size_t samples = 45;
    std::size_t inputs = 6;
    bool names_parameters = true;
    std::string note = {};
    std::function<void()> before_fit = {};
};

/// The result of a rank.
struct Outcome {
    un::StateHash hash = {};
    double buffer = 0;
    std::uint64_t updates = 0;
    bool resumed = false;
    un::Resumed from = {};
    std::vector<un::StateHash> history = {}; ///< after each update since the start of this run
    std::vector<std::string> saved = {};     ///< names
    std::string refused = {};                ///< error of `resume` or `save`, which end the run
    un::ErrorCode code = un::ErrorCode::none;
    bool untouched = false; ///< a failed resume changed nothing, and a new training began

    friend bool operator==(const Outcome& a, const Outcome& b) { return a.hash == b.hash && a.updates == b.updates; }
};

/// Trains on ranks that are threads. Calls `after_save(rank, name)` on each rank.
std::vector<Outcome> train(const Case& how, const std::function<void(int, const std::string&)>& after_save = {});

/// The state after each update of the undisturbed training.
const std::vector<un::StateHash>& undisturbed(Which optimizer);

} // namespace unisono_test
