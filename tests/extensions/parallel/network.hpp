// Layers and data of this room's tests, and their ranks: threads, or processes if a test chooses
// them.
#pragma once

#include <unisono/any.hpp>
#define UNISONO_TEST_TRANSPORT unisono::AnyTransport
#include "../../base/collective/findings.hpp"

#include <unisono/parallel.hpp>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace unisono_test {

namespace un = unisono;

/// y = W x + b. W is stored by outputs.
template <class T>
struct Dense {
    std::size_t in, out;
    unsigned seed = 0;
    int throws_at = -1; ///< the forward pass of this object that throws, counted from 0

    [[nodiscard]] std::size_t inputs() const { return in; }
    [[nodiscard]] std::size_t outputs() const { return out; }
    [[nodiscard]] std::size_t parameters() const { return (in + 1) * out; }
    void initialise(std::span<T> values) const {
        const std::vector<float> random = un::torch_rand(seed + 100, values.size());
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = (static_cast<T>(random[i]) - T(0.5)) / static_cast<T>(std::sqrt(static_cast<double>(in)));
    }
    void forward(un::LayerForward<T>& call) {
        if (throws_at-- == 0) throw std::runtime_error("a layer that does not want to");
        for (std::size_t s = 0; s < call.samples; ++s)
            for (std::size_t o = 0; o < out; ++o) {
                T sum = call.parameters[in * out + o];
                for (std::size_t i = 0; i < in; ++i) sum += call.parameters[o * in + i] * call.input[s * in + i];
                call.output[s * out + o] = sum;
            }
    }
    void backward(un::LayerBackward<T>& call) const {
        for (std::size_t s = 0; s < call.samples; ++s)
            for (std::size_t o = 0; o < out; ++o) {
                const T slope = call.output_gradient[s * out + o];
                call.gradient[in * out + o] += slope;
                for (std::size_t i = 0; i < in; ++i) call.gradient[o * in + i] += slope * call.input[s * in + i];
            }
        if (call.input_gradient.empty()) return;
        for (std::size_t s = 0; s < call.samples; ++s)
            for (std::size_t i = 0; i < in; ++i) {
                T sum{};
                for (std::size_t o = 0; o < out; ++o)
                    sum += call.parameters[o * in + i] * call.output_gradient[s * out + o];
                call.input_gradient[s * in + i] = sum;
            }
    }
};

/// y = x / (1 + |x|) if a random number of the sample allows it, else 0. Keeps the denominator.
template <class T>
struct Squash {
    std::size_t width;
    bool drops = false;

    [[nodiscard]] std::size_t inputs() const { return width; }
    [[nodiscard]] std::size_t outputs() const { return width; }
    [[nodiscard]] std::size_t kept() const { return width; }
    void forward(un::LayerForward<T>& call) const {
        for (std::size_t s = 0; s < call.samples; ++s) {
            const bool dropped = drops && call.training() && call.random(s, 7)() % 4 == 0;
            for (std::size_t i = s * width; i < (s + 1) * width; ++i) {
                call.kept[i] = dropped ? T(0) : 1 / (1 + std::abs(call.input[i]));
                call.output[i] = call.input[i] * call.kept[i];
            }
        }
    }
    void backward(un::LayerBackward<T>& call) const {
        for (std::size_t i = 0; i < call.input_gradient.size(); ++i)
            call.input_gradient[i] = call.output_gradient[i] * call.kept[i] * call.kept[i];
    }
};

/// Half the mean squared distance of the outputs from the labels.
template <class T>
struct Distance {
    std::size_t width;

    template <class Batch>
    double operator()(std::span<const T> outputs, const Batch& batch, std::span<T> gradients) const {
        const auto n = static_cast<T>(batch.rows());
        double loss = 0;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            const T off = outputs[i] - static_cast<T>(batch.labels[i / width]) / T(4);
            loss += 0.5 * static_cast<double>(off) * static_cast<double>(off) / static_cast<double>(n);
            gradients[i] = off / n;
        }
        return loss;
    }
};

/// In this scope ranks are processes, except with ThreadSanitizer, which does not see other
/// processes.
class OnProcesses {
public:
    OnProcesses() { test::any_on_processes = !test::under_thread_sanitizer; }
    OnProcesses(const OnProcesses&) = delete;
    OnProcesses& operator=(const OnProcesses&) = delete;
    ~OnProcesses() { test::any_on_processes = false; }
};

inline constexpr std::size_t width = 6, hidden = 10, results = 3;

/// 16 layers, 8 of them with parameters.
template <class T>
un::Layers<T> layers(bool drops = true) {
    un::Layers<T> all;
    for (unsigned l = 0; l < 8; ++l) {
        const std::size_t in = l == 0 ? width : hidden, out = l == 7 ? results : hidden;
        all.add(Dense<T>{in, out, l});
        all.add(Squash<T>{out, drops && l % 2 == 0});
    }
    return all;
}
/// Two layers per part, one of them with parameters.
inline un::LayerPlacement even_placement(std::size_t parts) {
    un::LayerPlacement placement(parts, 2 * (8 / parts));
    for (std::size_t i = 0; i < 8 % parts; ++i) placement[i] += 2;
    return placement;
}

template <class T>
struct Samples {
    std::vector<T> values;
    std::vector<std::int32_t> labels;

    explicit Samples(std::size_t count) {
        for (const float one : un::torch_rand(5, count * width)) values.push_back(static_cast<T>(one) * 2 - 1);
        for (std::size_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>(i * 7 % 5));
    }
    [[nodiscard]] un::RowData<T> data() const { return {values, width, labels}; }
};

} // namespace unisono_test
