// What the tests of CudaModel ask of a device: by LibTorch with UNISONO_TEST_ON_GPU, else by the
// stand-in.
#pragma once

#include <string>

#if defined(UNISONO_TEST_ON_GPU)
#include <unisono_libtorch_cuda.hpp>

#include <c10/cuda/CUDAGuard.h>

namespace test {

class TorchStream {
public:
    void make_current() const { c10::cuda::setCurrentCUDAStream(stream_); }
    ~TorchStream() {
        stream_.synchronize();
        if (c10::cuda::getCurrentCUDAStream() == stream_)
            c10::cuda::setCurrentCUDAStream(c10::cuda::getDefaultCUDAStream());
    }

private:
    c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
};

/// A device's gradients are late without help.
struct Late {
    explicit Late(const std::vector<torch::Tensor>&) {}
};
inline void delay(cudaStream_t) {}

/// LibTorch has the same bits in each run, and computes convolutions in float.
inline void set_up() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    at::globalContext().setAllowTF32CuDNN(false);
}
/// The stand-in alone notes what is forbidden, and what is left.
inline std::string misuse() { return {}; }

} // namespace test
#else
#include <unisono/nccl.hpp>

#include <unisono_libtorch_cuda.hpp>

namespace test {

inline void set_up() {}
inline std::string misuse() {
    std::string all;
    for (const std::string& one : stand_in::take_misuse()) all += one + "; ";
    const stand_in::Counts left = stand_in::counts();
    if (left.streams != 0 || left.events != 0 || left.device_bytes != 0 || left.pinned_bytes != 0)
        all += "streams, events or memory are left";
    return all;
}

} // namespace test
#endif
