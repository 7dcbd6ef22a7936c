// The program's view of the training. It has no exceptions, and nothing of the library.
#pragma once

#include <span>
#include <string>
#include <vector>

/// Fits y = w . x. Its file is compiled without exceptions, as the rest of the program.
struct Line {
    std::vector<float> weights = std::vector<float>(2), gradient = std::vector<float>(2);
    double add_gradient(std::span<const float> rows); // of rows of x0, x1, y; returns the mean loss
};

struct Trained {
    std::vector<float> weights;
    int status = 0; ///< 0, or the library's error code
    std::string message;
};

Trained train(const std::vector<float>& rows, int ranks, double learning_rate);
