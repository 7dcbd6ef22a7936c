// The transport's laws, and the collectives' faults, over sockets.
#include "support.hpp"

#include "../../base/testing/support.hpp"

#include <unisono/testing/transport_laws.hpp>

#include "../../base/group/faults.cpp"
#include "../../base/group/prepared.cpp"
#include "../../base/group/waiting.cpp"

BOOST_AUTO_TEST_SUITE(tcp_laws)

BOOST_AUTO_TEST_CASE(laws) {
    const test::NoSocketLeft left;
    unisono_test::expect_lawful(unisono::testing::transport_laws<unisono::Tcp>());
}

BOOST_AUTO_TEST_CASE(larger_messages_and_many) {
    // Sizes around the limits: messages that are assembled in the buffer, and messages with memory
    // of their own.
    unisono_test::expect_lawful(unisono::testing::transport_laws<unisono::Tcp>(
        {.most_ranks = 3, .sizes = {16303, 16304, 16336, 16384, 16400, 65488, 65536, 300001}, .messages = 24}));
}

BOOST_AUTO_TEST_SUITE_END()
