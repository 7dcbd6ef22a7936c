#pragma once

// An elastic training on many simulated ranks, some of which die.

#include <cstdint>
#include <string>
#include <vector>

/// The training, and how many ranks die.
struct ElasticJob {
    int ranks = 4096;
    std::vector<int> deaths = {0};
    int together = 1; ///< neighbours that die at one time, as the ranks of a host do
    int updates = 20;
    std::int64_t compute_us = 100'000; ///< virtual time of a rank for the gradient of a sample
    std::uint64_t seed = 1;
    std::string cluster; ///< a file of un::ClusterModel::save; empty: equal links
};

/// Prints a row for each number of deaths. Returns false if a training does not end, or ends with
/// other bits than on one rank.
bool train(const ElasticJob& training);
