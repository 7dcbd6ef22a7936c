// The network of the digits example (../digits/network.hpp) on a GPU. Parameters, gradients and
// activations stay there. The kernels compute each number in the same order as the host's loops.
// They fuse no product with an addition. Only exp and log may differ from the host's.
#pragma once

#include "kernels.hpp"

#include "../digits/network.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace digits {

inline void check(cudaError_t code) {
    if (code != cudaSuccess) throw un::error(un::ErrorCode::refused, std::string("CUDA: ") + cudaGetErrorString(code));
}

UNISONO_NO_CONTRACTION_BEGIN

/// Output k of sample i: the bias, then one product per input, in the order of inputs.
struct Forward {
    const float *in, *weights, *biases;
    float* out;
    std::size_t inputs, outputs;
    bool last;

    UNISONO_ON_DEVICE void operator()(std::size_t n) const {
        const std::size_t i = n / outputs, k = n % outputs;
        float sum = biases[k];
        for (std::size_t j = 0; j < inputs; ++j)
            if (const float x = in[i * inputs + j]; x != 0)
                sum = sum + un::detail::product(x, weights[j * outputs + k]);
        out[n] = !last && sum < 0 ? 0.0f : sum;
    }
};

/// Softmax and cross-entropy of sample i, and their gradient with respect to the outputs.
struct CrossEntropy {
    const float* out;
    const std::int32_t* labels;
    float* gradient;
    double* losses;
    std::size_t width;
    float share;

    UNISONO_ON_DEVICE void operator()(std::size_t i) const {
        const float* const output = out + i * width;
        float* const g = gradient + i * width;
        float largest = output[0], sum = 0;
        for (std::size_t k = 1; k < width; ++k) largest = largest < output[k] ? output[k] : largest;
        for (std::size_t k = 0; k < width; ++k) sum = sum + (g[k] = ::expf(output[k] - largest));
        const float part = un::detail::quotient(share, sum);
        for (std::size_t k = 0; k < width; ++k) g[k] = un::detail::product(g[k], part);
        const auto right = static_cast<std::size_t>(labels[i]);
        g[right] = g[right] - share;
        losses[i] = static_cast<double>(::logf(sum) - (output[right] - largest));
    }
};

/// Adds to the gradient of the weight from input j to output k, in the order of samples. The
/// numbers after those of all weights stand for the bias of output k.
struct WeightGradient {
    const float *in, *out_gradient;
    float *weights, *biases;
    std::size_t inputs, outputs, rows;

    UNISONO_ON_DEVICE void operator()(std::size_t n) const {
        const std::size_t j = n / outputs, k = n % outputs;
        float* const to = j == inputs ? biases + k : weights + n;
        float sum = *to;
        for (std::size_t i = 0; i < rows; ++i) {
            const float x = j == inputs ? 1.0f : in[i * inputs + j];
            if (x != 0) sum = sum + un::detail::product(x, out_gradient[i * outputs + k]);
        }
        *to = sum;
    }
};

/// The gradient with respect to input j of sample i: eight partial sums, as in `dot`.
struct InputGradient {
    const float *in, *weights, *out_gradient;
    float* in_gradient;
    std::size_t inputs, outputs;

    UNISONO_ON_DEVICE void operator()(std::size_t n) const {
        const std::size_t i = n / inputs, j = n % inputs;
        if (!(in[n] > 0)) {
            in_gradient[n] = 0;
            return;
        }
        float sums[8] = {};
        for (std::size_t k = 0; k < outputs; ++k)
            sums[k % 8] = sums[k % 8] + un::detail::product(weights[j * outputs + k], out_gradient[i * outputs + k]);
        in_gradient[n] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
};

UNISONO_NO_CONTRACTION_END

/// A model on a device. Its parameters start as those of a network on the host. The host waits once
/// per micro-batch, for the loss.
class DeviceNetwork {
public:
    /// `widths`: as in Network. A micro-batch has at most `most_rows` samples. The rank uses the
    /// device that is current in the calling thread.
    DeviceNetwork(un::Group<un::Nccl>& world, const std::vector<std::size_t>& widths, std::uint64_t seed,
                  std::size_t most_rows)
        : widths_(widths), most_rows_(most_rows), losses_(un::allocate_on_device<double>(world, most_rows)),
          labels_(un::allocate_on_device<std::int32_t>(world, most_rows)), host_losses_(most_rows) {
        Network first(widths, seed);
        const std::span<const float> values = first.values();
        memory_ = un::allocate_on_device<float>(world, 2 * values.size());
        std::size_t at = 0;
        for (const std::span<float> one : first.parameters()) {
            parameters_.push_back(memory_.span().subspan(at, one.size()));
            gradients_.push_back(memory_.span().subspan(values.size() + at, one.size()));
            at += one.size();
        }
        for (const std::size_t width : widths) {
            activations_.push_back(un::allocate_on_device<float>(world, most_rows * width));
            activation_gradients_.push_back(un::allocate_on_device<float>(world, most_rows * width));
        }
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        copy(memory_.data(), values.data(), values.size(), cudaMemcpyHostToDevice);
        wait();
    }
    DeviceNetwork(const DeviceNetwork&) = delete;
    DeviceNetwork& operator=(const DeviceNetwork&) = delete;
    ~DeviceNetwork() {
        cudaStreamSynchronize(stream_); // enqueued work still reads the memory
        cudaStreamDestroy(stream_);
    }

