// What the main job prints.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

/// With --verbose: which samples each rank gets in each of an epoch's micro-batches, and the weights after each update.
/// A sampler's streams are pure functions, so that rank 0 can tell those of all.
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

/// Prints what was found; true if all that should be equal is.
bool report(const Options& options, const std::vector<std::vector<float>>& weights);
