// The command line of the main job.
#pragma once

#include "../launched.hpp"

#include <unisono/reducers.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// One training.
struct Configuration {
    int ranks = 2;
    std::int64_t acc_steps = 1;
    std::int64_t epochs = 2;
    std::int64_t batch_size = 4; ///< samples per micro-batch
    std::int64_t data_size = 8;  ///< the number of samples, and of values in each
    std::uint64_t seed = 0;
    /// Empty: the sampler for which accumulation on one rank equals several ranks.
    std::string sampler = {};
    std::string reducer = "native";
    bool shuffle = false;

    [[nodiscard]] std::string sampler_name() const {
        if (!sampler.empty()) return sampler;
        return ranks == 1 && acc_steps > 1 ? "interleaved" : "distributed";
    }
    /// With one replica per rank, the interleaved sampler is the distributed sampler.
    [[nodiscard]] un::InterleavedSampler sampler_policy() const {
        const bool interleaved = sampler_name() == "interleaved";
        return {.replicas = interleaved ? acc_steps : 1, .shuffle = shuffle, .seed = seed};
    }
    /// A parameter server changes which ranks update which slices, so it needs a trainer of another
    /// type. AnyReducer holds all other reducers.
    [[nodiscard]] std::variant<un::AnyReducer, un::ParameterServerReducer> reducer_policy() const {
        if (reducer == "parameter-server") return un::ParameterServerReducer{};
        return un::AnyReducer::named(reducer);
    }
};

struct Options {
    std::vector<Configuration> runs = {}; ///< one configuration, or two to compare
    bool verbose = false;
    bool json = false;
};

/// Returns what the command line asks for, or the exit status.
std::variant<Options, int> parse(int argc, char** argv, const Place& place);
