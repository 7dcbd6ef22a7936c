#pragma once

/// \file
/// Makes a trainable model from one that has `forward` and `backward`, and a separate loss.

#include "unisono/core/standard.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A model in two halves.
/// - `forward(batch)` returns a span of outputs, sample by sample, valid until the next `forward`.
/// - `backward(batch, output_gradients)` adds to `gradients()`; called at most once after a
///   `forward` of the same batch.
template <class M, class Batch>
concept two_way_model = model<M> && requires(M& m, const Batch& batch) {
    std::span(m.forward(batch));
    m.backward(batch,
               std::span<const std::remove_const_t<typename decltype(std::span(m.forward(batch)))::element_type>>{});
};

/// `loss(outputs, batch, output_gradients)` returns the loss of the micro-batch and *writes* its
/// gradient with respect to the outputs (without LossScaling's factor, which WithLoss applies).
/// Refers to the model, which must outlive this object. Cost: one buffer of the size of the
/// outputs.
template <model M, class Loss>
class WithLoss : public detail::WrappedModel<M> {
public:
    using detail::WrappedModel<M>::wrapped;

    WithLoss(M& model, Loss loss) : detail::WrappedModel<M>(model), loss_(std::move(loss)) {}

    decltype(auto) parameters() { return wrapped().parameters(); }
    decltype(auto) gradients() { return wrapped().gradients(); }
    template <class Batch>
        requires two_way_model<M, Batch>
    double operator()(const Batch& batch, Pass& pass) {
        const auto outputs = std::span(wrapped().forward(batch));
        using Element = parameter_element_t<M>;
        output_gradients_.assign(outputs.size(), Element{});
        const double loss = static_cast<double>(loss_(outputs, batch, std::span<Element>(output_gradients_)));
        using Wide = std::conditional_t<sizeof(Element) == 2, float, Element>;
        if (const auto scale = static_cast<Wide>(pass.loss_scale()); scale != 1)
            for (Element& one : output_gradients_) one = static_cast<Element>(static_cast<Wide>(one) * scale);
        wrapped().backward(batch, std::span<const Element>(output_gradients_));
        return loss;
    }
    template <class Batch>
        requires two_way_model<M, Batch>
    decltype(auto) predict(const Batch& batch) {
        return wrapped().forward(batch);
    }

private:
    Loss loss_;
    std::vector<parameter_element_t<M>> output_gradients_;
};

UNISONO_NAMESPACE_END
