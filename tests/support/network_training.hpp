// Training over a network, `test::Transport`: the network of the digits example gets the same bits
// as on threads. One suite for all networks. Include the room's support.hpp first. The policy
// matrix over networks is in tests/together/networks.
#pragma once

#include "digits_training.hpp"

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

BOOST_AUTO_TEST_SUITE_END()
