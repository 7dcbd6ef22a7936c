// What the program sees of the training: nothing that throws, nothing of the library.
#pragma once

#include <span>
#include <string>
#include <vector>

/// Fits y = w . x; in a file of its own, compiled without exceptions like the rest of the program.
struct Line {
    std::vector<float> weights = std::vector<float>(2), gradient = std::vector<float>(2);
    double add_gradient(std::span<const float> rows); // of rows of x0, x1, y; returns the mean loss
};

struct Trained {
    std::vector<float> weights;
    int status = 0; ///< 0, or the number of the library's error
    std::string message;
};

Trained train(const std::vector<float>& rows, int ranks, double learning_rate);
