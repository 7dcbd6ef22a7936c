// The stand-in's arithmetic and combinations by Thrust, on its system of one thread. Include it
// instead of arithmetic.hpp and kernels.hpp, before all other headers. CCCL looks for CUDA's
// headers and would accept the stand-in's, so this file tells it that there are none.
#pragma once

#if defined(__CCCL_CONFIG)
#error "thrust_arithmetic.hpp must come before CCCL's headers"
#endif
#define __CCCL_CUDA_TOOLKIT_H     // NOLINT: CCCL's own guard
#define _CCCL_HAS_CTK() 0         // NOLINT
#define _CCCL_CTK_BELOW(...) 0    // NOLINT
#define _CCCL_CTK_AT_LEAST(...) 0 // NOLINT

#include <unisono/extensions/thrust/thrust.hpp>

#include <thrust/system/cpp/execution_policy.h>

#include "on_stream.hpp"

#include <unisono/arithmetic/operations.hpp>
#include <unisono/arithmetic/stream_kernel.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace stand_in {

using ThrustKernels = unisono::ThrustArithmetic<std::remove_cvref_t<decltype(thrust::cpp::par)>>;

} // namespace stand_in

UNISONO_NAMESPACE_BEGIN

template <>
struct StreamArithmetic<cudaStream_t> : stand_in::OnStream<stand_in::ThrustKernels> {
    using OnStream::OnStream;
};

template <class Op, class T>
    requires reduction_operation<Op, T>
struct StreamKernel<Op, T> {
    static void call(const void* state, const std::byte* const* sources, std::size_t source_count,
                     std::byte* const* targets, std::size_t target_count, std::size_t count, void* stream) {
        const Op operation = state == nullptr ? Op{} : *static_cast<const Op*>(state);
        std::vector<const T*> from;
        std::vector<T*> to;
        for (std::size_t i = 0; i < source_count; ++i)
            from.push_back(reinterpret_cast<const T*>(stand_in::seen_by_host(sources[i])));
        for (std::size_t i = 0; i < target_count; ++i)
            to.push_back(reinterpret_cast<T*>(stand_in::seen_by_host(targets[i])));
        stand_in::launch(static_cast<cudaStream_t>(stream), [=] {
            stand_in::ThrustKernels{}.template combine<T>(operation, std::span<const T* const>(from),
                                                          std::span<T* const>(to), count);
        });
    }
};

UNISONO_NAMESPACE_END
