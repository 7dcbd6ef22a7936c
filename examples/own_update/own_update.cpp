// An update policy of your own: elastic averaging in one page. The laws of update/update.hpp
// certify it. Then it trains.

#include "../digits/data.hpp"
#include "../digits/network.hpp"
#include "elastic_averaging.hpp"

#include <unisono/testing/update_laws.hpp>

#include <cstdio>
#include <exception>

int main() try {
    const auto laws = un::testing::update_laws(ElasticAveraging{.steps = 2, .strength = 0.2});
    std::puts(laws.text().c_str());
    if (!laws.lawful()) return 1;

    const auto images = digits::split(digits::read(DIGITS_DATA), 357);
    un::run<un::InProcess>(2, [&](auto& world) {
        digits::Network network({digits::pixels, 64, digits::kinds});
        un::Trainer trainer{world, network, ElasticAveraging{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};
        trainer.fit(images.train.data(), {.epochs = 30, .batch_size = 16, .progress = false});
        const auto [loss, accuracy] = trainer.evaluate(images.test.data(), {}, un::MeanMetric{}, un::AccuracyMetric{});
        if (world.rank() == 0) std::printf("%stest accuracy %.3f\n", trainer.describe().c_str(), accuracy.value());
    });
} catch (const std::exception& failed) {
    std::fprintf(stderr, "own_update: %s\n", failed.what());
    return 1;
}
