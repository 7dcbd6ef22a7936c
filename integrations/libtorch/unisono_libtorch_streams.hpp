#pragma once

/// \file All that CudaModel knows of LibTorch's devices and streams. A test has another one, over a
/// stand-in for CUDA (tests/cuda/stand_in.hpp): UNISONO_LIBTORCH_STREAMS names it.

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <cuda_runtime_api.h>

namespace unisono::libtorch {

struct CudaStreams {
    /// The device with this number in this process.
    static torch::Device device(int ordinal) { return {torch::kCUDA, static_cast<c10::DeviceIndex>(ordinal)}; }
    /// Makes it the thread's current one.
    static void use(int ordinal) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(ordinal)); }
    /// LibTorch's current stream of this thread on the device.
    static cudaStream_t current(int ordinal) {
        return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(ordinal)).stream();
    }
    /// LibTorch's work on this stream is about to begin: it is enqueued behind the stream's.
    static void begin(cudaStream_t) {}
    /// LibTorch runs the backward pass of a device's tensors on a thread of that device, while this
    /// one waits.
    static void backward(const torch::Tensor& loss) { loss.backward(); }
};

} // namespace unisono::libtorch
