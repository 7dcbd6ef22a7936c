// Training over NCCL with gradients on the host: by Unisono's schedules through messages, and by
// native sums through the device. The network of the digits example has the same bits as on
// threads. Some rows of the policy matrix train like the serial loop.
#include "support.hpp"

#include "../../together/matrix/matrix.hpp"
#include "support/digits_training.hpp"

#include <unisono/reproducible.hpp>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(nccl_training)

BOOST_AUTO_TEST_CASE(the_bits_of_threads) {
    const test::Clean clean;
    const auto images = test::images();
    const int ranks = test::at_most(3);
    const un::RingReducer ring{.chunk_bytes = 4096};
    const auto threads = test::trained<un::InProcess>(ranks, images, ring);
    BOOST_TEST(threads.size() > 1000u);
    BOOST_TEST((test::trained<un::Nccl>(ranks, images, ring) == threads));
}

BOOST_AUTO_TEST_CASE(reproducible_sums_by_the_device_have_the_bits_of_threads) {
    const test::Clean clean;
    const auto images = test::images();
    const int ranks = test::at_most(3);
    const auto threads = test::trained<un::InProcess>(ranks, images, un::NativeReducer{}, un::Reproducible{});
    BOOST_TEST((test::trained<un::Nccl>(ranks, images, un::NativeReducer{}, un::Reproducible{}) == threads));
}

BOOST_AUTO_TEST_CASE(some_of_the_matrix, *boost::unit_test::precondition(test::HasRanks{2})) {
    using namespace unisono_matrix;
    const test::Clean clean;
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    check(un::NativeReducer{}, un::Synchronous{}, un::StateSharding{}, un::FiniteGuard{}, sgd,
          un::DistributedSampler{.seed = 4}, un::AccumulateTokens{.tokens = 20}, un::BySamples{}, un::ConstantRate{});
    check(un::NativeReducer{}, OwnUpdate{}, EqualShards{}, un::NoGuard{}, un::Adam{.learning_rate = 0.02},
          un::ScatterSampler{.seed = 8}, un::Accumulate{.steps = 3}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1});
    BOOST_TEST(counts().ran == 2);
}

BOOST_AUTO_TEST_SUITE_END()
