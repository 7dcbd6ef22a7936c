// A model of the tests on a device, of which the host only gets copies.
#pragma once

#include "extensions/nccl/support.hpp"
#include "memory.hpp"

#include <unisono/model/wrapped_model.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace test {

/// A model of the host whose arithmetic stands for a model's kernels. It reads the parameters from
/// the device, and adds each gradient to the device's in the order of the model's stream. So a
/// Trainer must get the same bits as with the model itself.
template <class M>
class OnDevice : public un::detail::ConvertedModel<OnDevice<M>, M> {
    using Frame = un::detail::ConvertedModel<OnDevice<M>, M>;
    friend Frame;

public:
    using T = un::parameter_element_t<M>;

    /// `gap`: elements between parameters. Without it they are adjacent.
    template <class World>
    OnDevice(World& world, M& model, std::size_t gap = 0) : Frame(model), stream_(un::detail::CudaStream::make()) {
        std::size_t count = 0;
        un::detail::for_each_span(model.parameters(), [&](std::span<T> one) {
            here_.push_back(one);
            count += one.size() + gap;
        });
        un::detail::for_each_span(model.gradients(), [&](std::span<T> one) { here_gradients_.push_back(one); });
        memory_ = un::allocate_on_device<T>(world, 2 * count);
        T* at = memory_.data();
        for (const std::span<T> one : here_) {
            parameters_.emplace_back(at, one.size());
            gradients_.emplace_back(at + count, one.size());
            at += one.size() + gap;
        }
        for (std::size_t p = 0; p < here_.size(); ++p) {
            write_device(parameters_[p], std::vector<T>(here_[p].begin(), here_[p].end()));
            // The trainer must zero them first.
            write_device(gradients_[p], std::vector<T>(gradients_[p].size(), T(3)));
        }
        this->expect(here_.size());
    }
    ~OnDevice() { cudaStreamSynchronize(stream_.get()); }

    [[nodiscard]] const std::vector<un::DeviceSpan<T>>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<un::DeviceSpan<T>>& gradients() const { return gradients_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

    /// The parameters on the device, after all enqueued work.
    [[nodiscard]] std::vector<T> values() const {
        cudaStreamSynchronize(stream_.get());
        std::vector<T> all;
        for (const auto one : parameters_) {
            const std::vector<T> copied = read_device(one);
            all.insert(all.end(), copied.begin(), copied.end());
        }
        return all;
    }
    void refresh() {
        cudaStreamSynchronize(stream_.get());
        for (std::size_t p = 0; p < here_.size(); ++p) {
            const std::vector<T> copied = read_device(parameters_[p]);
            std::copy(copied.begin(), copied.end(), here_[p].data());
        }
    }

private:
    void take(std::size_t p) {
        const std::span<T> one = here_gradients_[p];
        enqueue_add(stream_.get(), gradients_[p], std::vector<T>(one.begin(), one.end()));
        zero(p);
    }
    void zero(std::size_t p) { std::fill(here_gradients_[p].begin(), here_gradients_[p].end(), T{}); }

    std::vector<std::span<T>> here_, here_gradients_;
    un::detail::CudaStream stream_;
    un::DeviceMemory<T> memory_;
    std::vector<un::DeviceSpan<T>> parameters_, gradients_;
};

} // namespace test
