// The stand-in's arithmetic and combinations by Thrust, on its system of one thread. Include it
// instead of arithmetic.hpp and kernels.hpp, before all other headers.
#pragma once

#include "thrust_kernels.hpp"

#include "on_stream.hpp"

#include <unisono/arithmetic/operations.hpp>
#include <unisono/arithmetic/stream_kernel.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

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
