#pragma once

/// \file
/// Wrappers of models: they forward the optional members of a model unchanged.

#include "unisono/core/list.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/model.hpp"

#include <cstddef>
#include <exception>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Refers to the model, which must outlive this object and not move. The derived wrapper states the
/// requirements on M.
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
    /// Forwards sums over the stages of a split model (parallel/).
    void sum_over_parts(std::span<double> values)
        requires requires(M& m) { m.sum_over_parts(values); }
    {
        model_->sum_over_parts(values);
    }
    /// For checkpoints of a split model: all its parameters, and which of them are on this rank.
    [[nodiscard]] auto whole_parameters() const
        requires requires(M& m) { m.whole_parameters(); }
    {
        return model_->whole_parameters();
    }
    [[nodiscard]] decltype(auto) places() const
        requires requires(M& m) { m.places(); }
    {
        return model_->places();
    }
    [[nodiscard]] M& wrapped() { return *model_; }

private:
    M* model_;
};

/// A model that computes with a copy of its parameters, or that wraps a model.
template <class M>
concept may_have_copy = requires(M& model) { model.age_copy(); } || requires(M& model) { model.wrapped(); };

template <class M>
void age_copy(M&) {}
template <may_have_copy M>
void age_copy(M& model) {
    if constexpr (requires { model.age_copy(); }) model.age_copy();
    else age_copy(model.wrapped());
}
template <class M>
void write_copy(M&) {}
template <may_have_copy M>
void write_copy(M& model) {
    if constexpr (requires { model.write_copy(); }) model.write_copy();
    else write_copy(model.wrapped());
}

/// Its lifetime is a call of a trainer. At the start other code may have written parameters through
/// a span, so the copy counts as out of date. At the end, also after an exception, the copy is
/// current.
template <class M>
struct WritesCopy {
    explicit WritesCopy(M&) {}
};
template <may_have_copy M>
class WritesCopy<M> {
public:
    explicit WritesCopy(M& model) : model_(&model), thrown_(std::uncaught_exceptions()) { age_copy(model); }
    WritesCopy(const WritesCopy&) = delete;
    WritesCopy& operator=(const WritesCopy&) = delete;
    ~WritesCopy() noexcept(false) {
        if (std::uncaught_exceptions() == thrown_) {
            write_copy(*model_);
        } else {
            try {
                write_copy(*model_);
            } catch (...) { // the exception in flight is more informative
                pass_on_end_of_thread();
            }
        }
    }

private:
    M* model_;
    int thrown_;
};

/// The pass of a model whose gradients a wrapper moves to the trainer's memory. Calls take(p) once
/// for each parameter: as soon as the model reports it as ready, or in `finish`, after the model
/// has returned.
template <class Take>
class TakingPass {
public:
    /// `taken`: working memory, one element per parameter.
    TakingPass(Pass& outer, List<bool>& taken, Take take)
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
        outer_.ready(parameter); // refuses an invalid parameter
    }
    void take_once(std::size_t p) {
        if (taken_[p]) return;
        taken_[p] = true;
        take_(p);
    }
    /// Reports to the trainer what the model has reported so far.
    void tell() { report_to(outer_, inner_); }

    Pass& outer_;
    Pass inner_;
    List<bool>& taken_;
    Take take_;
};

/// The base of a wrapper that has parameters and gradients of its own; the model's parameters are a
/// converted copy of them. It writes the model's parameters before each call of the model. As soon
/// as a gradient of the model is complete, it moves the gradient to the trainer's memory and zeroes
/// it. A trainer writes the copy before each of its own calls returns (`write_copy`), and tells
/// when the copy is out of date (`age_copy`); calls of the model write it again only then.
/// `parameters()` of a wrapper gives write access, so it also marks the copy as out of date.
///
/// `Wrapper` derives from this base. It has `refresh()`, which writes the model's parameters, and
/// optionally `fresh()`, which is true if they are current. For this base alone it also has
/// `take(p)`, which adds the model's p-th gradient to the trainer's and zeroes the model's, and
/// `zero(p)`, which only zeroes it. It calls `expect(parameters)` once.
template <class Wrapper, class M>
class ConvertedModel : public WrappedModel<M> {
public:
    explicit ConvertedModel(M& model) : WrappedModel<M>(model) {}
    ConvertedModel(const ConvertedModel&) = delete;
    ConvertedModel& operator=(const ConvertedModel&) = delete;

    template <class Batch>
        requires requires(M& m, const Batch& batch, Pass& pass) {
            { m(batch, pass) } -> detail::converts_to<double>;
        }
    double operator()(const Batch& batch, Pass& pass) {
        renew();
        for (std::size_t p = 0; p < taken_.size() && !clean_; ++p) self().zero(p); // the last call threw
        clean_ = false;
        TakingPass taking(pass, taken_, [&](std::size_t p) { self().take(p); });
        const double loss = static_cast<double>(this->wrapped()(batch, taking.pass()));
        taking.finish();
        clean_ = true;
        return loss;
    }
    template <class Batch, class... Metrics>
        requires requires(M& m, const Batch& batch, Metrics&... metrics) { m.evaluate(batch, metrics...); }
    void evaluate(const Batch& batch, Metrics&... metrics) {
        renew();
        this->wrapped().evaluate(batch, metrics...);
    }
    template <class Batch>
        requires requires(M& m, const Batch& batch) { m.predict(batch); }
    decltype(auto) predict(const Batch& batch) {
        renew();
        return this->wrapped().predict(batch);
    }

    /// Marks the model's copy as out of date: parameters may have changed since it was written.
    /// Called by trainers.
    void age_copy() {
        shown_ = false;
        detail::age_copy(this->wrapped());
    }
    /// Writes the model's copy, and that of a wrapped model. They stay current until `age_copy`.
    /// Called by trainers.
    void write_copy() {
        renew();
        shown_ = true;
        detail::write_copy(this->wrapped());
    }

protected:
    void expect(std::size_t parameters) { taken_.resize(parameters); }

private:
    void renew() {
        if (shown_) return;
        if constexpr (requires { self().fresh(); }) {
            if (self().fresh()) return;
        }
        self().refresh();
        detail::age_copy(this->wrapped());
    }
    Wrapper& self() { return static_cast<Wrapper&>(*this); }

    List<bool> taken_;   ///< the gradient was taken in this call
    bool clean_ = true;  ///< the model's gradients are zero
    bool shown_ = false; ///< a trainer exists, and nothing has changed since it wrote the model's parameters
};

} // namespace detail
UNISONO_NAMESPACE_END
