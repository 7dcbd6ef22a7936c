// Kernels of Thrust on the stand-in: on its system of one thread. Include it before all other
// headers. CCCL looks for CUDA's headers and would accept the stand-in's, so this file tells it
// that there are none.
#pragma once

#if defined(__CCCL_CONFIG)
#error "thrust_kernels.hpp must come before CCCL's headers"
#endif
#define __CCCL_CUDA_TOOLKIT_H     // NOLINT: CCCL's own guard
#define _CCCL_HAS_CTK() 0         // NOLINT
#define _CCCL_CTK_BELOW(...) 0    // NOLINT
#define _CCCL_CTK_AT_LEAST(...) 0 // NOLINT

#include <unisono/extensions/thrust/thrust.hpp>

#include <thrust/system/cpp/execution_policy.h>

#include <type_traits>

namespace stand_in {

using ThrustKernels = unisono::ThrustArithmetic<std::remove_cvref_t<decltype(thrust::cpp::par)>>;

} // namespace stand_in
