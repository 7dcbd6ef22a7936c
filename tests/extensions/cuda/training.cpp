// A Trainer on memory of a device over sockets has the same bits as on memory of the host.
#include "support.hpp"

#include "extensions/device/on_device.hpp"
#include "support/digits_training.hpp"

#include <unisono/optimizer/adam.hpp>

#include <cstring>
#include <vector>

namespace un = unisono;

namespace {

template <class World>
std::vector<float> trained(World& world) {
    const digits::Images& all = test::images().train;
    digits::Images few;
    few.labels.assign(all.labels.begin(), all.labels.begin() + 150);
    few.values.assign(all.values.begin(), all.values.begin() + 150 * digits::pixels);
    digits::Network network({digits::pixels, 12, digits::kinds}, static_cast<std::uint64_t>(world.rank()));
    const auto with = [&](auto& model) {
        un::Trainer trainer{world,
                            model,
                            un::DistributedSampler{.shuffle = true, .seed = 5},
                            un::Buckets{.first_bytes = 64, .bytes = 2000},
                            un::RingReducer{.chunk_bytes = 512},
                            un::StateSharding{},
                            un::AdamW{.learning_rate = 0.01}};
        trainer.fit(few.data(), {.epochs = 2, .batch_size = 16, .progress = false});
        trainer.verify_replicas();
    };
    if constexpr (un::streaming_transport<typename World::transport_type>) {
        test::OnDevice model(world, network);
        with(model);
        return model.values();
    } else {
        with(network);
        const auto values = network.values();
        return {values.begin(), values.end()};
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_training)

BOOST_AUTO_TEST_CASE(the_bits_of_the_host) {
    const test::Clean clean;
    constexpr std::size_t ranks = 3;
    std::vector<std::vector<float>> host(ranks), device(ranks);
    un::run<un::InProcess>(ranks, [&](auto& world) { host[static_cast<std::size_t>(world.rank())] = trained(world); });
    test::run(
        ranks, [&](test::Group& world) { device[static_cast<std::size_t>(world.rank())] = trained(world); },
        test::limit);
    const digits::Network untrained({digits::pixels, 12, digits::kinds}, 0);
    BOOST_TEST(host[0].size() == untrained.values().size());
    BOOST_TEST((host[0] != std::vector<float>(untrained.values().begin(), untrained.values().end())));
    for (std::size_t rank = 0; rank < ranks; ++rank)
        BOOST_TEST((host[rank].size() == device[rank].size() &&
                    std::memcmp(host[rank].data(), device[rank].data(), host[rank].size() * sizeof(float)) == 0),
                   "rank " << rank);
}

BOOST_AUTO_TEST_SUITE_END()
