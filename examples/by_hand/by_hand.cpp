// Parts without the trainer: a loop of your own with a sampler, accumulation and one collective.
// Each part works by itself.

#include <unisono/unisono.hpp>

#include <cstdio>
#include <exception>
#include <span>
#include <vector>

namespace un = unisono;

int main() try {
    // 100 samples x of 3 numbers, and y = x . (1, -2, 3), which least squares should find.
    const std::vector<float> x = un::torch_rand(0, 300);
    std::vector<float> y;
    for (std::size_t i = 0; i < 100; ++i) y.push_back(x[3 * i] - 2 * x[3 * i + 1] + 3 * x[3 * i + 2]);
    const un::RowData data(x, 3, y);

    un::run<un::InProcess>(2, [&](auto& world) {
        // Which rank gets which samples is a pure function of the shape and the epoch.
        const un::DistributedSampler sampler{.shuffle = true, .seed = 0};
        const auto shape = un::shape_of_rank(sampler, 100, /*batch_size=*/5, world.size(), world.rank());
        auto window = un::Accumulate{.steps = 2}.window(); // says when an update is due

        std::vector<float> w(3), gradient(3);
        double samples = 0;
        for (un::Epoch epoch{0}; epoch < un::Epoch{100}; epoch = epoch.next()) {
            for (auto stream = sampler.stream(shape, epoch); !stream.done();) {
                const un::MicroBatch micro = stream.next();
                const auto batch = data.batch(micro.samples);
                for (std::size_t i = 0; i < batch.rows(); ++i, ++samples) {
                    const auto row = batch.row(i);
                    const float error = w[0] * row[0] + w[1] * row[1] + w[2] * row[2] - batch.labels[i];
                    for (std::size_t j = 0; j < 3; ++j) gradient[j] += error * row[j];
                }
                window.add({.micro_batches = 1, .samples = micro.round_samples});
                if (!window.closed() && !(micro.ends_epoch && window.due_at_end())) continue;

                // The mean over the samples of all ranks. Ranks may have different numbers of
                // samples.
                for (float& g : gradient) g /= static_cast<float>(samples);
                un::all_reduce(world, gradient, un::WeightedMean{.weight = samples});
                for (std::size_t j = 0; j < 3; ++j) w[j] -= 0.5f * gradient[j];

                gradient.assign(3, 0);
                samples = 0;
                window.reset();
            }
        }
        if (world.rank() == 0) std::printf("found (%.3f, %.3f, %.3f)\n", double(w[0]), double(w[1]), double(w[2]));
    });
} catch (const std::exception& failed) {
    std::fprintf(stderr, "by_hand: %s\n", failed.what());
    return 1;
}
