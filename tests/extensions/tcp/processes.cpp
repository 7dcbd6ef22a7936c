// Ranks that are processes, joined by a control plane: they leave, die, stop, and cannot listen.
#include "support.hpp"

#include <chrono>

namespace un = unisono;
using test::AllTold;
using test::expect;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// See joined.hpp.
template <class Body>
void run_processes(int ranks, AllTold& told, Body body, std::chrono::nanoseconds timeout = 30s) {
    test::run_joined(
        ranks, told,
        [&](un::ControlPlane&& plane) { return un::join<un::Tcp>(std::move(plane), {.timeout = timeout}); }, body);
}
constexpr auto run = [](auto&&... all) { run_processes(all...); };

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_processes, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(ranks_join_and_leave) {
    for (const int ranks : {1, 2, 4}) test::check_join_and_leave(ranks, run);
}
BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all) { test::check_killed(run); }
BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_at_the_deadline) { test::check_stopped(run); }

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_by_an_exception) {
    const test::Shared<AllTold> told;
    run_processes(3, *told, [&](Group& world, const std::vector<int>&) {
        un::barrier(world);
        if (world.rank() == 2) throw un::error(un::ErrorCode::bad_input, "its own");
        un::barrier(world);
    });
    expect(*told, 3, 2, un::ErrorCode::aborted, {"rank 2"});
}

BOOST_AUTO_TEST_CASE(a_rank_without_a_port_stops_all) {
    const un::detail::Listener taken = un::detail::listen_at(true, 0);
    const test::Variable said("UNISONO_PORT_RANGE", std::to_string(taken.port));
    const test::Shared<AllTold> told;
    run_processes(2, *told, [](Group&, const std::vector<int>&) {});
    expect(*told, 2, -1, un::ErrorCode::refused, {"rank 0: ", "127.0.0.1", "interface lo", std::to_string(taken.port)});
}

BOOST_AUTO_TEST_SUITE_END()
