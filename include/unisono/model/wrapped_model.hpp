#pragma once

/// \file
/// What a model made of another one passes on unchanged.

#include "unisono/model/model.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Refers to the model, which must live longer and is not moved. What M must be is the wrapper's to say.
template <class M>
class WrappedModel {
public:
    static constexpr GradientKind gradient_kind = gradient_kind_of<M>;

    explicit WrappedModel(M& model) : model_(&model) {}

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
    /// Of a part of a model (parallel/).
    void sum_over_parts(std::span<double> values)
        requires requires(M& m) { m.sum_over_parts(values); }
    {
        model_->sum_over_parts(values);
    }
    [[nodiscard]] M& wrapped() { return *model_; }

private:
    M* model_;
};

/// The pass of a model whose gradients a wrapper moves to where the trainer sees them: take(p) is called once for each parameter, as
/// soon as the model says that it is ready, or by `finish` once it has returned.
template <class Take>
class TakingPass {
public:
    /// `taken`: as many as there are parameters; memory to work with.
    TakingPass(Pass& outer, std::vector<bool>& taken, Take take)
        : outer_(outer), inner_(outer.facts(), &TakingPass::on_ready, this), taken_(taken), take_(std::move(take)) {
        taken_.assign(taken_.size(), false);
    }
    TakingPass(const TakingPass&) = delete;
    TakingPass& operator=(const TakingPass&) = delete;

    [[nodiscard]] Pass& pass() { return inner_; }
    void finish() {
        tell();
        for (std::size_t p = 0; p < taken_.size(); ++p) take_once(p);
    }

private:
    static void on_ready(void* self, std::size_t parameter) { static_cast<TakingPass*>(self)->ready(parameter); }
    void ready(std::size_t parameter) {
        tell();
        if (parameter < taken_.size()) take_once(parameter);
        outer_.ready(parameter); // refuses what is wrong
    }
    void take_once(std::size_t p) {
        if (taken_[p]) return;
        taken_[p] = true;
        take_(p);
    }
    /// The trainer learns what the model told so far.
    void tell() {
        outer_.count_tokens(inner_.tokens() - outer_.tokens());
        if (inner_.asked_for_scale()) static_cast<void>(outer_.loss_scale());
    }

    Pass& outer_;
    Pass inner_;
    std::vector<bool>& taken_;
    Take take_;
};

} // namespace detail
UNISONO_NAMESPACE_END
