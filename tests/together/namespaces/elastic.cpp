// Elastic worlds of ranks on two hosts that are namespaces: see
// tests/extensions/elastic/striking.hpp.
#include "../../extensions/elastic/striking.hpp"
#include "support.hpp"

#include <unisono/hosts.hpp>

namespace {

/// `ports`: those that firewalls leave open, beside that of the rendezvous; empty: all.
template <class Transport>
void kill_on_two_hosts(unsigned usual, const std::string& ports = {}) {
    if (test::skipped()) return;
    const test::Lab lab(2);
    for (int host = 0; host < 2 && !ports.empty(); ++host)
        if (!lab.open_only(host, "29500, " + ports)) return test::skip("firewalls: there is no nft");
    const unisono_test::Place place{
        .enter =
            [&](int process) {
                if (::setns(lab.space(process % 2).file(), CLONE_NEWNET) != 0) ::_exit(126);
                ::setenv("UNISONO_HOST_NAME", process % 2 == 0 ? "even" : "odd", 1);
                if (!ports.empty()) ::setenv("UNISONO_PORT_RANGE", ports.c_str(), 1);
            },
        .meeting = {.host = test::Lab::address(0), .port = 29500, .token = unisono::JobToken::random()}};
    unisono_test::kill_many<Transport>(usual, place);
}

} // namespace

BOOST_AUTO_TEST_SUITE(namespaces_elastic)

BOOST_AUTO_TEST_CASE(killed_over_sockets) { kill_on_two_hosts<unisono::Tcp>(2); }
BOOST_AUTO_TEST_CASE(killed_on_hosts) { kill_on_two_hosts<unisono::Hosts<unisono::Tcp>>(3); }

/// All ports that other hosts must reach are of UNISONO_PORT_RANGE: those of data, of members, of
/// each next rendezvous, and of the rank that adds processes.
BOOST_AUTO_TEST_CASE(killed_behind_firewalls) { kill_on_two_hosts<unisono::Tcp>(12, "40000-40031"); }

BOOST_AUTO_TEST_SUITE_END()
