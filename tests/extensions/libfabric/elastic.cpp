// Elastic worlds over libfabric: see tests/extensions/elastic/striking.hpp.
#include "../elastic/striking.hpp"

#include <unisono/hosts.hpp>
#include <unisono/libfabric.hpp>

using namespace unisono_test;

BOOST_AUTO_TEST_SUITE(libfabric_elastic)

BOOST_AUTO_TEST_CASE(killed_over_libfabric) { kill_many<un::Libfabric>(3); }
BOOST_AUTO_TEST_CASE(killed_on_hosts_over_libfabric) { kill_many<un::Hosts<un::Libfabric>>(2); }

BOOST_AUTO_TEST_SUITE_END()
