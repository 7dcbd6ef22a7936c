// Runs the network's kernels on the GPU: by Thrust, on the network's stream. Tests run them
// elsewhere, by a header of their own.
#pragma once

#ifdef DIGITS_KERNELS
#include DIGITS_KERNELS
#else

#include <unisono/nccl.hpp>

#include <cstddef>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/execution_policy.h>

namespace digits {

/// Enqueues body(n) for n in [0, count).
template <class Body>
void launch(cudaStream_t stream, std::size_t count, const Body& body) {
    thrust::for_each_n(thrust::cuda::par_nosync.on(stream), thrust::counting_iterator<std::size_t>(0), count, body);
}
/// The address by which a kernel accesses memory of the device.
template <class T>
T* in_kernel(T* of_device) {
    return of_device;
}

} // namespace digits

#endif
