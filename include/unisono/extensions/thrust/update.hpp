#pragma once

/// \file
/// A `DeviceModel` on one of Thrust's systems: copies, and an optimizer's update in one pass
/// through memory (device/fused_update.hpp). The optimizer's state is in that system's memory.
///
///     using Vector = thrust::device_vector<float>;
///     auto state = un::thrust_optimizer_state<Vector>(policy.state(), parameters.size());
///     un::update_on(on, policy, state.all(), parameters, gradients,
///                   {.learning_rate = 1e-3, .number = n});

#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/extensions/device/model.hpp"
#include "unisono/extensions/thrust/thrust.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <memory>
#include <span>

#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/fill.h>

UNISONO_NAMESPACE_BEGIN

/// Copies between the host and the device system for which the program is compiled: with nvcc a
/// GPU, on the default stream. If the model uses a stream that does not synchronise with the
/// default stream, the model's work must be finished when its call returns, and when it calls
/// `ready`.
struct ThrustCopies {
    template <class T>
    void to_host(std::span<T> to, std::span<const T> from) const {
        const auto first = thrust::device_pointer_cast(from.data());
        thrust::copy(first, first + static_cast<std::ptrdiff_t>(from.size()), to.data());
    }
    template <class T>
    void to_device(std::span<T> to, std::span<const T> from) const {
        thrust::copy(from.data(), from.data() + from.size(), thrust::device_pointer_cast(to.data()));
    }
    template <class T>
    void zero(std::span<T> values) const {
        thrust::fill_n(thrust::device_pointer_cast(values.data()), values.size(), T{});
    }
};
static_assert(device_copies<ThrustCopies, float> && device_copies<ThrustCopies, bfloat16>);

/// An optimizer's state before the first update, in memory of Thrust's vectors, such as
/// `thrust::device_vector<float>`.
template <class Vector, class T = typename Vector::value_type>
[[nodiscard]] OptimizerState<T> thrust_optimizer_state(const StateArrays& arrays, std::size_t count) {
    OptimizerState<T> made(arrays, count, [](std::size_t bytes) {
        const auto memory = std::make_shared<Vector>(bytes / sizeof(T));
        return std::shared_ptr<std::byte>(memory, reinterpret_cast<std::byte*>(span_of(*memory).data()));
    });
    for (std::size_t i = 0; i < made.size(); ++i)
        thrust::fill_n(typename Vector::pointer(made.array(i).data()), count, static_cast<T>(arrays[i].initial));
    return made;
}

UNISONO_NAMESPACE_END
