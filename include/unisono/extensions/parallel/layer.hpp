#pragma once

/// \file
/// A layer: a part of a model that gets its memory, parameters and activations from outside, so
/// that it can be on any rank. Members:
/// - `inputs()`, `outputs()`: elements per sample;
/// - `forward(LayerForward<T>&)`: writes `output` from `input` and `parameters`;
/// - `backward(LayerBackward<T>&)`: from `output_gradient`, adds to `gradient` and writes
///   `input_gradient` (empty if not needed);
/// - `parameters()` (optional): the number of parameters; without it there are none;
/// - `initialise(std::span<T>)` (with parameters): writes their initial values;
/// - `kept()` (optional): the number of elements per sample that `forward` writes to `kept` for
///   `backward`, beside input and output;
/// - `most_over_ranks(std::span<double>)` (of a layer that is spread over the ranks of a group):
///   replaces numbers by the largest of any of these ranks. Collective.
///
/// Laws: a layer holds no memory that grows with the model. `forward` and `backward` read only
/// their arguments. `initialise` depends on the layer alone (no random numbers from a common
/// state), so a layer has the same initial values on any rank. `forward` may be called again before
/// `backward` with the same input; it then writes the same output.
///
/// Deliberately absent: layers (use your own loops, or your library's), except those that need
/// collectives: branches.hpp, tensor.hpp.

#include "unisono/arithmetic/values.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/pass.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// One layer's forward pass over a micro-batch. Spans hold sample after sample.
template <class T>
struct LayerForward {
    std::size_t samples = 0;
    std::span<const T> parameters = {};
    std::span<const T> input = {};
    std::span<T> output = {};
    std::span<T> kept = {};
    const Pass* pass = nullptr;   ///< the pass while training; null while predicting
    std::size_t first_sample = 0; ///< index of the micro-batch's first sample in the batch

    [[nodiscard]] bool training() const { return pass != nullptr; }
    /// During training: random numbers of one sample in one use, as `Pass::random(row, use)`. They
    /// do not depend on how batches are cut.
    [[nodiscard]] CounterRandom random(std::size_t sample, std::uint32_t use = 0) const {
        if (pass == nullptr)
            refuse_input("LayerForward::random: this is no training pass; expected a call only if training() is true");
        return pass->random(first_sample + sample, use);
    }
};

/// One layer's backward pass over a micro-batch.
template <class T>
struct LayerBackward {
    std::size_t samples = 0;
    std::span<const T> parameters = {};
    std::span<const T> input = {};
    std::span<const T> output = {};
    std::span<const T> kept = {};
    std::span<const T> output_gradient = {};
    std::span<T> input_gradient = {}; ///< written by the layer; empty if not needed
    std::span<T> gradient = {};       ///< gradient of the parameters; the layer adds to it
};

/// Layers of a split model, over elements of type T: forward, backward, and parameters, if any.
template <class L, class T>
concept layer_of = detail::movable_value<L> &&
                   requires(L& layer, LayerForward<T>& ahead, LayerBackward<T>& back, std::span<T> values) {
                       { layer.inputs() } -> std::convertible_to<std::size_t>;
                       { layer.outputs() } -> std::convertible_to<std::size_t>;
                       layer.forward(ahead);
                       layer.backward(back);
                       requires !requires { layer.parameters(); } || requires { layer.initialise(values); };
                   };

namespace detail {

/// value += more; also for elements of 16 bits.
template <class T>
void add_to(T& value, const T& more) {
    using Wide = accumulator_t<T>;
    value = static_cast<T>(static_cast<Wide>(value) + static_cast<Wide>(more));
}

template <class T>
class AnyLayer {
public:
    virtual ~AnyLayer() = default;
    virtual void initialise(std::span<T> values) = 0;
    virtual void forward(LayerForward<T>& call) = 0;
    virtual void backward(LayerBackward<T>& call) = 0;
    virtual void most_over_ranks(std::span<double> values) const = 0;

    std::size_t inputs = 0, outputs = 0, parameters = 0, kept = 0;
};

template <class T, layer_of<T> L>
class OneLayer final : public AnyLayer<T> {
public:
    explicit OneLayer(L layer) : layer_(std::move(layer)) {
        this->inputs = static_cast<std::size_t>(layer_.inputs());
        this->outputs = static_cast<std::size_t>(layer_.outputs());
        if constexpr (requires { layer_.parameters(); })
            this->parameters = static_cast<std::size_t>(layer_.parameters());
        if constexpr (requires { layer_.kept(); }) this->kept = static_cast<std::size_t>(layer_.kept());
    }
    void initialise(std::span<T> values) override {
        if constexpr (requires { layer_.initialise(values); }) layer_.initialise(values);
    }
    void forward(LayerForward<T>& call) override { layer_.forward(call); }
    void backward(LayerBackward<T>& call) override { layer_.backward(call); }
    void most_over_ranks([[maybe_unused]] std::span<double> values) const override {
        if constexpr (requires { layer_.most_over_ranks(values); }) layer_.most_over_ranks(values);
    }

private:
    L layer_;
};

} // namespace detail

/// A model as a sequence of layers, of any types. Move-only.
template <floating_element T>
class Layers {
public:
    using Element = T;

    Layers() = default;
    /// `Layers<float> layers{Dense{784, 100}, Relu{100}, Dense{100, 10}};`
    template <class... L>
        requires(sizeof...(L) > 0 && !(std::same_as<L, Layers> || ...)) && (layer_of<L, T> && ...)
    explicit Layers(L... layers) {
        (add(std::move(layers)), ...);
    }

    /// \throws error bad_input: no inputs or outputs, or inputs that differ from the last layer's
    /// outputs
    template <layer_of<T> L>
    Layers& add(L layer) {
        auto made = std::make_unique<detail::OneLayer<T, L>>(std::move(layer));
        const std::size_t number = layers_.size();
        if (made->inputs == 0 || made->outputs == 0)
            refuse_input({"Layers: layer ", number, " has ", made->inputs, " inputs and ", made->outputs,
                          " outputs; expected 1 or more"});
        if (number != 0 && layers_.back()->outputs != made->inputs)
            refuse_input({"Layers: layer ", number, " has ", made->inputs, " inputs, but layer ", number - 1, " has ",
                          layers_.back()->outputs, " outputs; expected the same number"});
        layers_.push_back(std::move(made));
        return *this;
    }

    [[nodiscard]] std::size_t size() const { return layers_.size(); }
    [[nodiscard]] detail::AnyLayer<T>& operator[](std::size_t i) const { return *layers_[i]; }
    /// The number of parameters of all layers.
    [[nodiscard]] std::size_t parameters() const {
        std::size_t all = 0;
        for (const auto& one : layers_) all += one->parameters;
        return all;
    }

private:
    std::vector<std::unique_ptr<detail::AnyLayer<T>>> layers_;
};

UNISONO_NAMESPACE_END
