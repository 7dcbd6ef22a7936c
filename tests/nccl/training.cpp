// The common training suite over NCCL: with ranks' gradients on the host, and native sums through the device.
#include "support.hpp"

#include "support/network_training.hpp"

BOOST_AUTO_TEST_SUITE(nccl_training)

BOOST_AUTO_TEST_CASE(reproducible_sums_by_the_device_have_the_bits_of_threads) {
    const test::Clean clean;
    const auto images = test::images();
    const int ranks = test::at_most(3);
    const auto threads =
        test::trained<unisono::InProcess>(ranks, images, unisono::NativeReducer{}, unisono::Reproducible{});
    BOOST_TEST(
        (test::trained<unisono::Nccl>(ranks, images, unisono::NativeReducer{}, unisono::Reproducible{}) == threads));
}

BOOST_AUTO_TEST_SUITE_END()
