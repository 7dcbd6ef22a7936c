#pragma once

/// \file
/// Arithmetic on device memory, enqueued on a stream: the declarations, which a compiler for the
/// device completes.

#include "unisono/core/config.hpp"
#include "unisono/core/element.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// Enqueues on `stream`, and does not wait: for each i of `count` elements, targets[t][i] =
/// sources[0][i] op sources[1][i] op ... (left fold), with the bits of the host's CombineKernel.
/// The arrays of addresses are valid only during the call.
using StreamKernelFunction = void (*)(const void* state, const std::byte* const* sources, std::size_t source_count,
                                      std::byte* const* targets, std::size_t target_count, std::size_t count,
                                      void* stream);

/// `StreamKernel<Op, T>::call` is the StreamKernelFunction of an operation on elements of type T.
/// Declared here; defined where StreamArithmetic is.
template <class Op, class T>
struct StreamKernel;

/// True if this translation unit can run the operation on the device.
template <class Op, class T>
concept has_stream_kernel = requires { static_cast<StreamKernelFunction>(&StreamKernel<Op, T>::call); };

/// `StreamArithmetic<Stream>(stream)` has the functions of ThrustArithmetic (thrust.hpp) for device
/// addresses, with their bits. They are enqueued on the stream, in order; a function that returns a
/// number waits for it. Declared here; defined by extensions/device_library/stream.hpp for sources
/// that link to unisono::devices, and by extensions/thrust/stream.hpp if a compiler for the device
/// sees it.
template <class Stream>
struct StreamArithmetic;

/// True if this source can compute on the device.
template <class Stream>
concept has_stream_arithmetic = requires(Stream stream) { StreamArithmetic<Stream>(stream); };

UNISONO_NAMESPACE_END
