// The transport's laws, and the collectives' faults, over NCCL.
#include "support.hpp"

#include "../testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#define UNISONO_TEST_RANDOM_FAULTS 6
#include "../group/faults.cpp"

BOOST_AUTO_TEST_SUITE(nccl_laws)

BOOST_AUTO_TEST_CASE(laws) {
    const test::Clean clean;
    unisono_test::expect_lawful(
        unisono::testing::transport_laws<unisono::Nccl>({.most_ranks = test::at_most(3), .messages = 16}));
}

BOOST_AUTO_TEST_SUITE_END()
