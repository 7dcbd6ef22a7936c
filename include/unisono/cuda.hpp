#pragma once

/// \file
/// Ranks with a GPU over a transport that moves host bytes, without NCCL: `join<Cuda<Tcp>>()` for
/// processes that a launcher has started, `run<Cuda<Tcp>>(n, body)` for threads of this process.
/// Needs CUDA's headers and runtime: link unisono::cuda. For other networks also include their
/// headers (unisono/hosts.hpp, libfabric.hpp, mpi.hpp). Not part of the umbrella.
///
///     auto world = un::join<un::Cuda<un::Tcp>>();
///     un::DeviceMemory<float> gradient = un::allocate_on_device<float>(world, 1'000'000);
///     un::all_reduce(world, gradient.span());
///
/// The host combines, so a host compiler is sufficient. A Trainer on the device needs the CMake
/// target unisono::devices, or a source that nvcc compiles.

#include "unisono/extensions/cuda/cuda.hpp"
#include "unisono/extensions/cuda/prefetch.hpp"
#include "unisono/extensions/device/bounced_lanes.hpp"
#include "unisono/extensions/device/device_rows.hpp"
#include "unisono/extensions/device/kernels.hpp"
#include "unisono/extensions/device/master_weights.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/extensions/device/wire.hpp"
#include "unisono/tcp.hpp"

#if defined(UNISONO_DEVICES)
#include "unisono/extensions/device_library/stream.hpp"
#elif defined(__CUDACC__)
#include "unisono/extensions/thrust/stream.hpp"
#endif
