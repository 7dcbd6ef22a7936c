// What runs on a GPU: the kernels by which our own schedules combine there, and a Trainer that stays there. Compiled by nvcc, not run.
#include <unisono/nccl.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/trainer/trainer.hpp>

namespace un = unisono;

static_assert(un::has_stream_kernel<un::Sum, float> && un::has_stream_kernel<un::Max, un::bfloat16>);

un::StreamKernelFunction sum_of_floats() { return &un::StreamKernel<un::Sum, float>::call; }
un::StreamKernelFunction sum_of_halves() { return &un::StreamKernel<un::Sum, un::bfloat16>::call; }

struct Network {
    un::DeviceSpan<float> memory[2];
    cudaStream_t queue;
    un::DeviceSpan<float> parameters() { return memory[0]; }
    un::DeviceSpan<float> gradients() { return memory[1]; }
    cudaStream_t stream() { return queue; }
    double operator()(int, un::Pass&) { return 0; }
};

un::UpdateReport train(un::Group<un::Nccl>& world, Network& network) {
    un::Trainer trainer{world, network, un::AdamW{}};
    return trainer.step(1, 2);
}
