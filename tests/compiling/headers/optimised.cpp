// A Trainer over threads and one over sockets, for warnings that need an optimiser.
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#include "../../support/linear.hpp"

#include <vector>

namespace un = unisono;

namespace {

template <class World>
void train(World& world) {
    const std::vector<float> values = un::torch_rand(0, 64 * 8);
    const un::RowData data(values, 8);
    test::Linear model;
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
