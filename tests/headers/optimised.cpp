// A Trainer over threads and one over sockets, for warnings that need an optimiser.
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace un = unisono;

namespace {

struct Linear {
    std::vector<float> weights = std::vector<float>(8), gradient = std::vector<float>(8);

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    template <class Batch>
    double operator()(const Batch& batch, un::Pass&) {
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float error = -1;
            for (std::size_t i = 0; i < 8; ++i) error += weights[i] * x[i];
            loss += 0.5 * double{error} * double{error};
            for (std::size_t i = 0; i < 8; ++i) gradient[i] += error * x[i];
        }
        return loss;
    }
};

template <class World>
void train(World& world) {
    const std::vector<float> values = un::torch_rand(0, 64 * 8);
    const un::RowData data(values, 8);
    Linear model;
    un::Trainer trainer{world,
                        model,
                        un::DistributedSampler{.shuffle = true, .seed = 0},
                        un::RingReducer{},
                        un::Accumulate{.steps = 2},
                        un::Sgd{.learning_rate = 0.1}};
    trainer.fit(data, {.epochs = 1, .batch_size = 4, .progress = false});
}

} // namespace

int main() {
    un::run<un::InProcess>(2, [](auto& world) { train(world); });
    un::run<un::Tcp>(2, [](auto& world) { train(world); });
}
