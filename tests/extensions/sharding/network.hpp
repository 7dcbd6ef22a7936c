// A small network in units, whose arithmetic does not depend on the rank that runs it.
#pragma once

#include "unisono/data/data.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/observe/metric.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace unisono_test {

namespace un = unisono;

/// Layers of tanh. A unit is a layer: its weights, then its biases. Computes in float, whatever its
/// parameters are.
template <class T>
class LayersOf {
public:
    using Element = T;
    static constexpr std::size_t inputs = 6;

    std::vector<std::size_t> widths = {inputs, 9, 5, 1};
    bool says_ready = true, progresses = false;

    [[nodiscard]] std::vector<std::size_t> units() const {
        std::vector<std::size_t> sizes;
        for (std::size_t u = 0; u + 1 < widths.size(); ++u) sizes.push_back((widths[u] + 1) * widths[u + 1]);
        return sizes;
    }
    [[nodiscard]] std::vector<std::string> parameter_names() const { return {"first", "second", "last"}; }
    void initialise(std::size_t unit, std::span<T> values) const {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<T>(0.5f * std::sin(1.7f * static_cast<float>(i + 13 * unit + 1)));
    }

    double operator()(const un::RowBatch<float, float>& batch, un::UnitPass<T>& pass) {
        pass.count_tokens(static_cast<double>(batch.rows()));
        forward(batch, pass);
        const float share = 1.0f / static_cast<float>(batch.rows());
        const auto scale = static_cast<float>(pass.loss_scale());
        double loss = 0;
        std::vector<float> slopes;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const float error = activity_.back()[row] - batch.labels[row];
            loss += static_cast<double>(error * error * share);
            slopes.push_back(2 * error * share * scale);
        }
        for (std::size_t u = widths.size() - 1; u-- > 0;) {
            const std::size_t in = widths[u], out = widths[u + 1];
            const auto weights = pass.parameters(u);
            const auto gradient = pass.gradient(u);
            std::vector<float> below(batch.rows() * in);
            for (std::size_t row = 0; row < batch.rows(); ++row)
                for (std::size_t o = 0; o < out; ++o) {
                    const float y = activity_[u + 1][row * out + o];
                    const float slope = slopes[row * out + o] * (out == 1 ? 1 : 1 - y * y);
                    for (std::size_t i = 0; i < in; ++i) {
                        add(gradient[o * in + i], slope * activity_[u][row * in + i]);
                        below[row * in + i] += slope * static_cast<float>(weights[o * in + i]);
                    }
                    add(gradient[in * out + o], slope);
                }
            slopes = std::move(below);
            if (progresses) pass.progress();
            if (says_ready) pass.ready(u);
            if (progresses) pass.progress();
        }
        return loss;
    }
    void evaluate(const un::RowBatch<float, float>& batch, un::UnitPass<T>& pass, un::MeanMetric& loss) {
        forward(batch, pass);
        for (std::size_t row = 0; row < batch.rows(); ++row)
            loss.add(std::abs(static_cast<double>(activity_.back()[row] - batch.labels[row])));
    }
    std::vector<float> predict(const un::RowBatch<float, float>& batch, un::UnitPass<T>& pass) {
        forward(batch, pass);
        return activity_.back();
    }

private:
    static void add(T& to, float more) { to = static_cast<T>(static_cast<float>(to) + more); }
    void forward(const un::RowBatch<float, float>& batch, un::UnitPass<T>& pass) {
        activity_.assign(1, {});
        for (std::size_t row = 0; row < batch.rows(); ++row)
            activity_[0].insert(activity_[0].end(), batch.row(row).begin(), batch.row(row).end());
        for (std::size_t u = 0; u + 1 < widths.size(); ++u) {
            const std::size_t in = widths[u], out = widths[u + 1];
            const auto weights = pass.parameters(u);
            std::vector<float> next;
            for (std::size_t row = 0; row < batch.rows(); ++row)
                for (std::size_t o = 0; o < out; ++o) {
                    auto sum = static_cast<float>(weights[in * out + o]);
                    for (std::size_t i = 0; i < in; ++i)
                        sum += static_cast<float>(weights[o * in + i]) * activity_[u][row * in + i];
                    next.push_back(out == 1 ? sum : std::tanh(sum));
                }
            activity_.push_back(std::move(next));
            if (progresses) pass.progress();
        }
    }
    std::vector<std::vector<float>> activity_;
};
using Layers = LayersOf<float>;

} // namespace unisono_test
