// The first program of README.md with the module instead of the header. docs/how_to/compile_time.md
// shows how to build it. tests/compiling/compiled builds it.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

import unisono; // after the headers that the program includes

namespace un = unisono;

// A model is memory and a call. This model is y = w . x with the loss (y - 1)^2 / 2.
struct Linear {
    std::vector<float> weights = std::vector<float>(8), gradient = std::vector<float>(8);

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    template <class Batch>
    // Adds the mean gradient of a micro-batch, and returns its loss.
    double operator()(const Batch& batch, un::Pass&) {
        double loss = 0;
        const auto rows = static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float error = -1;
            for (std::size_t i = 0; i < 8; ++i) error += weights[i] * x[i];
            loss += 0.5 * error * error / rows;
            for (std::size_t i = 0; i < 8; ++i) gradient[i] += error * x[i] / rows;
        }
        return loss;
    }
};

int main() {
    const std::vector<float> values = un::torch_rand(0, 64 * 8); // as torch.rand with seed 0
    const un::RowData data(values, 8);                           // 64 samples of 8 numbers
    // Two ranks, as threads of this process.
    un::run<un::InProcess>(2, [&](auto& world) {
        Linear model;
        un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 0},
                            un::RingReducer{}, un::Accumulate{.steps = 2}, un::Sgd{.learning_rate = 0.1}};
        const un::FitReport report = trainer.fit(data, {.epochs = 3, .batch_size = 4, .progress = false});
        if (world.rank() != 0) return;
        for (const un::EpochReport& epoch : report.epochs) std::printf("epoch %d: loss %.4f\n", int(epoch.epoch), epoch.loss);
    });
}
