// One training in many ways, compiled once. What is sharded, how it is summed and on which ranks is
// chosen at run time.
#pragma once

#include "unisono/observe/hash_log.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unisono_test {

namespace un = unisono;

enum class Stage { replicated, state, gradients, parameters };
inline constexpr Stage every_stage[] = {Stage::replicated, Stage::state, Stage::gradients, Stage::parameters};
enum class Sums { reproducible, plain, by_ring, by_tree };

inline constexpr std::size_t parameter_count = 7 * 9 + 10 * 5 + 6;

struct Case {
    int ranks = 1;
    Stage stage = Stage::replicated;
    Sums sums = Sums::reproducible;
    bool processes = false; ///< or threads
    int replicas = 5;
    std::int64_t steps = 1; ///< accumulated
    bool drops = false;     ///< drops a short last window
    double max_norm = 1e9;
    double limit = 1e9; ///< of each element, after the norm is bounded
    bool says_ready = true;
    bool progresses = false; ///< the model advances operations in flight, in each layer
    bool low = false;        ///< 16-bit parameters and gradients, trained in float; sums on a grid
    double loss_scale = 1024;

    std::string folder = {};      ///< of checkpoints
    bool resume = false;          ///< from `folder`
    std::uint64_t stop_after = 0; ///< update at which training saves and stops; 0: never
};

struct Result {
    un::StateHash hash = {};
    std::uint64_t updates = 0;
    double loss = 0;     ///< of the last update
    double distance = 0; ///< mean, from `evaluate`
    std::array<float, 23> outputs = {};
    std::array<float, parameter_count> weights = {};

    /// Compares all bits but the weights, each of which may have its own owner.
    friend bool operator==(const Result& a, const Result& b) {
        return a.hash == b.hash && a.updates == b.updates && a.loss == b.loss && a.distance == b.distance &&
               a.outputs == b.outputs && a.weights == b.weights;
    }
};

/// Returns the result, which is the same on all ranks; otherwise the test fails.
Result train(const Case& how);

} // namespace unisono_test
