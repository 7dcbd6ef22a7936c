// The transport's laws, and the collectives' faults, over NCCL.
#include "support.hpp"

#include "../testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#define UNISONO_TEST_RANDOM_FAULTS 6
BOOST_TEST_DECORATOR(*boost::unit_test::precondition(test::HasRanks{4})) // of the suite that comes next
#include "../group/faults.cpp"

#ifdef UNISONO_TEST_ON_GPU
#include <cstdio>
#include <cstdlib>

using test::EverythingByDevice;
BOOST_TEST_GLOBAL_FIXTURE(EverythingByDevice);

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
