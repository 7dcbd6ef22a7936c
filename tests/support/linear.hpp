// A linear model with its loss. The including file has Unisono's headers or its module before.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace test {

/// y = w . x, with the mean of (y - 1)^2 / 2.
struct Linear {
    std::vector<float> weights, gradient;

    explicit Linear(std::size_t size = 8) : weights(size), gradient(size) {}
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    template <class Batch>
    double operator()(const Batch& batch, unisono::Pass&) {
        double loss = 0;
        const auto rows = static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float difference = -1;
            for (std::size_t i = 0; i < weights.size(); ++i) difference += weights[i] * x[i];
            loss += 0.5 * static_cast<double>(difference * difference / rows);
            for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] += difference * x[i] / rows;
        }
        return loss;
    }
};

} // namespace test
