// The transport's laws, and the collectives' faults, over libfabric.
#include "support.hpp"

#include "../../base/testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#include "../../base/group/faults.cpp"
#include "../../base/group/waiting.cpp"

BOOST_AUTO_TEST_SUITE(libfabric_laws)

BOOST_AUTO_TEST_CASE(laws) {
    test::for_each_provider([](const std::string&) {
        unisono_test::expect_lawful(unisono::testing::transport_laws<unisono::Libfabric>({.most_ranks = 3}));
    });
}

// Around the switch from eager to rendezvous, and many at once.
BOOST_AUTO_TEST_CASE(large_messages) {
    test::for_each_provider([](const std::string& provider) {
        const std::size_t eager = unisono::detail::eager_bytes_of(provider);
        unisono_test::expect_lawful(unisono::testing::transport_laws<unisono::Libfabric>(
            {.most_ranks = 2, .sizes = {8, eager - 1, eager, eager + 1, 2 * eager, 300'001}, .messages = 24}));
    });
}

BOOST_AUTO_TEST_SUITE_END()
