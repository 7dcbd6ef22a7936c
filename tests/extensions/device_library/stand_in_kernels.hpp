// The kernels of the library unisono::devices on the stand-in, by Thrust: src/devices/kernels.hpp
// includes this header where UNISONO_DEVICES_KERNELS names it.
#pragma once

#include "extensions/nccl/stand_in/thrust_kernels.hpp"

#include "extensions/nccl/stand_in/on_stream.hpp"

#include <thrust/system_error.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct DevicesKernels : stand_in::OnStream<stand_in::ThrustKernels> {
    explicit DevicesKernels(cudaStream_t given) : OnStream(given) {
        if (!stand_in::kernels_run())
            throw thrust::system_error(cudaErrorLaunchFailure, thrust::generic_category(), "no launch (stand-in)");
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
