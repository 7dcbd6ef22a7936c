#pragma once

/// \file
/// A `DeviceModel` on one of Thrust's systems: copies, and an optimizer's update in one pass
/// through memory (device/fused_update.hpp). The optimizer's state is in that system's memory.
///
///     using Vector = thrust::device_vector<float>;
///     auto state = un::ThrustOptimizerState<Vector>(policy.state(), parameters.size());
///     un::update_on(on, policy, state.all(), parameters, gradients,
///                   {.learning_rate = 1e-3, .number = n});

#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/extensions/device/model.hpp"
#include "unisono/extensions/thrust/thrust.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <span>
#include <vector>

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

/// An optimizer's state in Thrust's vectors, with the interface of `OptimizerState`.
template <class Vector>
class ThrustOptimizerState {
public:
    using T = typename Vector::value_type;

    ThrustOptimizerState() = default;
    ThrustOptimizerState(const StateArrays& arrays, std::size_t count) : count_(count) {
        vectors_.reserve(arrays.size());
        for (const StateArray& one : arrays) vectors_.emplace_back(count, static_cast<T>(one.initial));
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t size() const { return vectors_.size(); }
    [[nodiscard]] std::span<T> array(std::size_t i) { return span_of(vectors_[i]); }
    [[nodiscard]] OptimizerSlice<T> slice(std::size_t first, std::size_t count) {
        if (first > count_ || count > count_ - first)
            refuse_input({"optimizer state of ", count_, " elements has no slice [", first, ", +", count, ")"});
        OptimizerSlice<T> part;
        part.count = count;
        for (std::size_t i = 0; i < size() && count != 0; ++i) part.arrays[i] = array(i).data() + first;
        return part;
    }
    [[nodiscard]] OptimizerSlice<T> all() { return slice(0, count_); }

private:
    std::vector<Vector> vectors_;
    std::size_t count_ = 0;
};

UNISONO_NAMESPACE_END
