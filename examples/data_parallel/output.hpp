// The output of the main program.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

/// With --verbose: which samples each rank gets in each micro-batch of an epoch, and the weights
/// after each update. A sampler's streams are pure functions, so rank 0 knows the streams of all
/// ranks.
class Narrator {
public:
    Narrator(const Options& options, const Configuration& run) : out_(options.json ? stderr : stdout), run_(run) {}

    void operator()(const un::UpdateReport& update, std::span<const float> weights);

private:
    void tell_micro_batches(int rank);

    std::FILE* out_;
    const Configuration& run_;
    std::int64_t epoch_ = -1;
};

/// Prints the results. Returns true if all weights that should be equal are equal.
bool report(const Options& options, const std::vector<std::vector<float>>& weights);
