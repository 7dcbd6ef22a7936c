// The network of examples/digits as a model in units. It owns no parameters and no gradients. The
// trainer gives it those of a layer when it comes to that layer.
#pragma once

#include "../digits/network.hpp"

#include <unisono/sharded.hpp>

#include <algorithm>
#include <cmath>

namespace digits {

/// A unit is a layer: its weights, those of the first input first, then its biases.
class UnitNetwork {
public:
    using Element = float;

    UnitNetwork(std::vector<std::size_t> widths, std::uint64_t seed)
        : widths_(std::move(widths)), seed_(seed), activations_(widths_.size()) {}

    [[nodiscard]] std::vector<std::size_t> units() const {
        std::vector<std::size_t> sizes;
        for (std::size_t u = 0; u + 1 < widths_.size(); ++u) sizes.push_back((widths_[u] + 1) * widths_[u + 1]);
        return sizes;
    }
    void initialise(std::size_t unit, std::span<float> values) const {
        const std::size_t in = widths_[unit];
        const std::span<float> weights = values.first(in * widths_[unit + 1]);
        un::Mt19937 random(seed_ + unit);
        un::torch_rand(random, weights);
        const float bound = std::sqrt(6.0f / static_cast<float>(in));
        for (float& weight : weights) weight = bound * (2 * weight - 1);
    }

    double operator()(const Batch& batch, un::UnitPass<float>& pass) {
        forward(batch, pass);
        std::vector<float> slopes(activations_.back().size()), below;
        const double loss = CrossEntropyLoss{}(activations_.back(), batch, slopes);
        for (std::size_t u = widths_.size() - 1; u-- > 0;) {
            const std::size_t in = widths_[u], out = widths_[u + 1];
            const auto weights = pass.parameters(u);
            const std::span<float> gradient = pass.gradient(u);
            below.assign(batch.rows() * in, 0);
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                const auto slope = std::span<const float>(slopes).subspan(i * out, out);
                const auto x = input(batch, u, i);
                for (std::size_t j = 0; j < in; ++j) {
                    if (x[j] == 0) continue;
                    add_scaled(x[j], slope, gradient.subspan(j * out, out));
                    if (u > 0) below[i * in + j] = dot(weights.span().subspan(j * out, out), slope);
                }
                add_scaled(1, slope, gradient.subspan(in * out, out));
            }
            pass.ready(u); // the gradient travels while the next layer is computed
            std::swap(slopes, below);
        }
        return loss;
    }

    void evaluate(const Batch& batch, un::UnitPass<float>& pass, un::AccuracyMetric& accuracy) {
        forward(batch, pass);
        const std::size_t classes = widths_.back();
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto output = std::span<const float>(activations_.back()).subspan(i * classes, classes);
            const auto best = std::max_element(output.begin(), output.end()) - output.begin();
            accuracy.add(static_cast<std::int32_t>(best), batch.labels[i]);
        }
    }

private:
    void forward(const Batch& batch, un::UnitPass<float>& pass) {
        for (std::size_t u = 0; u + 1 < widths_.size(); ++u) {
            const std::size_t in = widths_[u], out = widths_[u + 1];
            const auto weights = pass.parameters(u);
            activations_[u + 1].assign(batch.rows() * out, 0);
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                const auto y = std::span(activations_[u + 1]).subspan(i * out, out);
                const auto x = input(batch, u, i);
                add_scaled(1, weights.span().subspan(in * out, out), y);
                for (std::size_t j = 0; j < in; ++j)
                    if (x[j] != 0) add_scaled(x[j], weights.span().subspan(j * out, out), y);
                if (u + 2 < widths_.size())
                    for (float& one : y) one = std::max(one, 0.0f);
            }
        }
    }
    [[nodiscard]] std::span<const float> input(const Batch& batch, std::size_t unit, std::size_t i) const {
        if (unit == 0) return batch.row(i);
        return std::span<const float>(activations_[unit]).subspan(i * widths_[unit], widths_[unit]);
    }

    std::vector<std::size_t> widths_;
    std::uint64_t seed_;
    std::vector<std::vector<float>> activations_;
};

} // namespace digits