    [[nodiscard]] const std::vector<un::DeviceSpan<float>>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<un::DeviceSpan<float>>& gradients() const { return gradients_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    double operator()(const Batch& batch, un::Pass& pass) {
        forward(batch);
        for (std::size_t l = widths_.size() - 1; l > 0; --l) {
            const std::size_t in = widths_[l - 1], out = widths_[l], rows = batch.rows();
            launch(stream_, (in + 1) * out,
                   WeightGradient{in_kernel(activations_[l - 1].data()), in_kernel(activation_gradients_[l].data()),
                                  in_kernel(gradients_[2 * l - 2].data()), in_kernel(gradients_[2 * l - 1].data()), in,
                                  out, rows});
            if (l > 1)
                launch(stream_, rows * in,
                       InputGradient{in_kernel(activations_[l - 1].data()), in_kernel(parameters_[2 * l - 2].data()),
                                     in_kernel(activation_gradients_[l].data()),
                                     in_kernel(activation_gradients_[l - 1].data()), in, out});
            // The trainer's sums follow what is enqueued so far, while the next layer is computed.
            pass.ready(2 * l - 1);
            pass.ready(2 * l - 2);
        }
        return loss(batch.rows());
    }

    void evaluate(const Batch& batch, un::MeanMetric& mean, un::AccuracyMetric& accuracy) {
        forward(batch);
        const std::size_t kinds = widths_.back();
        host_outputs_.resize(batch.rows() * kinds);
        copy(host_outputs_.data(), activations_.back().data(), host_outputs_.size(), cudaMemcpyDeviceToHost);
        mean.add(loss(batch.rows()), static_cast<double>(batch.rows()));
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto output = std::span<const float>(host_outputs_).subspan(i * kinds, kinds);
            const auto found = std::max_element(output.begin(), output.end()) - output.begin();
            accuracy.add(static_cast<std::int32_t>(found), batch.labels[i]);
        }
    }

private:
    template <class T>
    void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind way) {
        check(cudaMemcpyAsync(to, from, count * sizeof(T), way, stream_));
    }
    void wait() { check(cudaStreamSynchronize(stream_)); }

    /// Computes the outputs, and the gradient of the loss with respect to them.
    void forward(const Batch& batch) {
        const std::size_t rows = batch.rows();
        if (rows > most_rows_ || batch.width != widths_.front())
            un::refuse_input("DeviceNetwork: found " + std::to_string(rows) + " samples of " +
                             std::to_string(batch.width) + " numbers; expected at most " + std::to_string(most_rows_) +
                             " of " + std::to_string(widths_.front()));
        copy(activations_[0].data(), batch.values.data(), batch.values.size(), cudaMemcpyHostToDevice);
        copy(labels_.data(), batch.labels.data(), rows, cudaMemcpyHostToDevice);
        for (std::size_t l = 1; l < widths_.size(); ++l)
            launch(stream_, rows * widths_[l],
                   Forward{in_kernel(activations_[l - 1].data()), in_kernel(parameters_[2 * l - 2].data()),
                           in_kernel(parameters_[2 * l - 1].data()), in_kernel(activations_[l].data()), widths_[l - 1],
                           widths_[l], l + 1 == widths_.size()});
        launch(stream_, rows,
               CrossEntropy{in_kernel(activations_.back().data()), in_kernel(labels_.data()),
                            in_kernel(activation_gradients_.back().data()), in_kernel(losses_.data()), widths_.back(),
                            1.0f / static_cast<float>(rows)});
    }
    /// The mean loss of the last batch. Waits for it.
    double loss(std::size_t rows) {
        copy(host_losses_.data(), losses_.data(), rows, cudaMemcpyDeviceToHost);
        wait();
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) sum += host_losses_[i];
        return sum / static_cast<double>(rows);
    }

    std::vector<std::size_t> widths_;
    std::size_t most_rows_;
    cudaStream_t stream_ = nullptr;
    un::DeviceMemory<float> memory_; ///< all parameters, then all gradients
    std::vector<un::DeviceSpan<float>> parameters_, gradients_;
    /// Of each layer, the inputs first.
    std::vector<un::DeviceMemory<float>> activations_, activation_gradients_;
    un::DeviceMemory<double> losses_; ///< of each sample
    un::DeviceMemory<std::int32_t> labels_;
    std::vector<double> host_losses_;
    std::vector<float> host_outputs_;
};

} // namespace digits
