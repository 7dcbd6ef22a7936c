// Trains the layers of examples/parallel_digits on data x pipeline ranks for one epoch. The result
// is the bits of the whole model, as one number.
#pragma once

#include "../../examples/parallel_digits/layers.hpp"

#include <unisono/collective/exchange.hpp>
#include <unisono/sharding/sharding.hpp>

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace test {

/// An update has two replicas of one micro-batch each, on one or two ranks of the data axis. A sum
/// of two numbers does not depend on their order, so the bits are those of one rank. Throws if
/// ranks differ.
template <class World>
std::uint64_t trained_in_parts(World& world, const digits::Split& images, int data, int stages) {
    namespace un = unisono;
    un::Mesh mesh{world, {{"data", data}, {"pipeline", stages}}};
    un::PipelineModel model{mesh.axis("pipeline"), parallel_digits::layers(16, 5), parallel_digits::CrossEntropy{}};
    un::Trainer trainer{mesh.axis("data"),
                        model,
                        un::Replicas{.count = 2},
                        un::StateSharding{},
                        un::DistributedSampler{.shuffle = true, .seed = 5},
                        un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};
    trainer.fit(images.train.data(), {.epochs = 1, .batch_size = 32, .progress = false});
    trainer.verify_replicas();
    std::vector<std::uint64_t> mine{0}, all(static_cast<std::size_t>(world.size()));
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
        std::uint64_t hash = 0xcbf29ce484222325u + model.places()[p]; // FNV-1a
        for (const float each : model.parameters()[p])
            hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 0x100000001b3u;
        mine[0] += hash;
    }
    un::all_gather(world, mine, all);
    std::uint64_t whole = 0, of_replica = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
        if (rank % stages == 0) of_replica = 0;
        of_replica += all[static_cast<std::size_t>(rank)];
        if (rank == stages - 1) whole = of_replica;
        if (rank % stages == stages - 1 && of_replica != whole) throw std::runtime_error("replicas with other bits");
    }
    return whole;
}

} // namespace test
