#pragma once

/// \file
/// Kernels on a device's memory, enqueued on a stream: the point where whoever can compile for the device says how.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN

/// `StreamArithmetic<Stream>(stream)` has the functions of ThrustArithmetic (thrust.hpp) for addresses of the device, and their bits. They
/// are enqueued on the stream, in order; what returns a number waits for it. Declared here for all; there where a compiler for the
/// device sees arithmetic/thrust_stream.hpp.
template <class Stream>
struct StreamArithmetic;

/// This source can compute on the device.
template <class Stream>
concept has_stream_arithmetic = requires(Stream stream) { StreamArithmetic<Stream>(stream); };

UNISONO_NAMESPACE_END
