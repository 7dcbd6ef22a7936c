// The policy matrix over MPI: main() of its ranks. It runs tests/together/networks/matrix on the
// worlds of MPI_COMM_WORLD.
#include "../../together/networks/any_network.hpp"

#include <unisono/mpi.hpp>

#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include <unistd.h>

namespace {

bool nothing_to_register() { return true; }

} // namespace

int main(int argc, char** argv) {
    ::alarm(280);
    int level = 0;
    int size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test::network_kinds().push_back(
        {.name = "MPI",
         .world = {},
         .join = [] { return std::make_unique<unisono::Mpi>(unisono::Mpi::adopt(MPI_COMM_WORLD)); },
         .ranks = size});
    const int status = boost::unit_test::unit_test_main(&nothing_to_register, argc, argv);
    MPI_Finalize();
    return status;
}
