// The transport's laws, and the collectives' faults, over NCCL.
#include "support.hpp"

#include "../../base/testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#define UNISONO_TEST_RANDOM_FAULTS 6
BOOST_TEST_DECORATOR(*boost::unit_test::precondition(test::HasRanks{4})) // of the suite that comes next
#include "../../base/group/faults.cpp"

#ifdef UNISONO_TEST_ON_GPU
#include "support/needs_gpu.hpp"

using test::EverythingByDevice;
BOOST_TEST_GLOBAL_FIXTURE(EverythingByDevice);
#endif

BOOST_AUTO_TEST_SUITE(nccl_laws)

BOOST_AUTO_TEST_CASE(laws) {
    const test::Clean clean;
    unisono_test::expect_lawful(
        unisono::testing::transport_laws<unisono::Nccl>({.most_ranks = test::at_most(3), .messages = 16}));
}

BOOST_AUTO_TEST_SUITE_END()
