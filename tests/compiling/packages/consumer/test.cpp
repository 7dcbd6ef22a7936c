// The consumer's own test, which needs Boost.
#define BOOST_TEST_MODULE consumer
#include <boost/test/unit_test.hpp>

#include <unisono/core/version.hpp>
#include <unisono/mpi.hpp>

BOOST_AUTO_TEST_CASE(versions) {
    BOOST_TEST(UNISONO_VERSION_MAJOR + UNISONO_VERSION_MINOR + UNISONO_VERSION_PATCH > 0);
    BOOST_TEST(MPI_VERSION >= 3);
}
