// Unisono's part of the comparison of training steps on GPUs: the network of
// examples/digits_on_gpu, one rank per GPU.
//     step HIDDEN ROWS STEPS [WEIGHTS [RANKS]]
// The network has 64, HIDDEN, HIDDEN and 10 units, with ROWS samples per rank and step. Prints
// {"ranks":, "us": of a step, "loss": of the last of 50 steps before}. WEIGHTS: the file for the
// initial weights, layer by layer, input by input.

#include "../../../examples/digits_on_gpu/network.hpp"

#include "../../../examples/digits/data.hpp"

#include <unisono/trainer/trainer.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

constexpr std::size_t cycle = 8; // different batches per rank
constexpr int trial = 50;

/// Sample s of rank r's batch b, with the same numbers as in torch_step.py.
digits::Batch batch_of(std::size_t rank, std::size_t number, std::size_t rows) {
    digits::Batch batch;
    batch.width = digits::pixels;
    for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t sample = (rank * cycle + number) * rows + i;
        for (std::size_t j = 0; j < digits::pixels; ++j)
            batch.values.push_back(static_cast<float>((sample * digits::pixels + j) * 37 % 17) / 16);
        batch.labels.push_back(static_cast<std::int32_t>(sample * 7 % digits::kinds));
    }
    return batch;
}

void measure(un::Group<un::Nccl>& world, std::size_t hidden, std::size_t rows, int steps, const char* weights) {
    digits::check(cudaSetDevice(world.endpoint().device()));
    const std::vector<std::size_t> widths = {digits::pixels, hidden, hidden, digits::kinds};
    digits::DeviceNetwork network(world, widths, 0, rows);
    if (weights != nullptr && world.rank() == 0) {
        const digits::Network first(widths, 0);
        std::ofstream(weights, std::ios::binary)
            .write(reinterpret_cast<const char*>(first.values().data()),
                   static_cast<std::streamsize>(first.values().size_bytes()));
    }
    un::Trainer trainer{world, network, un::Sgd{.learning_rate = 0.01, .momentum = 0.9}};
    std::vector<digits::Batch> batches;
    for (std::size_t b = 0; b < cycle; ++b)
        batches.push_back(batch_of(static_cast<std::size_t>(world.rank()), b, rows));
    double loss = 0;
    for (std::size_t i = 0; i < trial; ++i) loss = trainer.step(batches[i % cycle]).loss;
    un::barrier(world);
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < static_cast<std::size_t>(steps); ++i) trainer.step(batches[i % cycle]);
    digits::check(cudaStreamSynchronize(network.stream()));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    trainer.verify_replicas();
    if (world.rank() == 0)
        std::printf("{\"ranks\": %d, \"us\": %.3f, \"loss\": %.9g}\n", world.size(), seconds * 1e6 / steps, loss);
}

} // namespace

int main(int argc, char** argv) {
    const int hidden = argc > 1 ? std::atoi(argv[1]) : 0, rows = argc > 2 ? std::atoi(argv[2]) : 0,
              steps = argc > 3 ? std::atoi(argv[3]) : 0;
    if (argc < 4 || argc > 6 || hidden < 1 || rows < 1 || steps < 1)
        return std::fputs("usage: step HIDDEN ROWS STEPS [WEIGHTS [RANKS]], numbers of at least 1\n", stderr), 2;
    try {
        int ranks = argc > 5 ? std::atoi(argv[5]) : 0;
        if (ranks < 1) digits::check(cudaGetDeviceCount(&ranks));
        un::run<un::Nccl>(ranks, [&](auto& world) {
            measure(world, static_cast<std::size_t>(hidden), static_cast<std::size_t>(rows), steps,
                    argc > 4 ? argv[4] : nullptr);
        });
        return 0;
    } catch (const std::exception& failed) {
        return std::fprintf(stderr, "step: %s\n", failed.what()), 2;
    }
}
