#pragma once

/// \file
/// A model in units: it holds neither parameters nor gradients, but asks for those of one unit (a layer, say) after the other.
/// So a rank need not have all of them at a time.
///
/// | member                                   | meaning                                                                 |
/// |------------------------------------------|-------------------------------------------------------------------------|
/// | `using Element = float`                  | of parameters and gradients; or double; of 16 bits with MasterWeights      |
/// | `units()`                                | a range of sizes: the elements of each unit, in the order of the forward pass; none is empty |
/// | `initialise(unit, std::span<Element>)`   | writes a unit's first values; called once for each unit, in order, on every rank; rank 0's count |
/// | `model(batch, UnitPass<Element>&)` -> loss | one micro-batch, forward and backward                                 |
/// | `evaluate(batch, UnitPass<Element>&, metrics...)` (optional) | forward alone                                       |
/// | `predict(batch, UnitPass<Element>&)` (optional) | forward alone, as model.hpp                                    |
///
/// On a device (docs/device.md) it has `stream()`, too, and is given `DeviceSpan`s: initialise(unit, DeviceSpan<Element>), and as its pass
/// a DeviceUnitPass<Element>. What it has enqueued on its stream by the time a unit's memory is no longer its own still runs before others write there.
///
/// `gradient_kind`, `parameter_names()`, `parameter_shapes()`, `buffers()` and `buffer_names()` are as in model.hpp, where a unit
/// is one parameter.
///
/// A unit's memory is the model's from the call that asks for it until what that returned ends:
///
///     double operator()(const Batch& batch, un::UnitPass<float>& pass) {
///         for (std::size_t u = 0; u < layers; ++u) {
///             const auto weights = pass.parameters(u); // a span, until the end of this scope
///             forward(u, weights, batch);
///         }
///         for (std::size_t u = layers; u-- > 0;) {
///             const auto weights = pass.parameters(u);
///             backward(u, weights, pass.gradient(u)); // adds to zeros
///             pass.ready(u);                          // complete: it travels, while the model goes on
///         }
///         return loss;
///     }
///
/// Laws (broken ones are refused, with the unit)
/// - Units are asked for in order, 0 to n - 1, and then, in a call that trains, from n - 1 to 0; some may be left out, one may be
///   asked for again before the next. So all ranks move the same units in the same order, also those without a micro-batch.
/// - The backward pass begins with the last unit, or where a gradient is asked for.
/// - The parameters of one unit are held at a time; a gradient is complete when `ready` says so, or the next unit is asked for, or
///   the call ends.
/// - Tokens (`pass.count_tokens`) are counted before the first gradient is complete.

#include "unisono/model/model.hpp"
#include "unisono/model/pass.hpp"

#include <cstddef>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// What a pass asks of the holder of the memory.
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

/// The parameters of a unit, the model's to read until this ends. Converts to a span.
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

/// Given to a model in units with each micro-batch. Not copied, not kept.
template <class T>
class UnitPass : public Pass {
public:
    UnitPass(const PassFacts& facts, detail::UnitKeeper<T>& keeper)
        : Pass(
              facts, [](void* self, std::size_t unit) { static_cast<detail::UnitKeeper<T>*>(self)->complete(unit); },
              &keeper),
          keeper_(&keeper) {}

    /// A unit's parameters. May wait for the other ranks' slices; the next unit's are then on their way.
    /// \throws error bad_input: out of order, or another unit is still held
    [[nodiscard]] UnitParameters<T> parameters(std::size_t unit) { return {*keeper_, unit}; }

    /// Zeros, to which the model adds this micro-batch's gradient of the unit; in the backward pass. The same memory if asked for
    /// again. Valid until the gradient is complete. \throws error bad_input: out of order, complete already, or no training
    [[nodiscard]] std::span<T> gradient(std::size_t unit) { return keeper_->gradient(unit); }

protected:
    detail::UnitKeeper<T>* keeper_;
};

/// The same on a device. Converts to a DeviceSpan.
template <class T>
class DeviceUnitParameters {
public:
    DeviceUnitParameters(detail::UnitKeeper<T>& keeper, std::size_t unit) : held_(keeper, unit) {}

    [[nodiscard]] DeviceSpan<const T> span() const { return {held_.data(), held_.size()}; }
    [[nodiscard]] operator DeviceSpan<const T>() const { return span(); } // NOLINT(google-explicit-constructor)
    [[nodiscard]] const T* data() const { return held_.data(); }          ///< an address of the device's
    [[nodiscard]] std::size_t size() const { return held_.size(); }

private:
    UnitParameters<T> held_;
};

/// As UnitPass, for models on a device.
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
