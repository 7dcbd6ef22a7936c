// The digits example on GPUs, one rank each. The model, its gradients, their sums and the optimizer
// stay on the device.
//     digits_on_gpu [RANKS [EPOCHS [DATA]]]
// Ranks are threads of this process. RANKS = 0, the default, means one per GPU. The program prints
// what `digits --quiet --bits` prints first for the same options. The same samples go to the same
// ranks.

#include "network.hpp"

#include "../digits/data.hpp"

#include <unisono/trainer/trainer.hpp>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#ifndef DIGITS_DATA
#define DIGITS_DATA "examples/digits/data/digits.csv"
#endif

namespace {

constexpr std::int64_t global_batch = 32;

void train(un::Group<un::Nccl>& world, const digits::Split& images, std::int64_t epochs) {
    digits::check(cudaSetDevice(world.endpoint().device()));
    digits::DeviceNetwork network(world, {digits::pixels, 64, digits::kinds}, 0, 64);
    un::Trainer trainer{world, network, un::DistributedSampler{.shuffle = true, .seed = 0},
                        un::BySamples{}, // the last batch of an epoch is short
                        un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};
    const auto start = std::chrono::steady_clock::now();
    trainer.fit(images.train.data(), {.epochs = epochs, .global_batch_size = global_batch, .progress = false});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    trainer.verify_replicas();
    std::uint64_t hash = 14695981039346656037u; // of the weights' bits, FNV-1a
    trainer.visit_parameters({0, trainer.layout().count()}, [&](std::size_t, std::span<const float> values) {
        for (const float weight : values) hash = (hash ^ std::bit_cast<std::uint32_t>(weight)) * 1099511628211u;
    });
    // nvcc 13.0 does not find the model's own `evaluate` by itself.
    const auto judge = [](digits::DeviceNetwork& of, const digits::Batch& batch, un::MeanMetric& loss,
                          un::AccuracyMetric& accuracy) { of.evaluate(batch, loss, accuracy); };
    const auto [loss, accuracy] =
        trainer.evaluate(images.test.data(), {.batch_size = 64}, judge, un::MeanMetric{}, un::AccuracyMetric{});
    if (world.rank() != 0) return;
    std::printf("test accuracy %.4f, loss %.4f, on %zu images\n", accuracy.value(), loss.value(), images.test.size());
    std::printf("bits %016llx\n", static_cast<unsigned long long>(hash));
    std::fprintf(stderr, "%.2f s for %lld epochs on %d ranks\n", seconds, static_cast<long long>(epochs), world.size());
}

/// \throws un::error bad_input: `text` is not a number of at least `least`
int number(const char* text, const char* what, int least) { return un::read_number<int>(text, what, least, 1'000'000); }

} // namespace

int main(int argc, char** argv) {
    try {
        int ranks = argc > 1 ? number(argv[1], "RANKS", 0) : 0;
        const int epochs = argc > 2 ? number(argv[2], "EPOCHS", 1) : 20;
        const auto images = digits::split(digits::read(argc > 3 ? argv[3] : DIGITS_DATA), 357);
        if (ranks == 0) digits::check(cudaGetDeviceCount(&ranks));
        while (ranks > 1 && global_batch % ranks != 0) --ranks; // equal shares
        un::run<un::Nccl>(ranks, [&](auto& world) { train(world, images, epochs); });
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "digits_on_gpu: %s\n", failed.what());
        return 2;
    }
}
