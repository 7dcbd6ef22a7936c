#pragma once

/// \file
/// What a model made of another one passes on unchanged.

#include "unisono/model/model.hpp"

#include <concepts>
#include <cstddef>
#include <exception>
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

// A model that computes with an image of its parameters, or wraps one that does. No other has anything to do.

template <class M>
void age_image(M& model) {
    if constexpr (requires { model.age_image(); }) model.age_image();
    else if constexpr (requires { model.wrapped(); }) age_image(model.wrapped());
}
template <class M>
void show_image(M& model) {
    if constexpr (requires { model.show_image(); }) model.show_image();
    else if constexpr (requires { model.wrapped(); }) show_image(model.wrapped());
}

/// During a call of a trainer. Before it, others may have written parameters, by whatever span they hold: the image counts as out of date.
/// At its end the image is that of the parameters, also where it ends by an exception.
template <class M>
class ShowsImage {
public:
    explicit ShowsImage(M& model) : model_(&model), thrown_(std::uncaught_exceptions()) { age_image(model); }
    ShowsImage(const ShowsImage&) = delete;
    ShowsImage& operator=(const ShowsImage&) = delete;
    ~ShowsImage() noexcept(false) {
        if (std::uncaught_exceptions() == thrown_) {
            show_image(*model_);
        } else {
            try {
                show_image(*model_);
            } catch (...) { // the exception on its way says more
            }
        }
    }

private:
    M* model_;
    int thrown_;
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

/// A wrapper whose parameters and gradients are others than the model's, which are an image of them. The model's parameters are
/// written before each call of the model, and its gradients are taken to where the trainer sees them, and zeroed, as soon as they are
/// complete. A trainer writes the image before each of its own calls returns (`show_image`), and says when it is out of date
/// (`age_image`); calls of the model write it again only where it is. `parameters()` of a wrapper lets others write, and so ages the image.
///
/// `Wrapper` derives from it and has `refresh()`, which writes the model's parameters (and maybe `fresh()`: no need to now), and for its base alone `take(p)`: adds the
/// model's p-th gradient to the trainer's and zeroes the model's, and `zero(p)`: the latter alone. Calls `expect(parameters)` once.
template <class Wrapper, class M>
class ImageOfModel : public WrappedModel<M> {
public:
    explicit ImageOfModel(M& model) : WrappedModel<M>(model) {}
    ImageOfModel(const ImageOfModel&) = delete;
    ImageOfModel& operator=(const ImageOfModel&) = delete;

    template <class Batch>
        requires requires(M& m, const Batch& batch, Pass& pass) {
            { m(batch, pass) } -> std::convertible_to<double>;
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

    /// The parameters may have changed since the model's were written. For trainers.
    void age_image() {
        shown_ = false;
        detail::age_image(this->wrapped());
    }
    /// The model's parameters are those of now, until `age_image`; those of a model that it wraps, too. For trainers.
    void show_image() {
        renew();
        shown_ = true;
        detail::show_image(this->wrapped());
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
        detail::age_image(this->wrapped());
    }
    Wrapper& self() { return static_cast<Wrapper&>(*this); }

    std::vector<bool> taken_; ///< in this call
    bool clean_ = true;       ///< the model's gradients are zero
    bool shown_ = false;      ///< a trainer lives, and nothing has changed since it wrote the model's parameters
};

} // namespace detail
UNISONO_NAMESPACE_END
