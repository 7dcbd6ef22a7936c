#pragma once

/// \file
/// Mixed precision: a model that computes in 16 bits, trained in float.
///
///     Network network;                    // parameters() and gradients() of bfloat16 or float16
///     un::MasterWeights master(network);
///     un::Trainer trainer{world, master,  // float16 needs loss scaling, bfloat16 seldom does
///                         un::LossScaling{}, un::AdamW{}};
///
/// The optimizer runs on float weights; the model's weights are their rounded copy. Gradients are
/// accumulated over micro-batches and ranks in float. So every policy works as for a float model:
/// sharding, clipping, sums on a grid. A model in units also works with GradientSharding and
/// ParameterSharding: its units travel in 16 bits, and owners hold their slices in float. A model
/// on a device is trained there (device/master_weights.hpp).

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/model/own_memory.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The common part of MasterWeights on the host and on a device: the spans of the model's
/// parameters and gradients, and those of the floats, which are in the same kind of memory.
/// `Wrapper` derives from it.
template <class Wrapper, class M>
class MasterWeightsBase : public ConvertedModel<Wrapper, M> {
public:
    using Low = parameter_element_t<M>;
    static_assert(sizeof(Low) == 2,
                  "unisono::MasterWeights: found a model whose parameters are float or double. Required: "
                  "bfloat16 or float16. Why: float and double need no master weights.");

protected:
    using Floats = std::conditional_t<model_on_device<M>, DeviceSpan<float>, std::span<float>>;

    /// \throws error bad_input: spans that do not match, or share memory
    explicit MasterWeightsBase(M& model) : ConvertedModel<Wrapper, M>(model) {
        for_each_span(model.parameters(), [&](auto one) {
            low_.push_back({one.data(), one.size()});
            count_ += one.size();
        });
        for_each_span(model.gradients(), [&](auto one) { low_gradients_.push_back({one.data(), one.size()}); });
        check_pairs("MasterWeights: ", low_, low_gradients_, ParameterLabels(model));
        refuse_shared_memory(low_, low_gradients_, ParameterLabels(model));
        this->expect(low_.size());
    }
    /// Sets the memory of the floats: from these addresses on, all parameters are contiguous.
    void lay_out(float* weights, float* gradients) {
        for (const std::span<Low> one : low_) {
            weight_spans_.push_back({weights, one.size()});
            gradient_spans_.push_back({gradients, one.size()});
            weights += one.size();
            gradients += one.size();
        }
    }

    std::size_t count_ = 0; ///< elements of all parameters
    std::vector<std::span<Low>> low_, low_gradients_;
    std::vector<Floats> weight_spans_, gradient_spans_;
};

} // namespace detail

template <class M>
class MasterWeights {
    static_assert(!model_on_device<M>,
                  "unisono::MasterWeights: found a model on a device. Required: unisono/nccl.hpp or unisono/cuda.hpp, "
                  "which have MasterWeights(world, model) for it. Why: its weights are on the device.");
    static_assert(
        model<M> || unit_model<M>,
        "unisono::MasterWeights: found something other than a model. Required: parameters() and gradients(), or "
        "a model in units.");
};
template <class M>
MasterWeights(M&) -> MasterWeights<M>;

/// A float model around one of bfloat16 or float16. It takes its initial weights from the model.
/// Each call (training, `evaluate`, `predict`, `refresh`) writes the model's weights, so other
/// writes to them are lost. The model's weights are current whenever a call of a trainer returns,
/// throws, or calls `on_update`. After other code writes to the float weights, the trainer sees the
/// change at its next call, and the model at the next `parameters()` or `refresh()`. The model must
/// outlive this object, and its memory must not move.
///
/// Memory: 8 bytes per element beside the model's 4. Cost of an update, and of a trainer's call:
/// each weight is rounded to the model's type once (to nearest, ties to even). Cost of a
/// micro-batch: each gradient is read once, added as a float and zeroed. A weight beyond the type's
/// range becomes infinite in the model. Gradients of a micro-batch overflow as the model's type
/// does: use LossScaling. Sums over ranks are in float; with Bf16Wire or Fp16Wire
/// (extensions/compression/cast.hpp), in 16 bits.
template <model M>
    requires(!model_on_device<M>)
