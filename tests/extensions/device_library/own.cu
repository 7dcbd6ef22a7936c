// A source that nvcc compiles, in a program that links to unisono::devices: the library has the
// kernels of its own policies, and nvcc compiles those of the program's functors. It is compiled,
// not run.
#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

namespace un = unisono;

struct Halve {
    UNISONO_INLINE void operator()(float& x) const { x *= 0.5f; }
};
struct Larger {
    UNISONO_INLINE float operator()(float a, float b) const { return a < b ? b : a; }
};
static_assert(un::has_stream_kernel<un::Sum, float> && un::has_stream_kernel<Larger, float>);

un::StreamKernelFunction of_the_library() { return &un::StreamKernel<un::Sum, float>::call; }
un::StreamKernelFunction of_the_program() { return &un::StreamKernel<Larger, float>::call; }
void update(const un::StreamArithmetic<cudaStream_t>& on, std::span<float> x, const un::OptimizerSlice<float>& state) {
    on.apply(Halve{}, x);
    un::update_on(on, un::AdamW{}, state, x, x, {});
}
