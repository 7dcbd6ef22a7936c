// What a model of the tests does on a device, in the order of its stream: by CUDA if the tests run
// on a GPU (UNISONO_TEST_ON_GPU, on_gpu.sh), otherwise by the stand-in.
#pragma once

#ifndef UNISONO_TEST_ON_GPU
#include "extensions/nccl/stand_in/arithmetic.hpp"
#endif
#include "extensions/nccl/small_kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace test {

#ifdef UNISONO_TEST_ON_GPU

/// Only the stand-in counts the bytes that cross the bus, and records the calls.
inline constexpr bool bytes_are_counted = false;
struct Crossed {
    std::size_t bytes_to_host = 0, bytes_to_device = 0;
};
inline Crossed crossed_the_bus() { return {}; }

template <class T>
std::vector<std::remove_const_t<T>> read_device(un::DeviceSpan<T> from) {
    return download(from);
}
template <class T>
void write_device(un::DeviceSpan<T> to, const std::vector<T>& values) {
    copy_to_device(to, values);
}

/// The host's memory need not live longer than the call: pageable memory is copied at once.
template <class T>
void enqueue_write(cudaStream_t stream, un::DeviceSpan<T> to, const std::vector<T>& values) {
    un::detail::check_cuda(cudaMemcpyAsync(to.data(), values.data(), to.size_bytes(), cudaMemcpyHostToDevice, stream),
                           "cudaMemcpyAsync");
}

template <class T>
__global__ void add_each(T* to, const T* add, std::size_t count) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) to[i] = static_cast<T>(un::detail::widen(to[i]) + un::detail::widen(add[i]));
}
template <class T>
void enqueue_add(cudaStream_t stream, un::DeviceSpan<T> to, const std::vector<T>& add) {
    if (add.empty()) return;
    T* copied = nullptr;
    un::detail::check_cuda(cudaMallocAsync(&copied, to.size_bytes(), stream), "cudaMallocAsync");
    enqueue_write(stream, un::DeviceSpan<T>(copied, add.size()), add);
    add_each<<<static_cast<unsigned>((add.size() + 127) / 128), 128, 0, stream>>>(to.data(), copied, add.size());
    un::detail::check_cuda(cudaGetLastError(), "add_each");
    un::detail::check_cuda(cudaFreeAsync(copied, stream), "cudaFreeAsync");
}

/// Counts in `different` if the memory does not hold these values when the stream gets here.
template <class T>
void enqueue_compare(cudaStream_t stream, un::DeviceSpan<const T> at, const std::vector<T>& values,
                     std::atomic<int>& different) {
    if (values.empty()) return;
    // A function in a stream may not free pinned memory, so it stays: the tests have little of it.
    void* copied = nullptr;
    un::detail::check_cuda(cudaMallocHost(&copied, at.size_bytes()), "cudaMallocHost");
    un::detail::check_cuda(cudaMemcpyAsync(copied, at.data(), at.size_bytes(), cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync");
    launch_on_host(stream, [copied, values, &different] {
        if (std::memcmp(copied, values.data(), values.size() * sizeof(T)) != 0) ++different;
    });
}

#else

inline constexpr bool bytes_are_counted = true;
inline stand_in::Counts crossed_the_bus() { return stand_in::counts(); }

template <class T>
auto* seen(T* at) {
    return reinterpret_cast<T*>(stand_in::seen_by_host(at));
}
template <class T>
std::vector<std::remove_const_t<T>> read_device(un::DeviceSpan<T> from) {
    return {seen(from.data()), seen(from.data()) + from.size()};
}
template <class T>
void write_device(un::DeviceSpan<T> to, const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), seen(to.data()));
}
template <class T>
void enqueue_write(cudaStream_t stream, un::DeviceSpan<T> to, const std::vector<T>& values) {
    stand_in::launch(stream, [to = seen(to.data()), values] { std::copy(values.begin(), values.end(), to); });
}
template <class T>
void enqueue_add(cudaStream_t stream, un::DeviceSpan<T> to, const std::vector<T>& add) {
    stand_in::launch(stream, [to = seen(to.data()), add] {
        for (std::size_t i = 0; i < add.size(); ++i)
            to[i] = static_cast<T>(un::detail::widen(to[i]) + un::detail::widen(add[i]));
    });
}
template <class T>
void enqueue_compare(cudaStream_t stream, un::DeviceSpan<const T> at, const std::vector<T>& values,
                     std::atomic<int>& different) {
    stand_in::launch(stream, [at = seen(at.data()), values, &different] {
        if (std::memcmp(at, values.data(), values.size() * sizeof(T)) != 0) ++different;
    });
}

#endif

} // namespace test
