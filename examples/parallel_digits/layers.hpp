// Layers of a small network in plain loops, for a model that is split over ranks.
#pragma once

#include "../digits/data.hpp"

#include <unisono/parallel.hpp>
#include <unisono/unisono.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parallel_digits {

namespace un = unisono;

/// Fully connected, with ReLU after it unless it is the last layer.
struct Dense {
    std::size_t in, out;
    bool last = false;

    [[nodiscard]] std::size_t inputs() const { return in; }
    [[nodiscard]] std::size_t outputs() const { return out; }
    [[nodiscard]] std::size_t parameters() const { return (in + 1) * out; }

    /// The same numbers on any rank.
    void initialise(std::span<float> values) const {
        const std::vector<float> random = un::torch_rand(in * 31 + out, in * out);
        const float scale = std::sqrt(6.0f / static_cast<float>(in));
        for (std::size_t i = 0; i < random.size(); ++i) values[i] = scale * (2 * random[i] - 1);
        std::fill(values.begin() + static_cast<std::ptrdiff_t>(in * out), values.end(), 0.0f);
    }
    void forward(un::LayerForward<float>& call) const {
        for (std::size_t s = 0; s < call.samples; ++s) {
            float* const y = call.output.data() + s * out;
            std::copy_n(call.parameters.data() + in * out, out, y);
            for (std::size_t i = 0; i < in; ++i) { // the weights of the first input come first
                const float x = call.input[s * in + i];
                const float* const w = call.parameters.data() + i * out;
                for (std::size_t o = 0; o < out; ++o) y[o] += x * w[o];
            }
            for (std::size_t o = 0; !last && o < out; ++o) y[o] = std::max(y[o], 0.0f);
        }
    }
    void backward(un::LayerBackward<float>& call) const {
        std::vector<float> slope(out);
        for (std::size_t s = 0; s < call.samples; ++s) {
            for (std::size_t o = 0; o < out; ++o)
                slope[o] = last || call.output[s * out + o] > 0 ? call.output_gradient[s * out + o] : 0.0f;
            float* const bias = call.gradient.data() + in * out;
            for (std::size_t o = 0; o < out; ++o) bias[o] += slope[o];
            for (std::size_t i = 0; i < in; ++i) {
                const float x = call.input[s * in + i];
                float* const g = call.gradient.data() + i * out;
                const float* const w = call.parameters.data() + i * out;
                float sum = 0;
                for (std::size_t o = 0; o < out; ++o) {
                    g[o] += x * slope[o];
                    sum += w[o] * slope[o];
                }
                if (!call.input_gradient.empty()) call.input_gradient[s * in + i] = sum;
            }
        }
    }
};

/// Softmax and cross-entropy, the mean over a micro-batch.
struct CrossEntropy {
    template <class MicroBatch>
    double operator()(std::span<const float> outputs, const MicroBatch& batch, std::span<float> gradients) const {
        const std::size_t rows = batch.rows(), kinds = outputs.size() / rows;
        double loss = 0;
        for (std::size_t row = 0; row < rows; ++row) {
            const auto y = outputs.subspan(row * kinds, kinds);
            const auto right = static_cast<std::size_t>(batch.labels[row]);
            const float largest = *std::max_element(y.begin(), y.end());
            float sum = 0;
            for (const float one : y) sum += std::exp(one - largest);
            for (std::size_t k = 0; k < kinds; ++k)
                gradients[row * kinds + k] =
                    (std::exp(y[k] - largest) / sum - (k == right ? 1.0f : 0.0f)) / static_cast<float>(rows);
            loss += static_cast<double>(std::log(sum) - (y[right] - largest)) / static_cast<double>(rows);
        }
        return loss;
    }
};

/// 64 pixels, `depth` hidden layers, 10 digits.
inline un::Layers<float> layers(std::size_t hidden, std::size_t depth) {
    un::Layers<float> all{Dense{digits::pixels, hidden}};
    for (std::size_t l = 1; l < depth; ++l) all.add(Dense{hidden, hidden});
    all.add(Dense{hidden, digits::kinds, true});
    return all;
}

} // namespace parallel_digits
