// The kernels of the library unisono::devices on the stand-in, by Thrust: src/devices/kernels.hpp
// includes this header where UNISONO_DEVICES_KERNELS names it.
#pragma once

#include "extensions/nccl/stand_in/thrust_kernels.hpp"

#include "extensions/nccl/stand_in/on_stream.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct DevicesKernels : stand_in::OnStream<stand_in::ThrustKernels> {
    using OnStream::OnStream;
};

} // namespace detail
UNISONO_NAMESPACE_END
