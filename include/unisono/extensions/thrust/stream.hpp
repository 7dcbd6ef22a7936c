#pragma once

/// \file
/// Kernels for a CUDA stream, by Thrust: for sources that nvcc compiles. What has run on a GPU: see
/// docs/device.md.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/extensions/device/kernel_sources.hpp"
#include "unisono/extensions/thrust/thrust.hpp"

#include <cuda_runtime_api.h>
#include <thrust/system/cuda/execution_policy.h>

#include <array>
#include <cstddef>
#include <span>

UNISONO_KERNELS_ARE_OF(headers)

UNISONO_NAMESPACE_BEGIN

/// Any operation whose call operator also compiles for the device.
template <class Op, class T>
    requires reduction_operation<Op, T>
struct StreamKernel<Op, T> {
    /// At most 32 sources and targets. \throws error bad_input: more of them; thrust::system_error:
    /// CUDA's errors
    static void call(const void* state, const std::byte* const* sources, std::size_t source_count,
                     std::byte* const* targets, std::size_t target_count, std::size_t count, void* stream) {
        detail::check_kernel_sources();
        if (source_count > detail::thrust_most_arrays) detail::refuse_array_count("sources", source_count);
        if (target_count > detail::thrust_most_arrays) detail::refuse_array_count("targets", target_count);
        std::array<const T*, detail::thrust_most_arrays> from{};
        std::array<T*, detail::thrust_most_arrays> to{};
        for (std::size_t i = 0; i < source_count; ++i) from[i] = reinterpret_cast<const T*>(sources[i]);
        for (std::size_t i = 0; i < target_count; ++i) to[i] = reinterpret_cast<T*>(targets[i]);
        const auto policy = thrust::cuda::par_nosync.on(static_cast<cudaStream_t>(stream));
        const Op operation = state == nullptr ? Op{} : *static_cast<const Op*>(state);
        ThrustArithmetic(policy).template combine<T>(operation, std::span<const T* const>(from.data(), source_count),
                                                     std::span<T* const>(to.data(), target_count), count);
    }
};

/// The computations of a Trainer on the device. Enqueues on the stream and returns; functions that
/// return a number wait for it.
template <>
struct StreamArithmetic<cudaStream_t> : ThrustArithmetic<decltype(thrust::cuda::par_nosync.on(cudaStream_t{}))> {
    explicit StreamArithmetic(cudaStream_t stream) : ThrustArithmetic(thrust::cuda::par_nosync.on(stream)) {
        detail::check_kernel_sources();
    }
};

UNISONO_NAMESPACE_END
