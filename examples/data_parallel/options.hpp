// The command line of the main job.
#pragma once

#include "../launched.hpp"

#include <unisono/reducer/any.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// One training.
struct Configuration {
    int ranks = 2;
    std::int64_t acc_steps = 1;
    std::int64_t epochs = 2;
    std::int64_t batch_size = 4; ///< samples of a micro-batch
    std::int64_t data_size = 8;  ///< samples, and numbers in each
    std::uint64_t seed = 0;
    std::string sampler = {}; ///< empty: whatever makes accumulation on one rank equal to as many ranks
    std::string reducer = "native";
    bool shuffle = false;

    [[nodiscard]] std::string sampler_name() const {
        if (!sampler.empty()) return sampler;
        return ranks == 1 && acc_steps > 1 ? "interleaved" : "distributed";
    }
    /// With one replica a rank, the interleaved sampler is the distributed one.
    [[nodiscard]] un::InterleavedSampler sampler_policy() const {
        const bool interleaved = sampler_name() == "interleaved";
        return {.replicas = interleaved ? acc_steps : 1, .shuffle = shuffle, .seed = seed};
    }
    /// Servers change who updates what, so they are another trainer; the others are one, for all of them.
    [[nodiscard]] std::variant<un::AnyReducer, un::ParameterServerReducer> reducer_policy() const {
        if (reducer == "parameter-server") return un::ParameterServerReducer{};
        return un::AnyReducer::named(reducer);
    }
};

struct Options {
    std::vector<Configuration> runs = {}; ///< one, or the two to compare
    bool verbose = false;
    bool json = false;
};

/// What the command line asks for, or the status to exit with.
std::variant<Options, int> parse(int argc, char** argv, const Place& place);
