// Updates for which ranks train independently, on devices: parameters are those of the same
// training on the host, at each synchronisation and between. master_weights.cpp has means of
// parameters.
#include "on_device.hpp"

#include "base/trainer/models.hpp"

#include <unisono/extensions/compression/one_bit.hpp>
#include <unisono/extensions/updates/streaming_diloco.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/update/averaging.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace un = unisono;

namespace {

using Squares = unisono_test::LeastSquares<float>;
constexpr std::size_t columns = 14;
constexpr std::size_t own_updates = 13;

un::RowBatch<float, float> rows(std::size_t number) {
    un::RowBatch<float, float> made;
    made.width = columns;
    for (std::size_t i = 0; i < 3 * columns; ++i)
        made.values.push_back(static_cast<float>((number * 7 + i * 3) % 11) / 8);
    made.labels = {1, 0, 2};
    return made;
}

/// Of each rank, after each update.
using Ways = std::vector<std::vector<float>>;

template <class Transport, class... Policies>
Ways gone(std::size_t ranks, std::size_t& to_device, const Policies&... policies) {
    Ways told(ranks);
    un::run<Transport>(static_cast<int>(ranks), [&](auto& world) {
        Squares network(columns, 5);
        const auto mine = static_cast<std::size_t>(world.rank());
        const auto with = [&](auto& model) {
            un::Trainer trainer{world, model, un::Adam{.learning_rate = 0.1},
                                un::Buckets{.first_bytes = 1, .bytes = 24}, policies...};
            const auto look = [&] {
                trainer.visit_parameters({0, columns}, [&](std::size_t, std::span<const float> values) {
                    told[mine].insert(told[mine].end(), values.begin(), values.end());
                });
            };
            un::barrier(world);
            const std::size_t before = test::crossed_the_bus().bytes_to_device;
            for (std::size_t i = 0; i < own_updates; ++i) {
                trainer.step(rows(ranks * i + mine));
                look();
            }
            trainer.synchronise();
            look();
            trainer.verify_replicas();
            un::barrier(world);
            if (mine == 0) to_device = test::crossed_the_bus().bytes_to_device - before;
            un::barrier(world);
        };
        if constexpr (un::streaming_transport<Transport>) {
            test::OnDevice model(world, network, 1);
            with(model);
        } else {
            with(network);
        }
    });
    return told;
}

/// `to_device`: bytes that cross the bus.
template <class... Policies>
void same_ways(std::size_t to_device, const Policies&... policies) {
    const test::Clean clean;
    for (const std::size_t ranks : {1u, 2u}) {
        std::size_t bytes = 0, none = 0;
        const Ways host = gone<un::InProcess>(ranks, none, policies...);
        const Ways device = gone<test::Transport>(ranks, bytes, policies...);
        if (test::bytes_are_counted) BOOST_TEST(bytes == (ranks == 1 ? 0 : to_device));
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            BOOST_TEST(host[rank].size() == (own_updates + 1) * columns);
            BOOST_TEST(host[rank].back() != 0.0f);
            BOOST_TEST((device[rank] == host[rank]), "rank " << rank << " of " << ranks);
        }
        if (ranks == 2) BOOST_TEST((host[0] != host[1])); // they did train independently
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_local)

BOOST_AUTO_TEST_CASE(differences_that_are_compressed) {
    // Through the host: each synchronisation, two and a last one, moves each parameter once.
    same_ways(2 * 3 * columns * sizeof(float), un::LocalSteps{.steps = 5}, un::OneBit{.block = 4});
}

// With a last synchronisation, for an outer optimizer.
BOOST_AUTO_TEST_CASE(fragments_on_their_way_while_the_ranks_go_on) {
    same_ways(0, un::StreamingDiloco<>{.steps = 6, .fragments = 3, .overlap = 1, .mix = 0.25});
}

BOOST_AUTO_TEST_SUITE_END()
