// A model in units over ranks that are killed and added. Its gradients are sharded, or its
// parameters, too.
#include "../sharding/network.hpp"
#include "ranks.hpp"
#include "support/skip.hpp"

#include <unisono/extensions/master_weights/master_weights.hpp>
#include <unisono/sharded.hpp>

using namespace unisono_test;

namespace {

template <class Stage, class World, class Model, class Data, class OnUpdate>
Result train_units(World& world, Model& model, const Data& data, OnUpdate& on_update) {
    un::Trainer trainer{world,
                        model,
                        Stage{},
                        un::Snapshots{.every = 3},
                        un::Reproducible{},
                        un::Replicas{.count = 4},
                        un::Adam{.learning_rate = 0.02}};
    Result result;
    const un::FitReport report =
        trainer.fit(data, {.epochs = 3, .batch_size = 4, .progress = false}, std::ref(on_update));
    for (const un::EpochReport& epoch : report.epochs) result.counted += epoch.updates * 1'000'000 + epoch.samples;
    result.updates = trainer.updates();
    result.loss = report.epochs.back().loss;
    const auto [distance] = trainer.evaluate(data, {.batch_size = 5}, un::MeanMetric{});
    result.mean = distance.value();
    if constexpr (requires { trainer.now(); })
        result.hash = trainer.collectively([](auto& now) { return un::state_hash(now); });
    else result.hash = un::state_hash(trainer);
    return result;
}

template <class Stage, class Network, class World, class OnUpdate>
Result train_units(World& world, OnUpdate on_update) {
    const std::vector<float> values = un::torch_rand(3, 96 * Layers::inputs);
    const std::vector<float> labels = un::torch_rand(4, 96);
    const un::RowData data(values, Layers::inputs, labels);
    Network network;
    if constexpr (!std::is_same_v<Network, Layers>) { // its parameters have 16 bits
        un::MasterWeights master(network);
        return train_units<Stage>(world, master, data, on_update);
    } else return train_units<Stage>(world, network, data, on_update);
}

template <class Stage, class Transport, class Network = Layers>
void lose_and_add_in_stages() {
    static const Result expected = [] {
        Result found;
        un::run<un::InProcess>(
            1, [&](auto& world) { found = train_units<Stage, Network>(world, [](const un::UpdateReport&) {}); });
        return found;
    }();
    BOOST_TEST(expected.updates == 18u);
    const Shared told;
    lose_and_add<Transport>(4, 11, told,
                            [](auto& world, auto on_update) { return train_units<Stage, Network>(world, on_update); });
    if (test::sanitized) test::skip_part("a process that is added under a sanitizer is too slow");
    for (const int who : {2, 3, 4}) {
        if (who == 4 && test::sanitized) continue;
        BOOST_TEST_CONTEXT(Transport::name << ", " << Stage::name << ", process " << who << ": " << told[who].text) {
            BOOST_TEST(told[who].done);
            BOOST_TEST((told[who].result == expected), "another result than undisturbed");
            BOOST_TEST(told[who].changes >= 1u);
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_stages)

BOOST_AUTO_TEST_CASE(gradients_are_sharded) {
    lose_and_add_in_stages<un::GradientSharding, un::SharedMemory>();
    lose_and_add_in_stages<un::GradientSharding, un::Tcp>();
}
BOOST_AUTO_TEST_CASE(parameters_are_sharded) {
    lose_and_add_in_stages<un::ParameterSharding, un::SharedMemory>();
    lose_and_add_in_stages<un::ParameterSharding, un::Tcp>();
}
/// Ranks also hold a 16-bit copy, which is made again.
BOOST_AUTO_TEST_CASE(master_weights) {
    lose_and_add_in_stages<un::GradientSharding, un::SharedMemory, LayersOf<un::float16>>();
    lose_and_add_in_stages<un::ParameterSharding, un::SharedMemory, LayersOf<un::float16>>();
}

BOOST_AUTO_TEST_SUITE_END()
