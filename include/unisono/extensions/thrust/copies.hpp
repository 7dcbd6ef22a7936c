#pragma once

/// \file
/// Copies for a `DeviceModel`, made by Thrust.

#include "unisono/extensions/device/model.hpp"
#include "unisono/extensions/thrust/thrust.hpp"

#include <cstddef>
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

UNISONO_NAMESPACE_END
