// Trains the network of the digits example for one epoch over a transport, and returns its
// parameters.
#pragma once

#include "../../examples/digits/data.hpp"
#include "../../examples/digits/network.hpp"

namespace test {

namespace un = unisono;

inline digits::Split images() {
    return digits::split(digits::read(UNISONO_TEST_DATA "/../../../examples/digits/data/digits.csv"), 357);
}

template <class Transport, class... Policies>
std::vector<float> trained(int ranks, const digits::Split& images, const Policies&... policies) {
    std::vector<float> weights;
    un::run<Transport>(ranks, [&](auto& world) {
        digits::Network network({digits::pixels, 16, digits::kinds}, 5);
        un::Trainer trainer{world,
                            network,
                            un::DistributedSampler{.shuffle = true, .seed = 5},
                            un::BySamples{},
                            un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                            policies...};
        trainer.fit(images.train.data(), {.epochs = 1, .batch_size = 16, .progress = false});
        trainer.verify_replicas();
        if (world.rank() != ranks - 1) return;
        for (const auto span : network.parameters()) weights.insert(weights.end(), span.begin(), span.end());
    });
    return weights;
}

} // namespace test
