// A small neural network in plain loops: fully connected layers with ReLU between them, then
// softmax and cross-entropy. A trainer requires of a model only parameters and gradients as spans,
// and a call.
#pragma once

#include "unisono/unisono.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace un = unisono;

namespace digits {

using Batch = un::RowBatch<float, std::int32_t>;

// Both functions add in an order that the source fixes. Compilers can vectorise them without
// changing the order.

/// y += a x
inline void add_scaled(float a, std::span<const float> x, std::span<float> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += a * x[i];
}

inline float dot(std::span<const float> x, std::span<const float> y) {
    constexpr std::size_t lanes = 8;
    std::array<float, lanes> sums = {};
    std::size_t i = 0;
    for (; i + lanes <= x.size(); i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += x[i + lane] * y[i + lane];
    for (std::size_t lane = 0; i < x.size(); ++i, ++lane) sums[lane] += x[i] * y[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// Softmax and cross-entropy, the mean over a batch. `loss(outputs, batch, output_gradients)`
/// returns the loss and writes its gradient with respect to the outputs.
struct CrossEntropyLoss {
    double operator()(std::span<const float> outputs, const Batch& batch, std::span<float> output_gradients) const {
        const std::size_t width = outputs.size() / batch.rows();
        const float share = 1.0f / static_cast<float>(batch.rows());
        double loss = 0;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto output = outputs.subspan(i * width, width);
            const auto gradient = output_gradients.subspan(i * width, width);
            const auto right = static_cast<std::size_t>(batch.labels[i]);
            const float largest = *std::max_element(output.begin(), output.end());
            float sum = 0;
            for (std::size_t k = 0; k < width; ++k) sum += gradient[k] = std::exp(output[k] - largest);
            for (std::size_t k = 0; k < width; ++k) gradient[k] *= share / sum;
            gradient[right] -= share;
            loss += static_cast<double>(std::log(sum) - (output[right] - largest));
        }
        return loss / static_cast<double>(batch.rows());
    }
};

/// `Network({64, 32, 10})` has 64 inputs, a hidden layer of 32 and 10 outputs (logits). A layer
/// stores the weights of its first input first. Memory: parameters, gradients, and the activations
/// of the largest batch so far.
class Network {
public:
    /// Weights uniform in +-sqrt(6 / inputs) (He et al. 2015), biases zero. A seed gives the same
    /// weights on every machine.
    explicit Network(std::vector<std::size_t> widths, std::uint64_t seed = 0)
        : widths_(std::move(widths)), activations_(widths_.size()), activation_gradients_(widths_.size()) {
        if (widths_.size() < 2 || std::find(widths_.begin(), widths_.end(), 0) != widths_.end())
            un::refuse_input("Network: expected the widths of two layers or more, each at least 1");
        std::size_t count = 0;
        for (std::size_t l = 1; l < widths_.size(); ++l) count += (widths_[l - 1] + 1) * widths_[l];
        values_.resize(count);
        gradient_.resize(count);
        un::Mt19937 random(seed);
        for (std::size_t l = 1, at = 0; l < widths_.size(); ++l) {
            const auto add = [&](const char* what, std::size_t size, std::vector<std::size_t> shape) {
                parameters_.push_back(std::span(values_).subspan(at, size));
                gradients_.push_back(std::span(gradient_).subspan(at, size));
                names_.push_back("layer " + std::to_string(l) + " " + what);
                shapes_.push_back(std::move(shape));
                at += size;
            };
            add("weights", widths_[l - 1] * widths_[l], {widths_[l - 1], widths_[l]});
            add("biases", widths_[l], {widths_[l]});
            const float bound = std::sqrt(6.0f / static_cast<float>(widths_[l - 1]));
            un::torch_rand(random, weights(l));
            for (float& weight : weights(l)) weight = bound * (2 * weight - 1);
        }
    }
    Network(const Network&) = delete; // the spans refer to the vectors
    Network& operator=(const Network&) = delete;

    /// Moves the gradients to memory of the group. Processes then sum gradients in place and copy
    /// nothing. Call it before a trainer is made. The call is optional.
    template <class World>
    void place_gradients_in(World& world) {
        shared_gradient_ = world.template allocate<float>(gradient_.size());
        std::size_t at = 0;
        for (auto& one : gradients_) {
            one = {shared_gradient_.data() + at, one.size()};
            at += one.size();
        }
    }

    std::span<const std::span<float>> parameters() { return parameters_; }
    std::span<const std::span<float>> gradients() { return gradients_; }
    [[nodiscard]] const std::vector<std::string>& parameter_names() const { return names_; }
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& parameter_shapes() const { return shapes_; }
    /// All parameters, one after another.
    [[nodiscard]] std::span<const float> values() const { return values_; }
    [[nodiscard]] std::size_t classes() const { return widths_.back(); }

    /// Adds the gradient of a micro-batch's mean loss, and returns the loss.
    double operator()(const Batch& batch, un::Pass& pass) {
        const auto outputs = forward(batch);
        output_gradients_.resize(outputs.size());
        const double loss = CrossEntropyLoss{}(outputs, batch, output_gradients_);
        backward(batch, output_gradients_, [&](std::size_t parameter) { pass.ready(parameter); });
        return loss;
    }

    /// The logits of each sample, in the order of samples. They are valid until the next call.
    std::span<const float> forward(const Batch& batch) {
        if (batch.width != widths_.front())
            un::refuse_input("Network: found samples of " + std::to_string(batch.width) + " numbers; expected " +
                             std::to_string(widths_.front()));
        for (std::size_t l = 1; l < widths_.size(); ++l) {
            activations_[l].resize(batch.rows() * widths_[l]);
            const bool last = l + 1 == widths_.size();
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                const auto in = input(batch, l, i);
                const auto out = row(activations_, l, i);
                std::copy(biases(l).begin(), biases(l).end(), out.begin());
                for (std::size_t j = 0; j < in.size(); ++j)
                    // Many inputs are zero after ReLU.
                    if (in[j] != 0) add_scaled(in[j], weights_of(l, j), out);
                if (!last)
                    for (float& x : out) x = std::max(x, 0.0f);
            }
        }
        return activations_.back();
    }

    /// Adds to the gradients, after a forward pass of the same batch. Calls `ready(parameter)` when
    /// a parameter's gradient is complete, the last layer first. A trainer can then exchange
    /// gradients while others are still computed.
    template <class Ready>
    void backward(const Batch& batch, std::span<const float> output_gradients, Ready ready) {
        activation_gradients_.back().assign(output_gradients.begin(), output_gradients.end());
        for (std::size_t l = widths_.size() - 1; l > 0; --l) {
            if (l > 1) activation_gradients_[l - 1].resize(batch.rows() * widths_[l - 1]);
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                const auto in = input(batch, l, i);
                const auto out_gradient = row(activation_gradients_, l, i);
                add_scaled(1, out_gradient, gradients_[2 * l - 1]);
                for (std::size_t j = 0; j < in.size(); ++j)
                    if (in[j] != 0)
                        add_scaled(in[j], out_gradient, gradients_[2 * l - 2].subspan(j * widths_[l], widths_[l]));
                if (l == 1) continue;
                const auto in_gradient = row(activation_gradients_, l - 1, i);
                for (std::size_t j = 0; j < in.size(); ++j)
                    in_gradient[j] = in[j] > 0 ? dot(weights_of(l, j), out_gradient) : 0;
            }
            ready(2 * l - 1);
            ready(2 * l - 2);
        }
    }
    void backward(const Batch& batch, std::span<const float> output_gradients) {
        backward(batch, output_gradients, [](std::size_t) {});
    }

    /// The most likely class of each sample.
    std::vector<std::int32_t> predict(const Batch& batch) {
        const auto outputs = forward(batch);
        std::vector<std::int32_t> found;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto output = outputs.subspan(i * classes(), classes());
            found.push_back(static_cast<std::int32_t>(std::max_element(output.begin(), output.end()) - output.begin()));
        }
        return found;
    }

