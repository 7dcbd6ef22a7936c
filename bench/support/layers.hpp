// A model that computes nothing but takes time: layers whose gradients become ready in turn, the
// last layer's first.
#pragma once

#include <unisono/model/model.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace bench {

/// `pass_time(part)` lets a part of a backward pass' time pass. In each layer it is called `pieces`
/// times, and each time it reports progress to the pass.
template <class PassTime>
class Layers {
public:
    Layers(std::size_t layers, std::size_t count, std::size_t pieces, bool says_ready, PassTime pass_time)
        : layers_(layers), pieces_(pieces), says_ready_(says_ready), pass_time_(std::move(pass_time)),
          values_(layers * count), gradient_(layers * count) {
        for (std::size_t l = 0; l < layers; ++l) {
            parameters_.push_back(std::span(values_).subspan(l * count, count));
            gradients_.push_back(std::span(gradient_).subspan(l * count, count));
        }
    }
    Layers(const Layers&) = delete;
    Layers& operator=(const Layers&) = delete;

    std::span<const std::span<float>> parameters() { return parameters_; }
    std::span<const std::span<float>> gradients() { return gradients_; }

    /// Batches are numbers.
    double operator()(int, unisono::Pass& pass) {
        for (std::size_t l = layers_; l-- > 0;) {
            for (std::size_t piece = 0; piece < pieces_; ++piece) {
                pass_time_(1.0 / static_cast<double>(layers_ * pieces_));
                if (says_ready_ && piece + 1 < pieces_) pass.progress();
            }
            if (says_ready_) pass.ready(l);
        }
        return 0;
    }

private:
    std::size_t layers_, pieces_;
    bool says_ready_;
    PassTime pass_time_;
    std::vector<float> values_, gradient_;
    std::vector<std::span<float>> parameters_, gradients_;
};

} // namespace bench
