#pragma once

/// \file
/// Kernels on device memory, enqueued on a stream: the declaration, which a compiler for the device
/// completes.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN

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
