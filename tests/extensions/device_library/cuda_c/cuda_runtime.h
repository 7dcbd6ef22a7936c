// What a program in CUDA C needs to run over the stand-in for CUDA: the words of its kernels, and
// calls that C++ overloads. check.py has turned kernel<<<blocks, threads, 0, stream>>>(...) into
// stand_in::launched(kernel, blocks, threads, stream)(...). A kernel's threads run one by one, so
// that kernels with __syncthreads() are not for it.
#pragma once

#include "cuda_runtime_api.h"
#include "nccl.h"
#include "stand_in.hpp"

#include <cstddef>
#include <stdexcept>

#define __global__ static // NOLINT: CUDA's word

struct StandInIndex {
    int x = 0;
};
inline thread_local StandInIndex blockIdx, blockDim, threadIdx;

namespace stand_in {

inline thread_local int launches_left = -1; ///< before this thread's launch that throws; -1: none does

template <class T>
T seen(T value) {
    return value;
}
template <class T>
T* seen(T* of_device) {
    return reinterpret_cast<T*>(seen_by_host(of_device));
}

template <class Kernel>
auto launched(Kernel kernel, int blocks, int threads, cudaStream_t stream) {
    return [=](auto... arguments) {
        if (launches_left == 0) throw std::runtime_error("a kernel failed");
        if (launches_left > 0) --launches_left;
        launch(stream, [=, ... given = seen(arguments)] {
            blockDim.x = threads;
            for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
                for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(given...);
        });
    };
}

} // namespace stand_in

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
inline ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    return ncclCommInitRankConfig(made, ranks, id, rank, &config);
}
