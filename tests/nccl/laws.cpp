// The transport's laws, and the collectives' faults, over NCCL.
#include "support.hpp"

#include "../testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

/// The faults are those of up to 4 ranks.
static boost::test_tools::assertion_result has_four_ranks(boost::unit_test::test_unit_id) {
    const int ranks = test::at_most(4);
    boost::test_tools::assertion_result found(ranks == 4);
    found.message() << "needs 4 ranks, but the devices here can have " << ranks;
    return found;
}

#define UNISONO_TEST_RANDOM_FAULTS 6
BOOST_TEST_DECORATOR(*boost::unit_test::precondition(has_four_ranks)) // of the suite that comes next
#include "../group/faults.cpp"

#ifdef UNISONO_TEST_ON_GPU
#include <cstdio>
#include <cstdlib>

namespace {

/// Without a GPU nothing can be tested. This is reported once.
struct NeedsGpu {
    NeedsGpu() {
        try {
            std::printf("GPUs: %d, NCCL %s\n", unisono::detail::visible_devices(),
                        unisono::detail::nccl_version_text(unisono::detail::loaded_nccl()).c_str());
        } catch (const unisono::error& refused) {
            std::printf("nothing was tested: %s\n", refused.what());
            std::fflush(stdout);
            std::_Exit(2);
        }
    }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsGpu);

} // namespace
#endif

BOOST_AUTO_TEST_SUITE(nccl_laws)

BOOST_AUTO_TEST_CASE(laws) {
    const test::Clean clean;
    unisono_test::expect_lawful(
        unisono::testing::transport_laws<unisono::Nccl>({.most_ranks = test::at_most(3), .messages = 16}));
}

BOOST_AUTO_TEST_SUITE_END()
