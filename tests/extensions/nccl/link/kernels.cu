// The code that runs on a GPU: kernels by which Unisono's schedules combine there. nvcc compiles
// it; it is not run. (examples/digits_on_gpu has a Trainer that stays on the GPU.)
#include <unisono/nccl.hpp>

namespace un = unisono;

static_assert(un::has_stream_kernel<un::Sum, float> && un::has_stream_kernel<un::Max, un::bfloat16>);

un::StreamKernelFunction sum_of_floats() { return &un::StreamKernel<un::Sum, float>::call; }
un::StreamKernelFunction sum_of_halves() { return &un::StreamKernel<un::Sum, un::bfloat16>::call; }
