// Steps of a network on the ranks of a launcher: step WIDTH STEPS. Rank 0 prints the median time of
// a step in seconds, on the slowest rank.
#include <unisono_libtorch.hpp>

#include <unisono/join.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace un = unisono;

int main(int argc, char** argv) {
    if (argc != 3 || std::atoi(argv[1]) < 1 || std::atoi(argv[2]) < 1)
        return std::fputs("usage: step WIDTH STEPS, both at least 1\n", stderr), 2;
    const std::int64_t width = std::atoll(argv[1]);
    const int steps = std::atoi(argv[2]), warm = 20;
    torch::set_num_threads(1);
    un::run_joined<un::SharedMemory>([&](auto& world) {
        torch::manual_seed(1);
        torch::nn::Sequential net(torch::nn::Linear(256, width), torch::nn::ReLU(), torch::nn::Linear(width, width),
                                  torch::nn::ReLU(), torch::nn::Linear(width, 10));
        un::libtorch::Model model(net, [&](const un::libtorch::Batch& batch) {
            return torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y);
        });
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1e-3}};
        const un::libtorch::Batch batch{torch::randn({16, 256}), torch::randint(0, 10, {16}, torch::kInt64)};
        std::vector<double> times;
        for (int step = -warm; step < steps; ++step) {
            const auto start = std::chrono::steady_clock::now();
            trainer.step(batch);
            if (step >= 0)
                times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
        double median[1] = {times[static_cast<std::size_t>(steps / 2)]};
        un::all_reduce(world, median, un::Max{});
        if (world.rank() == 0) std::printf("%.9f\n", median[0]);
    });
}
