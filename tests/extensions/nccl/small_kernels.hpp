// Kernels of the tests, in the order of a stream: by CUDA if the tests run on a GPU (compiled by
// nvcc), otherwise by the stand-in.
#pragma once

#include "support.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace test {

/// The function of a kernel on each element.
struct Affine {
    float factor = 1, summand = 0;
    UNISONO_INLINE float operator()(float x) const { return factor * x + summand; }
};

#ifdef UNISONO_TEST_ON_GPU

template <class Change>
__global__ void change_all(float* data, std::size_t count, Change change) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) data[i] = change(data[i]);
}
inline void launch(cudaStream_t stream, un::DeviceSpan<float> data, const Affine& change) {
    change_all<<<static_cast<unsigned>((data.size() + 127) / 128), 128, 0, stream>>>(data.data(), data.size(), change);
    un::detail::check_cuda(cudaGetLastError(), "change_all");
}
/// Enqueues a function of the host; not in a capture.
inline void launch_on_host(cudaStream_t stream, std::function<void()> work) {
    auto kept = std::make_unique<std::function<void()>>(std::move(work));
    const auto run = [](void* given) {
        const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(given));
        (*mine)();
    };
    un::detail::check_cuda(cudaLaunchHostFunc(stream, run, kept.get()), "cudaLaunchHostFunc");
    static_cast<void>(kept.release());
}

#else

inline void launch(cudaStream_t stream, un::DeviceSpan<float> data, const Affine& change) {
    auto* const seen = reinterpret_cast<float*>(stand_in::seen_by_host(data.data()));
    stand_in::launch(stream, [seen, count = data.size(), change] {
        for (std::size_t i = 0; i < count; ++i) seen[i] = change(seen[i]);
    });
}
inline void launch_on_host(cudaStream_t stream, std::function<void()> work) {
    stand_in::launch(stream, std::move(work));
}

#endif

/// Later work on the stream waits until `open`, but no longer than `longest`. `open` must outlive
/// that.
inline void hold_back(cudaStream_t stream, const std::atomic<bool>& open,
                      std::chrono::seconds longest = std::chrono::minutes(1)) {
    launch_on_host(stream, [&open, longest] {
        const auto until = std::chrono::steady_clock::now() + longest;
        while (!open && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    });
}

} // namespace test
