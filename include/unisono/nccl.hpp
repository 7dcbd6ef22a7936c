#pragma once

/// \file
/// Ranks with a GPU each, over NCCL: `join<Nccl>()` for processes that a launcher has started,
/// `run<Nccl>(n, body)` for threads of this process, `adopt(communicator, stream)` for a program
/// with a communicator. Needs NCCL's and CUDA's headers: link unisono::nccl. Not part of the
/// umbrella. With the CMake target unisono::devices, or in sources that nvcc compiles, Trainers
/// work on the device, and the library's schedules combine there.

#include "unisono/extensions/cuda/prefetch.hpp"
#include "unisono/extensions/device/captured.hpp"
#include "unisono/extensions/device/device_rows.hpp"
#include "unisono/extensions/device/kernels.hpp"
#include "unisono/extensions/device/master_weights.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/extensions/device/stream_runs.hpp"
#include "unisono/extensions/device/wire.hpp"
#include "unisono/extensions/nccl/nccl.hpp"
#include "unisono/join.hpp"

#if defined(UNISONO_DEVICES)
#include "unisono/extensions/device_library/stream.hpp"
#elif defined(__CUDACC__)
#include "unisono/extensions/thrust/stream.hpp"
#endif

#include <chrono>

UNISONO_NAMESPACE_BEGIN

/// The ranks of the program's communicator as a world, with the same numbers, on the same device.
/// Collective over the communicator. The program keeps the communicator and the stream. The world
/// has its own communicator, split from the program's, and enqueues its work on `stream`, which
/// must outlive it. No other operation may run on `communicator` during this call.
///
/// Errors: bad_input (no communicator), refused (with NCCL's reason), timeout.
[[nodiscard]] inline Group<Nccl> adopt(ncclComm_t communicator, cudaStream_t stream,
                                       std::chrono::nanoseconds timeout = std::chrono::minutes(10),
                                       const NcclOptions& options = {}) {
    Group<Nccl> world(Nccl::adopt(communicator, stream, timeout, options));
    world.set_timeout(timeout);
    return world;
}

UNISONO_NAMESPACE_END
