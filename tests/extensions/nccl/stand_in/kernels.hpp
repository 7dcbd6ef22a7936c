// The stand-in's kernels: the host's code combines, in the order of the stream.
#pragma once

#include "stand_in.hpp"

#include <unisono/arithmetic/operations.hpp>
#include <unisono/arithmetic/stream_kernel.hpp>

#include <cstddef>
#include <vector>

UNISONO_NAMESPACE_BEGIN

template <class Op, class T>
    requires reduction_operation<Op, T>
struct StreamKernel<Op, T> {
    static void call(const void* state, const std::byte* const* sources, std::size_t source_count,
                     std::byte* const* targets, std::size_t target_count, std::size_t count, void* stream) {
        const Op operation = state == nullptr ? Op{} : *static_cast<const Op*>(state);
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (std::size_t i = 0; i < source_count; ++i) from.push_back(stand_in::seen_by_host(sources[i]));
        for (std::size_t i = 0; i < target_count; ++i) to.push_back(stand_in::seen_by_host(targets[i]));
        stand_in::launch(static_cast<cudaStream_t>(stream), [=] {
            const Reduction reduction = make_reduction<Op, T>(operation);
            reduction.combine(reduction.state, from.data(), from.size(), to.data(), to.size(), count);
        });
    }
};

UNISONO_NAMESPACE_END
