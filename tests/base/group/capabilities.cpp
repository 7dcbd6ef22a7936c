// What the compiler knows of each transport (transport/transport.hpp).
#include "unisono/any.hpp"
#include "unisono/hosts.hpp"
#include "unisono/simulate.hpp"
#include "unisono/tcp.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <concepts>

namespace un = unisono;

namespace {

// Whether a group needs an endpoint is a question, not an error: std::optional asks it.
struct AtAddress : un::InProcess {
    explicit AtAddress(int address);
};
static_assert(un::transport<AtAddress>);
static_assert(std::default_initializable<un::Group<un::InProcess>>);
static_assert(!std::default_initializable<un::Group<AtAddress>>);

static_assert(un::InProcess::maps_peers && un::SharedMemory::maps_peers && un::AnyTransport::maps_peers);
static_assert(!un::Tcp::maps_peers && !un::Hosts<un::Tcp>::maps_peers && !un::Simulated::maps_peers);
static_assert(un::knows_hosts<un::Hosts<un::Tcp>> && !un::knows_hosts<un::Tcp> && !un::knows_hosts<un::InProcess>);
static_assert(un::has_virtual_time<un::Simulated> && !un::has_virtual_time<un::Tcp>);
static_assert(!un::streaming_transport<un::Tcp> && !un::enqueues<un::Tcp>);

// What has no endpoint is no transport.
struct Claims {
    static constexpr bool maps_peers = false;
    static constexpr std::string_view name = "claims";
};
static_assert(un::transport<un::AnyTransport> && un::transport<un::Hosts<un::Tcp>> && !un::transport<Claims>);

// A group over any transport is made of a group over one that maps peers.
using Any = un::Group<un::AnyTransport>;
static_assert(std::constructible_from<Any, un::Group<un::InProcess>>);
static_assert(std::constructible_from<Any, un::Group<un::SharedMemory>>);
static_assert(!std::constructible_from<Any, un::Group<un::Tcp>> &&
              !std::constructible_from<Any, un::Group<un::InProcess>&>);

} // namespace

BOOST_AUTO_TEST_SUITE(capabilities)

BOOST_AUTO_TEST_CASE(what_an_endpoint_says_is_what_its_class_says) {
    un::Hosts<un::Tcp> hosts;
    un::Tcp network;
    un::SharedMemory memory;
    un::InProcess threads;
    BOOST_TEST((hosts.knows_hosts() && !network.knows_hosts() && !memory.knows_hosts()));
    BOOST_TEST((hosts.facts().allocates && memory.facts().allocates));
    BOOST_TEST((!network.facts().allocates && !threads.facts().allocates));
    BOOST_TEST((hosts.messages() != nullptr && memory.messages() == nullptr));
    BOOST_TEST((memory.mapped() != nullptr && threads.mapped() != nullptr && hosts.mapped() == nullptr));
}

BOOST_AUTO_TEST_SUITE_END()