    void evaluate(const Batch& batch, un::MeanMetric& loss, un::AccuracyMetric& accuracy) {
        const auto found = predict(batch);
        for (std::size_t i = 0; i < batch.rows(); ++i) accuracy.add(found[i], batch.labels[i]);
        output_gradients_.resize(activations_.back().size());
        loss.add(CrossEntropyLoss{}(activations_.back(), batch, output_gradients_), static_cast<double>(batch.rows()));
    }

private:
    [[nodiscard]] std::span<float> weights(std::size_t layer) const { return parameters_[2 * layer - 2]; }
    [[nodiscard]] std::span<float> biases(std::size_t layer) const { return parameters_[2 * layer - 1]; }
    /// The weights from input j to all of a layer's outputs.
    [[nodiscard]] std::span<const float> weights_of(std::size_t layer, std::size_t j) const {
        return weights(layer).subspan(j * widths_[layer], widths_[layer]);
    }
    std::span<float> row(std::vector<std::vector<float>>& of, std::size_t layer, std::size_t i) const {
        return std::span(of[layer]).subspan(i * widths_[layer], widths_[layer]);
    }
    std::span<const float> input(const Batch& batch, std::size_t layer, std::size_t i) {
        return layer == 1 ? batch.row(i) : row(activations_, layer - 1, i);
    }

    std::vector<std::size_t> widths_;
    std::vector<float> values_, gradient_;
    un::Memory<float> shared_gradient_; // used instead of gradient_
    std::vector<std::span<float>> parameters_, gradients_;
    std::vector<std::string> names_;
    std::vector<std::vector<std::size_t>> shapes_;
    // By layer. The gradients of the first layer's inputs are not used.
    std::vector<std::vector<float>> activations_, activation_gradients_;
    std::vector<float> output_gradients_;
};

} // namespace digits