class MasterWeights<M> : public detail::MasterWeightsBase<MasterWeights<M>, M> {
    using Base = detail::MasterWeightsBase<MasterWeights<M>, M>;
    using Frame = detail::ConvertedModel<MasterWeights<M>, M>;
    friend Frame; // take, zero
public:
    explicit MasterWeights(M& model) : Base(model), weights_(count_), gradients_(count_) {
        this->lay_out(weights_.data(), gradients_.data());
        for (std::size_t p = 0; p < low_.size(); ++p) {
            accumulate_first(weight_spans_[p], low_[p]);
            zero(p);
        }
    }

    [[nodiscard]] std::span<const std::span<float>> parameters() {
        this->age_copy();
        return weight_spans_;
    }
    [[nodiscard]] std::span<const std::span<float>> gradients() { return gradient_spans_; }

    /// Writes the model's weights from the float weights. Call it after code other than a trainer
    /// wrote the float weights, before you use the model by itself.
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
        const auto& one = low_gradients_[p];
        if (!one.empty()) std::memset(static_cast<void*>(one.data()), 0, one.size_bytes()); // the number zero
    }

    using Base::count_, Base::low_, Base::low_gradients_, Base::weight_spans_, Base::gradient_spans_;
    std::vector<float> weights_, gradients_;
};

/// A model in units of bfloat16 or float16 (its `Element`), trained in float. Under policies that
/// do not shard gradients it gives the same bits as `MasterWeights(ResidentUnits(world, model))`,
/// if the sums give the same bits. The model must outlive this object.
///
/// Memory per rank: 4 bytes per weight that it owns, beside the sums of gradients and the
/// optimizer's state; 2 bytes per weight of the model, or with ParameterSharding of two units; and
/// 2 bytes per element of one unit's gradient. Traffic: 2 bytes per parameter that is published or
/// gathered, 4 bytes per element that is summed.
template <unit_model M>
    requires(!model<M>)
class MasterWeights<M> : public detail::WrappedModel<M> {
    static_assert(!unit_model_on_device<M>,
                  "unisono::MasterWeights: found a model in units on a device. Required: one of float or double, or "
                  "one that holds its memory. Why: units in 16 bits are made on the host.");

public:
    using Element = float;
    using PassElement = typename M::Element;
    static_assert(sizeof(PassElement) == 2,
                  "unisono::MasterWeights: found a model in units of float or double. Required: bfloat16 or float16. "
                  "Why: float and double need no master weights.");

    using detail::WrappedModel<M>::WrappedModel;
    MasterWeights(const MasterWeights&) = delete;
    MasterWeights& operator=(const MasterWeights&) = delete;

    [[nodiscard]] decltype(auto) units() { return this->wrapped().units(); }
    void initialise(std::size_t unit, std::span<float> values) {
        std::vector<PassElement> low(values.size());
        this->wrapped().initialise(unit, std::span<PassElement>(low));
        accumulate_first(values, std::span<const PassElement>(low));
    }

    template <class Batch>
        requires trainable_on<M, Batch>
    double operator()(const Batch& batch, UnitPass<PassElement>& pass) {
        return static_cast<double>(this->wrapped()(batch, pass));
    }
    template <class Batch, class... Metrics>
        requires requires(M& m, const Batch& batch, UnitPass<PassElement>& pass, Metrics&... metrics) {
            m.evaluate(batch, pass, metrics...);
        }
    void evaluate(const Batch& batch, UnitPass<PassElement>& pass, Metrics&... metrics) {
        this->wrapped().evaluate(batch, pass, metrics...);
    }
    template <class Batch>
        requires requires(M& m, const Batch& batch, UnitPass<PassElement>& pass) { m.predict(batch, pass); }
    decltype(auto) predict(const Batch& batch, UnitPass<PassElement>& pass) {
        return this->wrapped().predict(batch, pass);
    }
};

UNISONO_NAMESPACE_END
