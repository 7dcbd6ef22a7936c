// A LibTorch network on a GPU, trained by LibTorch's SGD.
#include <torch/torch.h>

#include <cstdio>

int main() {
    torch::manual_seed(0);
    const torch::Device device(torch::kCUDA);
    const torch::Tensor x = torch::rand({960, 8}).to(device), y = torch::sin(x.sum(1, true));
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
    net->to(device);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

    const std::int64_t batch = 48;
    for (int epoch = 0; epoch < 10; ++epoch) {
        for (std::int64_t at = 0; at < x.size(0); at += batch) {
            const std::int64_t first = at, last = at + batch;
            sgd.zero_grad();
            torch::mse_loss(net->forward(x.slice(0, first, last)), y.slice(0, first, last)).backward();
            sgd.step();
        }
    }
    std::printf("loss %.5f\n", torch::mse_loss(net->forward(x), y).item<double>());
}
