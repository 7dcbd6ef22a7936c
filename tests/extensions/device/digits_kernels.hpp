// The kernels of examples/digits_on_gpu and of the library on the stand-in: by Thrust, on its
// system of one thread.
#pragma once

#include "extensions/nccl/stand_in/thrust_arithmetic.hpp"

#include <unisono/nccl.hpp>

#include <cstddef>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>

namespace digits {

template <class Body>
void launch(cudaStream_t stream, std::size_t count, const Body& body) {
    stand_in::launch(stream, [count, body] {
        thrust::for_each_n(thrust::cpp::par, thrust::counting_iterator<std::size_t>(0), count, body);
    });
}
template <class T>
T* in_kernel(T* of_device) {
    return reinterpret_cast<T*>(stand_in::seen_by_host(of_device));
}

} // namespace digits
