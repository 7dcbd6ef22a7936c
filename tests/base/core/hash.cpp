#include "unisono/core/hash.hpp"
#include "unisono/core/random.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/observe/hash_log.hpp"
#include "unisono/schedule/host_map.hpp"

#include <boost/test/unit_test.hpp>

namespace un = unisono;
namespace in = unisono::detail;

BOOST_AUTO_TEST_SUITE(core_hash)

BOOST_AUTO_TEST_CASE(the_hashes_are_those_of_their_sources) {
    BOOST_TEST(in::fnv1a(in::fnv_basis, "") == 0xcbf29ce484222325u);
    BOOST_TEST(in::fnv1a(in::fnv_basis, "foobar") == 0x85944171f73967e8u);
    BOOST_TEST(in::hash_bytes("foobar", 6) == 0x85944171f73967e8u);
    BOOST_TEST(in::fnv1a(in::fnv_basis_32, "foobar") == 0xbf9cf968u);
    BOOST_TEST(in::fnv1a(in::fnv_basis, "\xe4") == 0xaf64594c8602c0f3u); // no byte is negative
    BOOST_TEST(in::split_mix(1234567) == 6457827717110365317u);
    BOOST_TEST(in::split_mix(1234567, 4) == 16408922859458223821u);
}

// Of the first version: they are in logs and tokens, and ranks compare them.
BOOST_AUTO_TEST_CASE(what_is_made_of_them_never_changes) {
    BOOST_TEST(un::hash_of_element(17, 0x3ff0000000000033u) == 0x153fbc3448fa82f8u);
    BOOST_TEST(un::sample_random(17, 3, 18)() == 0x3741c6adu);
    BOOST_TEST(un::JobToken::derived_from("a job").text() == "364494d2e32a862cb58cd6417f835b8e");
    const int hosts[] = {0, 0, 1, 2, 1};
    BOOST_TEST(un::HostMap(hosts).hash() == 767620274u);
}

BOOST_AUTO_TEST_SUITE_END()
