// A LibTorch network on GPUs, trained by Unisono's SGD.
#include <torch/torch.h>

#include <unisono/join.hpp>
#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>
#include <unisono_libtorch_cuda.hpp>

#include <cstdio>

namespace un = unisono;

int main() {
    auto world = un::join<un::Nccl>();
    torch::manual_seed(0);
    const torch::Device device = un::libtorch::use_device(world);
    const torch::Tensor x = torch::rand({960, 8}).to(device), y = torch::sin(x.sum(1, true));
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
    net->to(device);
    un::libtorch::CudaModel model(
        world, net, [&](const un::libtorch::Batch& rows) { return torch::mse_loss(net->forward(rows.x), rows.y); });
    un::Trainer sgd{world, model, un::StateSharding{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};

    const std::int64_t batch = 48;
    for (int epoch = 0; epoch < 10; ++epoch) {
        for (std::int64_t at = 0; at < x.size(0); at += batch) {
            const std::int64_t first = at + batch * world.rank() / world.size();
            const std::int64_t last = at + batch * (world.rank() + 1) / world.size();
            sgd.step(un::libtorch::Batch{x.slice(0, first, last), y.slice(0, first, last)});
        }
    }
    if (world.rank() != 0) return 0;
    std::printf("loss %.5f\n", torch::mse_loss(net->forward(x), y).item<double>());
}
