#pragma once

/// \file
/// Makes a trainable model of one that has `forward` and `backward`, and a loss of its own beside it.

#include "unisono/model/model.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A model in two halves.
/// - `forward(batch)` -> a span of outputs, which stays good until the next forward; sample after sample.
/// - `backward(batch, output_gradients)` adds to `gradients()`; called at most once after a forward of the same batch.
template <class M, class Batch>
concept two_way_model = model<M> && requires(M& m, const Batch& batch) {
    std::span(m.forward(batch));
    m.backward(batch,
               std::span<const std::remove_const_t<typename decltype(std::span(m.forward(batch)))::element_type>>{});
};

/// `loss(outputs, batch, output_gradients)` returns the loss of the micro-batch and *writes* its gradient by the outputs
/// (without LossScaling's factor, which is put to it here).
/// Refers to the model, which must live longer. Cost: one buffer as large as the outputs.
template <model M, class Loss>
class WithLoss {
public:
    static constexpr GradientKind gradient_kind = gradient_kind_of<M>;

    WithLoss(M& wrapped, Loss loss) : model_(&wrapped), loss_(std::move(loss)) {}

    decltype(auto) parameters() { return model_->parameters(); }
    decltype(auto) gradients() { return model_->gradients(); }
    decltype(auto) parameter_names()
        requires requires(M& m) { m.parameter_names(); }
    {
        return model_->parameter_names();
    }
    decltype(auto) parameter_shapes()
        requires requires(M& m) { m.parameter_shapes(); }
    {
        return model_->parameter_shapes();
    }
    decltype(auto) buffer_names()
        requires requires(M& m) { m.buffer_names(); }
    {
        return model_->buffer_names();
    }
    decltype(auto) buffers()
        requires requires(M& m) { m.buffers(); }
    {
        return model_->buffers();
    }
    template <class Batch>
        requires two_way_model<M, Batch>
    double operator()(const Batch& batch, Pass& pass) {
        const auto outputs = std::span(model_->forward(batch));
        using Element = parameter_element_t<M>;
        output_gradients_.assign(outputs.size(), Element{});
        const double loss = static_cast<double>(loss_(outputs, batch, std::span<Element>(output_gradients_)));
        using Wide = std::conditional_t<sizeof(Element) == 2, float, Element>;
        if (const auto scale = static_cast<Wide>(pass.loss_scale()); scale != 1)
            for (Element& one : output_gradients_) one = static_cast<Element>(static_cast<Wide>(one) * scale);
        model_->backward(batch, std::span<const Element>(output_gradients_));
        return loss;
    }
    template <class Batch>
        requires two_way_model<M, Batch>
    decltype(auto) predict(const Batch& batch) {
        return model_->forward(batch);
    }

    [[nodiscard]] M& wrapped() { return *model_; }

private:
    M* model_;
    Loss loss_;
    std::vector<parameter_element_t<M>> output_gradients_;
};

UNISONO_NAMESPACE_END
