#pragma once

/// \file
/// Mixed precision: a model that computes in 16 bits, trained in float.
///
///     Network network;                       // parameters() and gradients() are of bfloat16 or float16
///     un::MasterWeights master(network);
///     un::Trainer trainer{world, master, un::LossScaling{}, un::AdamW{}}; // float16 wants loss scaling, bfloat16 seldom
///
/// The optimizer runs on float weights, of which the model's are the rounded image; gradients are added up over micro-batches and
/// ranks in float. So every policy works as for a float model: sharding, clipping, sums on a grid.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A float model around one of bfloat16 or float16. Its first weights are the model's; after that the model's are written by
/// each call (training, `evaluate`, `predict`, `refresh`), and what is written there by others is lost. The model must live
/// longer, and its memory stay where it is.
///
/// Memory: 8 bytes an element beside the model's 4. Cost of a call: each weight is rounded to the model's type (to nearest, ties to
/// even), each gradient is read once, added as a float and zeroed. A weight beyond the type's range becomes infinite in the model.
/// Gradients of a micro-batch overflow as the model's type does: LossScaling. Not done: sums over ranks in 16 bits.
template <model M>
class MasterWeights : public detail::ImageOfModel<MasterWeights<M>, M> {
    friend detail::ImageOfModel<MasterWeights<M>, M>; // take, zero
public:
    using Low = parameter_element_t<M>;
    static_assert(sizeof(Low) == 2,
                  "unisono::MasterWeights: found a model whose parameters are float or double. Required: "
                  "bfloat16 or float16. Why: others are trained as they are.");

    explicit MasterWeights(M& model) : detail::ImageOfModel<MasterWeights<M>, M>(model) {
        std::size_t count = 0;
        detail::for_each_span(model.parameters(), [&](std::span<Low> one) {
            low_.push_back(one);
            count += one.size();
        });
        detail::for_each_span(model.gradients(), [&](std::span<Low> one) { low_gradients_.push_back(one); });
        if (low_.size() != low_gradients_.size())
            refuse_input({"MasterWeights: the model has ", low_.size(), " parameters and ", low_gradients_.size(),
                          " gradients; expected as many"});
        weights_.resize(count);
        gradients_.resize(count);
        std::size_t at = 0;
        for (std::size_t p = 0; p < low_.size(); ++p) {
            const std::size_t n = low_[p].size();
            if (n != low_gradients_[p].size())
                refuse_input({"MasterWeights: ", parameter_label(model, p), " has ", n, " elements and its gradient ",
                              low_gradients_[p].size(), "; expected as many"});
            weight_spans_.push_back({weights_.data() + at, n});
            gradient_spans_.push_back({gradients_.data() + at, n});
            accumulate_first(weight_spans_[p], low_[p]);
            zero(p);
            at += n;
        }
        this->expect(low_.size());
    }

    [[nodiscard]] std::span<const std::span<float>> parameters() { return weight_spans_; }
    [[nodiscard]] std::span<const std::span<float>> gradients() { return gradient_spans_; }

    /// The model's weights become those of now: after training, before the model is used by itself.
    void refresh() {
        for (std::size_t p = 0; p < low_.size(); ++p)
            accumulate_first(low_[p], std::span<const float>(weight_spans_[p]));
    }

private:
    void take(std::size_t p) {
        accumulate(gradient_spans_[p], low_gradients_[p]);
        zero(p);
    }
    void zero(std::size_t p) {
        const std::span<Low>& one = low_gradients_[p];
        if (!one.empty()) std::memset(static_cast<void*>(one.data()), 0, one.size_bytes()); // the number zero
    }

    std::vector<std::span<Low>> low_, low_gradients_;
    std::vector<float> weights_, gradients_;
    std::vector<std::span<float>> weight_spans_, gradient_spans_;
};

UNISONO_NAMESPACE_END
