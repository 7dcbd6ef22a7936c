#pragma once

/// \file
/// A model made of a function and memory, for code without a class of its own. Not in the umbrella.
///
///     using In = std::span<const float>;
///     using Out = std::span<float>;
///     un::FunctionalModel model(std::vector<float>(2), [](In w, const Batch& batch, Out g) {
///         ...          // writes the gradient of the batch's loss with respect to w to g
///         return loss;
///     });
///
/// - `FunctionalModel` owns its memory. Its function (parameters, batch, gradient) -> loss *writes*
///   the gradient; or it is (parameters, batch) -> {loss, gradient}.
/// - `BufferModel` uses two contiguous spans of yours. Its function (batch, pass) -> loss *adds* to
///   the gradients, as a model's call does.
///
/// For a gradient that is a sum over samples instead of their mean:
/// `un::functional_model<un::GradientKind::sum>(...)`,
/// `un::buffer_model<un::GradientKind::sum>(...)`.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Compute, class T, class Batch>
concept writes_gradient =
    requires(Compute& f, std::span<const T> parameters, const Batch& batch, std::span<T> gradient) {
        { f(parameters, batch, gradient) } -> std::convertible_to<double>;
    };
template <class Compute, class T, class Batch>
concept returns_gradient = requires(Compute& f, std::span<const T> parameters, const Batch& batch) {
    f(parameters, batch); // returns a pair, a tuple or a struct: a loss, and something that converts to a span
};

} // namespace detail

/// Parameters and a function of them, both owned by the model.
/// Memory: three arrays (two if the function returns its gradient). Cost: the gradient is read once
/// more when it is added.
/// Errors: bad_input if a returned gradient and the parameters differ in size.
template <floating_element T, class Compute, GradientKind Kind = GradientKind::mean>
class FunctionalModel {
public:
    static constexpr GradientKind gradient_kind = Kind;

    FunctionalModel(std::vector<T> parameters, Compute compute)
        : parameters_(std::move(parameters)), gradients_(parameters_.size()), compute_(std::move(compute)) {}

    [[nodiscard]] std::span<T> parameters() { return parameters_; }
    [[nodiscard]] std::span<T> gradients() { return gradients_; }

    template <class Batch>
        requires detail::writes_gradient<Compute, T, Batch> || detail::returns_gradient<Compute, T, Batch>
    double operator()(const Batch& batch, Pass& pass) {
        const std::span<const T> parameters(parameters_);
        if constexpr (detail::writes_gradient<Compute, T, Batch>) {
            written_.resize(parameters_.size());
            const auto loss = static_cast<double>(compute_(parameters, batch, std::span<T>(written_)));
            add(std::span<const T>(written_), pass.loss_scale());
            return loss;
        } else {
            const auto& [loss, gradient] = compute_(parameters, batch);
            const auto found = std::span(gradient);
            if (found.size() != parameters_.size())
                refuse_input({"FunctionalModel: the function returned a gradient of ", found.size(),
                              " elements; expected ", parameters_.size(), ", one for each parameter"});
            add(found, pass.loss_scale());
            return static_cast<double>(loss);
        }
    }

private:
    template <class Found>
    void add(std::span<Found> found, double scale) {
        using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
        const auto by = static_cast<Wide>(scale);
        for (std::size_t i = 0; i < found.size(); ++i)
            gradients_[i] = static_cast<T>(static_cast<Wide>(gradients_[i]) + static_cast<Wide>(found[i]) * by);
    }

    std::vector<T> parameters_, gradients_, written_;
    Compute compute_;
};

/// Contiguous memory of the user's, which must outlive the model, and a function that adds to its
/// gradients.
template <floating_element T, class Compute, GradientKind Kind = GradientKind::mean>
class BufferModel {
public:
    static constexpr GradientKind gradient_kind = Kind;

    /// \throws error bad_input: spans of different sizes
    BufferModel(std::span<T> parameters, std::span<T> gradients, Compute compute)
        : parameters_(parameters), gradients_(gradients), compute_(std::move(compute)) {
        if (parameters.size() != gradients.size())
            refuse_input({"BufferModel: found ", parameters.size(), " parameters and ", gradients.size(),
                          " gradients; expected the same number"});
    }

    [[nodiscard]] std::span<T> parameters() { return parameters_; }
    [[nodiscard]] std::span<T> gradients() { return gradients_; }

    template <class Batch>
        requires requires(Compute& f, const Batch& batch, Pass& pass) {
            { f(batch, pass) } -> std::convertible_to<double>;
        }
    double operator()(const Batch& batch, Pass& pass) {
        return static_cast<double>(compute_(batch, pass));
    }

private:
    std::span<T> parameters_, gradients_;
    Compute compute_;
};

template <class Parameters, class Gradients, class Compute>
BufferModel(Parameters&&, Gradients&&, Compute)
    -> BufferModel<typename decltype(std::span(std::declval<Parameters&>()))::element_type, Compute>;

/// A FunctionalModel whose gradient is of the given kind.
template <GradientKind Kind, floating_element T, class Compute>
[[nodiscard]] auto functional_model(std::vector<T> parameters, Compute compute) {
    return FunctionalModel<T, Compute, Kind>(std::move(parameters), std::move(compute));
}
/// A BufferModel whose gradient is of the given kind.
template <GradientKind Kind, class Parameters, class Gradients, class Compute>
[[nodiscard]] auto buffer_model(Parameters&& parameters, Gradients&& gradients, Compute compute) {
    using T = typename decltype(std::span(parameters))::element_type;
    return BufferModel<T, Compute, Kind>(std::span<T>(parameters), std::span<T>(gradients), std::move(compute));
}

UNISONO_NAMESPACE_END
