// Instantiations of a program, so that the bodies of templates are compiled with a user's flags,
// too.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace un = unisono;

namespace {

struct Model {
    std::vector<float> weights = std::vector<float>(8), gradient = std::vector<float>(8);

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    template <class Batch>
    double operator()(const Batch& batch, un::Pass&) {
        for (std::size_t row = 0; row < batch.rows(); ++row)
            for (std::size_t i = 0; i < 8; ++i) gradient[i] += batch.row(row)[i];
        return 0;
    }
};

template <class World, class... Policies>
void train(World& world, const Policies&... policies) {
    Model model;
    const std::vector<float> values = un::torch_rand(0, 64);
    un::Trainer trainer{world, model, policies...};
    trainer.fit(un::RowData(values, 8), {.epochs = 1, .batch_size = 2});
    trainer.verify_replicas();
}

} // namespace

int main() {
    un::run<un::InProcess>(2, [](auto& world) {
        train(world);
        train(world, un::Reproducible{}, un::Replicas{.count = 4}, un::StateSharding{}, un::AdamW{});
    });
    un::run<un::SharedMemory>(2, [](auto& world) {
        train(world, un::RingReducer{}, un::Accumulate{.steps = 2}, un::ClipByNorm{.max_norm = 1},
              un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
        std::vector<std::int64_t> counts(3);
        un::all_reduce(world, counts, un::Max{}, un::RingSchedule{});
        un::Operation sum = un::start_all_reduce(world, counts);
        sum.wait();
    });
    std::vector<double> values(3);
    auto world = un::join<un::Tcp>();
    un::broadcast(world, values, 0, un::TreeSchedule{});
}
