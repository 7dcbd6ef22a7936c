#pragma once

/// \file
/// A model in units holds neither parameters nor gradients. It asks the trainer for those of one
/// unit (such as a layer) after another. So a rank need not hold all of them at the same time.
///
/// Members:
/// - `using Element = float` (or double; 16 bits with MasterWeights): the type of parameters and
///   gradients;
/// - `units()`: a range of sizes: the number of elements of each unit, in the order of the forward
///   pass; no unit is empty;
/// - `initialise(unit, std::span<Element>)`: writes a unit's first values. Called once for each
///   unit, in order, on every rank; the values of rank 0 are used;
/// - `model(batch, UnitPass<Element>&)`: one micro-batch, forward and backward; returns the loss;
/// - `evaluate(batch, UnitPass<Element>&, metrics...)` (optional): a forward pass;
/// - `predict(batch, UnitPass<Element>&)` (optional): a forward pass, as in model/model.hpp.
///
/// On a device (docs/device.md) the model also has `stream()`, and gets `DeviceSpan`s:
/// initialise(unit, DeviceSpan<Element>), and a DeviceUnitPass<Element> as its pass. Before a
/// unit's memory is overwritten, the work runs that the model had enqueued on its stream when it
/// released the memory.
///
/// `gradient_kind`, `parameter_names()`, `parameter_shapes()`, `buffers()` and `buffer_names()` are
/// as in model/model.hpp; each unit is one parameter.
///
/// A unit's memory belongs to the model from the call that asks for it to the end of the returned
/// object:
///
///     double operator()(const Batch& batch, un::UnitPass<float>& pass) {
///         for (std::size_t u = 0; u < layers; ++u) {
///             const auto weights = pass.parameters(u); // a span, until the end of this scope
///             forward(u, weights, batch);
///         }
///         for (std::size_t u = layers; u-- > 0;) {
///             const auto weights = pass.parameters(u);
///             backward(u, weights, pass.gradient(u)); // adds to zeros
///             pass.ready(u);                          // complete: it travels meanwhile
///         }
///         return loss;
///     }
///
/// Laws (a violation is refused, with the unit)
/// - The model asks for units in order, 0 to n - 1, and then, in a training call, from n - 1 to 0.
///   It may leave out units, and may ask for a unit again before the next. So all ranks move the
///   same units in the same order, even if a rank has no micro-batch.
/// - The backward pass begins with the last unit, or when a gradient is asked for.
/// - The model holds the parameters of one unit at a time. A gradient is complete when the model
///   calls `ready`, when it asks for the next unit, or when the call ends.
/// - The model counts tokens (`pass.count_tokens`) before the first gradient is complete.

#include "unisono/model/model.hpp"
#include "unisono/model/pass.hpp"

#include <cstddef>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The interface between a pass and the object that holds the memory.
template <class T>
class UnitKeeper {
public:
    virtual std::span<const T> acquire(std::size_t unit) = 0;
    virtual void release() noexcept = 0;
    virtual std::span<T> gradient(std::size_t unit) = 0;
    virtual void complete(std::size_t unit) = 0;

protected:
    ~UnitKeeper() = default;
};

} // namespace detail

/// The parameters of a unit. The model may read them during this object's lifetime. Converts to a
/// span.
template <class T>
class UnitParameters {
public:
    UnitParameters(detail::UnitKeeper<T>& keeper, std::size_t unit) : values_(keeper.acquire(unit)), keeper_(&keeper) {}
    UnitParameters(UnitParameters&& other) noexcept
        : values_(other.values_), keeper_(std::exchange(other.keeper_, nullptr)) {}
    UnitParameters& operator=(UnitParameters&&) = delete;
    ~UnitParameters() {
        if (keeper_ != nullptr) keeper_->release();
    }

    [[nodiscard]] std::span<const T> span() const { return values_; }
    [[nodiscard]] operator std::span<const T>() const { return values_; } // NOLINT(google-explicit-constructor)
    [[nodiscard]] const T* data() const { return values_.data(); }
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] const T& operator[](std::size_t i) const { return values_[i]; }
    [[nodiscard]] const T* begin() const { return values_.data(); }
    [[nodiscard]] const T* end() const { return values_.data() + values_.size(); }

private:
    std::span<const T> values_;
    detail::UnitKeeper<T>* keeper_;
};

/// The pass of a model in units. Valid during the model's call; not copyable.
template <class T>
class UnitPass : public Pass {
public:
    UnitPass(const PassFacts& facts, detail::UnitKeeper<T>& keeper)
        : Pass(
              facts, [](void* self, std::size_t unit) { static_cast<detail::UnitKeeper<T>*>(self)->complete(unit); },
              &keeper),
          keeper_(&keeper) {}

    /// A unit's parameters. May wait for the slices of other ranks. Then the next unit's slices are
    /// being gathered.
    /// \throws error bad_input: out of order, or another unit is still held
    [[nodiscard]] UnitParameters<T> parameters(std::size_t unit) { return {*keeper_, unit}; }

    /// Memory for this micro-batch's gradient of the unit in the backward pass, zero at first. A
    /// second call returns the same memory. Valid until the gradient is complete.
    /// \throws error bad_input: out of order, complete already, or not a training pass
    [[nodiscard]] std::span<T> gradient(std::size_t unit) { return keeper_->gradient(unit); }

protected:
    detail::UnitKeeper<T>* keeper_;
};

/// The parameters of a unit on a device. Converts to a DeviceSpan.
template <class T>
class DeviceUnitParameters {
public:
    DeviceUnitParameters(detail::UnitKeeper<T>& keeper, std::size_t unit) : held_(keeper, unit) {}

    [[nodiscard]] DeviceSpan<const T> span() const { return {held_.data(), held_.size()}; }
    [[nodiscard]] operator DeviceSpan<const T>() const { return span(); } // NOLINT(google-explicit-constructor)
    [[nodiscard]] const T* data() const { return held_.data(); }          ///< a device address
    [[nodiscard]] std::size_t size() const { return held_.size(); }

private:
    UnitParameters<T> held_;
};

/// The UnitPass of models on a device.
template <class T>
class DeviceUnitPass : public UnitPass<T> {
public:
    using UnitPass<T>::UnitPass;
    [[nodiscard]] DeviceUnitParameters<T> parameters(std::size_t unit) { return {*this->keeper_, unit}; }
    [[nodiscard]] DeviceSpan<T> gradient(std::size_t unit) {
        const std::span<T> values = this->keeper_->gradient(unit);
        return {values.data(), values.size()};
    }
};

UNISONO_NAMESPACE_END
