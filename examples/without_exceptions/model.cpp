// Compiled with -fno-exceptions -fno-rtti.
#include "training.hpp"

double Line::add_gradient(std::span<const float> rows) {
    const auto count = static_cast<float>(rows.size() / 3);
    double loss = 0;
    for (std::size_t i = 0; i + 3 <= rows.size(); i += 3) {
        const float error = weights[0] * rows[i] + weights[1] * rows[i + 1] - rows[i + 2];
        loss += 0.5 * static_cast<double>(error * error / count);
        gradient[0] += error * rows[i] / count;
        gradient[1] += error * rows[i + 1] / count;
    }
    return loss;
}
