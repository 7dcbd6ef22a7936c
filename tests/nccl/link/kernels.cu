// The kernels by which our own schedules combine on a GPU: compiled by nvcc, not run.
#include <unisono/arithmetic/thrust_stream.hpp>

namespace un = unisono;

static_assert(un::has_stream_kernel<un::Sum, float> && un::has_stream_kernel<un::Max, un::bfloat16>);

un::StreamKernelFunction sum_of_floats() { return &un::StreamKernel<un::Sum, float>::call; }
un::StreamKernelFunction sum_of_halves() { return &un::StreamKernel<un::Sum, un::bfloat16>::call; }
