// A LibTorch network, trained by LibTorch's SGD.
#include <torch/torch.h>

#include <unisono/join.hpp>
#include <unisono/unisono.hpp>

#include <cstdio>
#include <span>

namespace un = unisono;

std::span<float> flat(const torch::Tensor& t) { return {t.data_ptr<float>(), static_cast<std::size_t>(t.numel())}; }

int main() {
    auto world = un::join<un::SharedMemory>();
    torch::manual_seed(0);
    torch::set_num_threads(1);
    const torch::Tensor x = torch::rand({960, 8}), y = torch::sin(x.sum(1, true));
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
    for (const torch::Tensor& p : net->parameters()) un::broadcast(world, flat(p), 0);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

    const std::int64_t batch = 48;
    for (int epoch = 0; epoch < 10; ++epoch) {
        for (std::int64_t at = 0; at < x.size(0); at += batch) {
            const std::int64_t first = at + batch * world.rank() / world.size();
            const std::int64_t last = at + batch * (world.rank() + 1) / world.size();
            sgd.zero_grad();
            torch::mse_loss(net->forward(x.slice(0, first, last)), y.slice(0, first, last)).backward();
            for (const torch::Tensor& p : net->parameters())
                un::all_reduce(world, flat(p.grad()), un::WeightedMean{.weight = double(last - first)});
            sgd.step();
        }
    }
    if (world.rank() != 0) return 0;
    std::printf("loss %.5f\n", torch::mse_loss(net->forward(x), y).item<double>());
}
