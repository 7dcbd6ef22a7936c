// What runs on a GPU: the kernels by which our own schedules combine there. Compiled by nvcc, not run. (A Trainer that stays there is that of
// examples/digits_on_gpu.)
#include <unisono/nccl.hpp>

namespace un = unisono;

static_assert(un::has_stream_kernel<un::Sum, float> && un::has_stream_kernel<un::Max, un::bfloat16>);

un::StreamKernelFunction sum_of_floats() { return &un::StreamKernel<un::Sum, float>::call; }
un::StreamKernelFunction sum_of_halves() { return &un::StreamKernel<un::Sum, un::bfloat16>::call; }
