// A compression of your own. The laws of its family certify it before it is used.

#include "../digits/data.hpp"
#include "../digits/network.hpp"
#include "sign_compression.hpp"

#include <unisono/testing/compression_laws.hpp>

#include <cstdio>
#include <exception>

int main() try {
    // Where magnitudes differ, the error shrinks slowly: it takes many updates to come within a
    // hundredth.
    const auto found = un::testing::compression_laws(SignCompression{}, {.updates_until_all = 1000, .tolerance = 0.01});
    std::printf("%s\n", found.lawful() ? "lawful" : found.text().c_str());
    const auto images = digits::split(digits::read(DIGITS_DATA), 357);
    un::run<un::InProcess>(2, [&](auto& world) {
        digits::Network network({digits::pixels, 64, digits::kinds});
        un::Trainer trainer{world, network, SignCompression{}, un::Sgd{.learning_rate = 0.05, .momentum = 0.9}};
        trainer.fit(images.train.data(), {.epochs = 30, .batch_size = 16, .progress = false});
        const auto [loss, accuracy] = trainer.evaluate(images.test.data(), {}, un::MeanMetric{}, un::AccuracyMetric{});
        if (world.rank() == 0) std::printf("%stest accuracy %.4f\n", trainer.describe().c_str(), accuracy.value());
    });
    return found.lawful() ? 0 : 1;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "own_compression: %s\n", failed.what());
    return 1;
}
