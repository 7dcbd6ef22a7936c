// Ranks that are processes, joined by a control plane: they leave, die, stop, and cannot listen.
#include "support.hpp"

#include <chrono>
#include <csignal>

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

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_processes, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(ranks_join_and_leave) {
    for (const int ranks : {1, 2, 4}) {
        const test::Shared<AllTold> told;
        run_processes(ranks, *told, [&](Group& world, const std::vector<int>&) {
            for (const std::size_t count : {1u, 1000u, 200'000u}) {
                std::vector<float> data(count, 1.0f);
                un::all_reduce(world, data);
                if (data[count - 1] != static_cast<float>(ranks)) throw un::error(un::ErrorCode::aborted, "wrong sum");
            }
            std::vector<float> last(300'000, 5.0f); // the root of a broadcast ends soon
            un::broadcast(world, last, 0);
            if (last[299'999] != 5.0f) throw un::error(un::ErrorCode::aborted, "wrong last");
        });
        expect(*told, ranks, -1, un::ErrorCode::none, {});
    }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all) {
    for (int victim = 0; victim < 3; ++victim) {
        const test::Shared<AllTold> told;
        run_processes(3, *told, [&](Group& world, const std::vector<int>&) {
            std::vector<float> data(50'000, 1.0f);
            for (int i = 0; i < 1000; ++i) {
                if (i == 20 && world.rank() == victim) ::raise(SIGKILL);
                un::all_reduce(world, data);
            }
        });
        expect(*told, 3, victim, un::ErrorCode::peer_lost, {"rank " + std::to_string(victim)});
    }
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_at_the_deadline) {
    const test::Shared<AllTold> told;
    run_processes(
        3, *told,
        [&](Group& world, const std::vector<int>& pids) {
            std::vector<float> data(50'000, 1.0f);
            un::all_reduce(world, data);
            if (world.rank() == 1) ::raise(SIGSTOP);
            try {
                un::all_reduce(world, data);
            } catch (const un::error&) {
                if (world.rank() == 0) ::kill(pids[1], SIGKILL);
                throw;
            }
        },
        2s);
    expect(*told, 3, 1, un::ErrorCode::timeout, {"rank 1", "stopped"});
}

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
