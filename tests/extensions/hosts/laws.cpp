// The transport's laws, and the collectives' faults: every second message goes over the network,
// and the others through memory.
#include "support.hpp"

#include "../../base/testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#define UNISONO_TEST_RANDOM_FAULTS 16
#define UNISONO_TEST_NEVER_S 8
#include "../../base/group/faults.cpp"
#include "../../base/group/waiting.cpp"

BOOST_AUTO_TEST_SUITE(hosts_laws)

BOOST_AUTO_TEST_CASE(laws) { unisono_test::expect_lawful(unisono::testing::transport_laws<test::PretendedHosts>()); }

BOOST_AUTO_TEST_CASE(laws_of_one_host) {
    test::pretended_host = [](int, int) { return 0; };
    unisono_test::expect_lawful(unisono::testing::transport_laws<test::PretendedHosts>());
    test::pretended_host = [](int rank, int) { return rank % 2; };
}

BOOST_AUTO_TEST_SUITE_END()
