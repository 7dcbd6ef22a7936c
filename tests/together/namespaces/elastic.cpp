// Elastic worlds of ranks on two hosts that are namespaces: see
// tests/extensions/elastic/striking.hpp.
#include "../../extensions/elastic/striking.hpp"
#include "support.hpp"

#include <unisono/hosts.hpp>

namespace {

template <class Transport>
void kill_on_two_hosts(unsigned usual) {
    if (test::skipped()) return;
    const test::Lab lab(2);
    const unisono_test::Place place{
        .enter =
            [&](int process) {
                if (::setns(lab.space(process % 2).file(), CLONE_NEWNET) != 0) ::_exit(126);
                ::setenv("UNISONO_HOST_NAME", process % 2 == 0 ? "even" : "odd", 1);
            },
        .meeting = {.host = test::Lab::address(0), .port = 29500, .token = unisono::JobToken::random()}};
    unisono_test::kill_many<Transport>(usual, place);
}

} // namespace

BOOST_AUTO_TEST_SUITE(namespaces_elastic)

BOOST_AUTO_TEST_CASE(killed_over_sockets) { kill_on_two_hosts<unisono::Tcp>(2); }
BOOST_AUTO_TEST_CASE(killed_on_hosts) { kill_on_two_hosts<unisono::Hosts<unisono::Tcp>>(3); }

BOOST_AUTO_TEST_SUITE_END()
