// The capabilities of each transport beyond messages (transport/transport.hpp). Half a capability
// is none.
#include "unisono/any.hpp"
#include "unisono/hosts.hpp"
#include "unisono/simulate.hpp"
#include "unisono/tcp.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <concepts>

namespace un = unisono;

namespace {

template <class T>
constexpr bool in_memory = un::maps_peers<T> && un::announces<T> && un::wakes_peers<T> && un::sees_leaving<T> &&
                           un::sends_at_once<T> && !un::sees_messages<T> && !un::lands_messages<T>;
// Whether a group needs an endpoint is a question, not an error: std::optional asks it.
struct AtAddress : un::InProcess {
    explicit AtAddress(int address);
};
static_assert(un::transport<AtAddress>);
static_assert(std::default_initializable<un::Group<un::InProcess>>);
static_assert(!std::default_initializable<un::Group<AtAddress>>);

static_assert(in_memory<un::InProcess>);
static_assert(!un::bounces_memory<un::InProcess> && !un::allocates<un::InProcess> && !un::gives_boards<un::InProcess>);
static_assert(in_memory<un::SharedMemory> && un::looks_for_faults<un::SharedMemory>);
static_assert(un::bounces_memory<un::SharedMemory> && un::allocates<un::SharedMemory>);
static_assert(un::gives_boards<un::SharedMemory> && un::sees_deaths<un::SharedMemory>);
static_assert(in_memory<un::AnyTransport> && un::bounces_memory<un::AnyTransport>);

template <class T>
constexpr bool by_messages =
    un::sees_messages<T> && un::sees_deaths<T> && un::sees_leaving<T> && un::lands_messages<T> &&
    un::sends_at_once<T> && un::reports_waits<T> && !un::maps_peers<T> && !un::announces<T> && !un::bounces_memory<T>;
static_assert(by_messages<un::Tcp> && !un::knows_hosts<un::Tcp> && !un::allocates<un::Tcp>);
static_assert(by_messages<un::Hosts<un::Tcp>> && un::knows_hosts<un::Hosts<un::Tcp>>);
static_assert(un::allocates<un::Hosts<un::Tcp>> && un::reaches_memory<un::Hosts<un::Tcp>>);

static_assert(un::has_virtual_time<un::Simulated> && un::announces<un::Simulated> && !un::maps_peers<un::Simulated>);
static_assert(!un::has_virtual_time<un::Tcp> && !un::streaming_transport<un::Tcp> && !un::enqueues<un::Tcp>);

// A transport that lacks one member of a capability that it claims.
struct WithoutMemory : un::SharedMemory {
    void allocate(std::size_t) = delete;
};
struct WithoutWake : un::SharedMemory {
    void wake(int) = delete;
};
struct WithoutWords : un::SharedMemory {
    void mapped() = delete;
};
struct WithoutBells : un::InProcess {
    void one_sleeps() = delete;
};
struct WithoutDrop : un::SharedMemory {
    void drop_board(std::uint64_t) = delete;
};
struct WithoutShift : un::SharedMemory {
    void shift(int) = delete;
};
struct WithoutWaits : un::Tcp {
    void waits(const un::Wait&) = delete;
};
struct WithoutSignatures : un::Tcp {
    void early_signature(int, std::uint64_t, std::uint32_t) = delete;
};
struct WithoutLanding : un::Tcp {
    void post_receive_at(int, const un::Envelope&, un::Token, std::byte*) = delete;
};
struct WithoutReach : un::Simulated {
    void reach_shared_memory() = delete;
};

template <class T>
bool refused() {
    return un::transport<T> && !un::detail::whole_capabilities<T>;
}

} // namespace

BOOST_AUTO_TEST_SUITE(capabilities)

BOOST_AUTO_TEST_CASE(half_a_capability_is_refused) {
    BOOST_TEST((un::detail::whole_capabilities<un::InProcess> && un::detail::whole_capabilities<un::SharedMemory>));
    BOOST_TEST((un::detail::whole_capabilities<un::AnyTransport> && un::detail::whole_capabilities<un::Tcp>));
    BOOST_TEST((un::detail::whole_capabilities<un::Simulated> && un::detail::whole_capabilities<un::Hosts<un::Tcp>>));
    BOOST_TEST(refused<WithoutMemory>());
    BOOST_TEST(refused<WithoutWake>());
    BOOST_TEST(refused<WithoutWords>());
    BOOST_TEST(refused<WithoutBells>());
    BOOST_TEST(refused<WithoutDrop>());
    BOOST_TEST(refused<WithoutShift>());
    BOOST_TEST(refused<WithoutWaits>());
    BOOST_TEST(refused<WithoutSignatures>());
    BOOST_TEST(refused<WithoutLanding>());
    BOOST_TEST(refused<WithoutReach>());
}

BOOST_AUTO_TEST_SUITE_END()
