// The campaign of random collectives, over the ranks of an MPI.
#include <unisono/mpi.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Mpi
#include "../../base/collective/campaign.hpp"

#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include <unistd.h>

BOOST_AUTO_TEST_CASE(random_cases_against_what_a_rank_computes_alone) {
    const std::size_t all = campaign::from_environment("UNISONO_TEST_CASES", 600);
    std::uint64_t seed = campaign::from_environment("UNISONO_TEST_SEED", 1);
    constexpr int batches = 40; // of 2.5 cases on average
    auto world = unisono::adopt(MPI_COMM_WORLD, std::chrono::seconds(30));
    for (std::size_t begun = 0; begun < all; begun += batches * 5 / 2, ++seed) {
        test::Findings findings;
        campaign::live(world, findings, {.seed = seed, .batches = batches, .ends_by_throw = false});
    }
}

namespace {

bool nothing_to_register() { return true; }

} // namespace

int main(int argc, char** argv) {
    ::alarm(static_cast<unsigned>(campaign::from_environment("UNISONO_TEST_TIMEOUT_S", 120)));
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    const int status = boost::unit_test::unit_test_main(&nothing_to_register, argc, argv);
    MPI_Finalize();
    return status;
}
