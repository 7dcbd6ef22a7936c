#pragma once

// An elastic training on many simulated ranks, of which some die.

#include <cstdint>
#include <string>
#include <vector>

/// What is trained, and how many die.
struct ElasticJob {
    int ranks = 4096;
    std::vector<int> deaths = {0};
    int together = 1; ///< neighbours that die at one time, as the ranks of a host do
    int updates = 20;
    std::int64_t compute_us = 100'000; ///< of a rank for the gradient of a sample, in virtual time
    std::uint64_t seed = 1;
    std::string cluster; ///< a file of un::ClusterModel::save; empty: links that are alike
};

/// Prints a row for each number of deaths; false if a training ended with other bits than that of one rank, or not at all.
bool train(const ElasticJob& training);
