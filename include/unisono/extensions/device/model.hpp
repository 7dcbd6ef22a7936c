#pragma once

/// \file
/// A model whose parameters and gradients are in memory that host code must not access, such as a
/// GPU's, trained through host memory.
///
///     Network network; // parameters() and gradients() are addresses of the device
///     un::DeviceModel model(network, un::ThrustCopies(thrust::device)); // thrust.hpp
///     un::Trainer trainer{world, model, un::AdamW{}}; // any policy, any transport
///
/// This works with every policy and transport, and is slow: see docs/device.md.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/own_memory.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Copies elements to the host and back. Each call returns when its copy is done. A copy runs after
/// all work that the model has enqueued before, and later work of the model sees its result.
template <class C, class T>
concept device_copies = requires(const C& copies, std::span<T> to, std::span<const T> from) {
    copies.to_host(to, from);   ///< `from` is the device's
    copies.to_device(to, from); ///< `to` is the device's
    copies.zero(to);            ///< `to` is the device's
};

/// A host model around a model of the same element type in other memory. The trainer uses the host
/// model's parameters and gradients, which are in host memory. Each call (training, `evaluate`,
/// `predict`, `refresh`) writes the device's parameters before the model runs, so other writes to
/// them are lost. The device's parameters are current whenever a call of a trainer returns, throws,
/// or calls `on_update`. After other code writes the host's parameters, the trainer sees the change
/// at its next call, and the device after the next `parameters()` or `refresh()`. The model must
/// outlive this object, and its memory must not move.
///
/// Determinism: the bits are those of training with the model's memory on the host, if the model
/// computes the same bits. Host memory: parameters, gradients, and the largest parameter once more.
/// Cost of an update, and of a trainer's call: parameters go to the device once. Cost of a
/// micro-batch: each gradient comes back once and is zeroed on the device as soon as the model
/// reports it as ready.
/// \throws error bad_input: spans that do not match
template <model M, class Copies>
    requires device_copies<Copies, parameter_element_t<M>>
class DeviceModel : public detail::ConvertedModel<DeviceModel<M, Copies>, M> {
    using Frame = detail::ConvertedModel<DeviceModel<M, Copies>, M>;
    friend Frame; // take, zero
public:
    using T = parameter_element_t<M>;
    static_assert(
        !requires(M& m) { m.buffers(); },
        "unisono::DeviceModel: found a model with buffers. Required: none. Why: they would be read where they are, "
        "in memory of the device.");

    explicit DeviceModel(M& model, const Copies& copies = {})
        : detail::ConvertedModel<DeviceModel<M, Copies>, M>(model), copies_(copies) {
        std::size_t count = 0;
        std::size_t longest = 0;
        detail::for_each_span(model.parameters(), [&](auto one) { // spans of addresses, or DeviceSpans
            device_.push_back({one.data(), one.size()});
            count += one.size();
            longest = std::max(longest, one.size());
        });
        detail::for_each_span(model.gradients(), [&](auto one) {
            device_gradients_.push_back({one.data(), one.size()});
        });
        detail::check_pairs("DeviceModel: ", device_, device_gradients_, detail::ParameterLabels(model));
        weights_.resize(count);
        gradients_.resize(count);
        arrived_.resize(longest);
        std::size_t at = 0;
        for (std::size_t p = 0; p < device_.size(); ++p) {
            const std::size_t n = device_[p].size();
            weight_spans_.push_back({weights_.data() + at, n});
            gradient_spans_.push_back({gradients_.data() + at, n});
            if (n != 0) copies_.to_host(weight_spans_[p], std::span<const T>(device_[p]));
            zero(p);
            at += n;
        }
        this->expect(device_.size());
    }

    [[nodiscard]] std::span<const std::span<T>> parameters() {
        this->age_copy();
        return weight_spans_;
    }
    [[nodiscard]] std::span<const std::span<T>> gradients() { return gradient_spans_; }

    /// Writes the device's parameters. Call it after code other than a trainer wrote the host's
    /// parameters, before you use the model by itself.
    void refresh() {
        for (std::size_t p = 0; p < device_.size(); ++p)
            if (!device_[p].empty()) copies_.to_device(device_[p], std::span<const T>(weight_spans_[p]));
    }

private:
    void take(std::size_t p) {
        if (device_[p].empty()) return;
        const std::span<T> arrived(arrived_.data(), device_[p].size());
        copies_.to_host(arrived, std::span<const T>(device_gradients_[p]));
        accumulate(gradient_spans_[p], arrived);
        zero(p);
    }
    void zero(std::size_t p) {
        if (!device_[p].empty()) copies_.zero(device_gradients_[p]);
    }

    std::vector<std::span<T>> device_, device_gradients_;
    std::vector<T> weights_, gradients_, arrived_;
    std::vector<std::span<T>> weight_spans_, gradient_spans_;
    Copies copies_;
};

UNISONO_NAMESPACE_END
