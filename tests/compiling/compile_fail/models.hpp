#pragma once

// Models of programs that must not compile for another reason.

#include "unisono/data/data.hpp"
#include "unisono/model/pass.hpp"

#include <span>
#include <vector>

/// For rows of floats.
struct RowModel {
    std::vector<float> weights = std::vector<float>(2), gradient = std::vector<float>(2);
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }
    double operator()(const unisono::RowBatch<float>&, unisono::Pass&) { return 0; }
};

/// One parameter. Its batch is a number.
struct NumberModel {
    float weight = 0, gradient = 0;
    std::span<float> parameters() { return {&weight, 1}; }
    std::span<float> gradients() { return {&gradient, 1}; }
    double operator()(int, unisono::Pass&) { return 0; }
};
