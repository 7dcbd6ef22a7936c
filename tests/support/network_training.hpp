// Training over a network, `test::Transport`: the digits example's network has the bits that it has on threads, and some of the
// policy matrix. One suite for all networks; the room's support.hpp comes first.
#pragma once

#include "../matrix/matrix.hpp"
#include "digits_training.hpp"

#include <unisono/reproducible.hpp>

BOOST_AUTO_TEST_SUITE(training)

BOOST_AUTO_TEST_CASE(the_bits_of_threads) {
    const auto images = test::images();
    for (const int ranks : {1, 2, 4}) {
        const unisono::RingReducer ring{.chunk_bytes = 4096};
        const auto threads = test::trained<unisono::InProcess>(ranks, images, ring);
        BOOST_TEST(threads.size() > 1000u);
        BOOST_TEST((test::trained<test::Transport>(ranks, images, ring) == threads), ranks << " ranks");
    }
}

BOOST_AUTO_TEST_CASE(some_of_the_matrix) {
    using namespace unisono_matrix;
    namespace un = unisono;
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    const un::DistributedSampler sampler{.seed = 4};
    check(un::NativeReducer{}, un::Synchronous{}, un::StateSharding{}, un::FiniteGuard{}, sgd, sampler,
          un::AccumulateTokens{.tokens = 20}, un::BySamples{}, un::ConstantRate{});
    check(un::ParameterServerReducer{.servers = 2}, AgreeFirst{}, un::Replicated{}, un::FiniteGuard{},
          un::Adam{.learning_rate = 0.02}, un::ScatterSampler{.seed = 8}, un::Accumulate{.steps = 3}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1});
    check(un::HalvingDoublingReducer{}, un::Synchronous{}, EqualShards{}, un::NoGuard{}, sgd, sampler,
          un::NoAccumulation{}, un::ReplicasAlike{}, un::ConstantRate{});
    check(un::AutomaticReducer{}, un::Synchronous{}, un::Replicated{}, un::FiniteGuard{}, sgd, sampler,
          un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{}, un::Reproducible{});
    BOOST_TEST(counts().ran == 4);
}

BOOST_AUTO_TEST_SUITE_END()
