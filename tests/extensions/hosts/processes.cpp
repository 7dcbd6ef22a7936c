// Ranks that are processes and pretend to be on several hosts. They find out which ranks share
// memory, leave, die, stop, and get wrong information.
#include "../../support/refusal.hpp"
#include "support.hpp"

#include <unisono/extensions/launch/sockets/fork_run.hpp>

#include <chrono>
#include <csignal>
#include <string>
#include <sys/resource.h>

namespace un = unisono;
using test::AllTold;
using test::expect;
using namespace std::chrono_literals;

namespace {

using HostsGroup = un::Group<un::Hosts<un::Tcp>>;

/// See joined.hpp.
template <class Body>
void run_processes(int ranks, AllTold& told, Body body, std::chrono::nanoseconds timeout = 30s) {
    test::run_joined(
        ranks, told,
        [&](un::ControlPlane&& plane) { return un::join<un::Hosts<un::Tcp>>(std::move(plane), {.timeout = timeout}); },
        body);
}

void require(bool good, const char* what) {
    if (!good) throw un::error(un::ErrorCode::aborted, what);
}

void sum(HostsGroup& world, std::size_t count) {
    std::vector<float> own(count, 1.0f);
    auto shared = world.allocate<float>(count);
    std::fill(shared.begin(), shared.end(), 1.0f);
    un::all_reduce(world, own);
    un::all_reduce(world, shared, un::Sum{}, un::RingSchedule{});
    require(own[count - 1] == static_cast<float>(world.size()) && shared[0] == own[0], "wrong sum");
}

} // namespace

BOOST_AUTO_TEST_SUITE(hosts_processes, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(ranks_join_and_leave) {
    for (const char* const names : {"", "a,b,a,b", "a,a,a,b", "x,y,z,w"}) {
        const std::string said = names;
        const test::Variable variable("UNISONO_HOSTS", said);
        const test::Shared<AllTold> told;
        run_processes(4, *told, [&](HostsGroup& world, const std::vector<int>&) {
            std::vector<int> expected;
            for (int rank = 0; rank < 4; ++rank)
                expected.push_back(said.empty() ? 0 : said[static_cast<std::size_t>(2 * rank)]);
            require(*world.hosts() == un::HostMap(expected), "other hosts");
            for (const std::size_t count : {1u, 1000u, 200'000u}) sum(world, count);
            std::vector<float> last(300'000, 5.0f); // the root of a broadcast ends soon
            un::broadcast(world, last, 0);
            require(last[299'999] == 5.0f, "wrong last");
        });
        expect(*told, 4, -1, un::ErrorCode::none, {});
    }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all) {
    const test::Variable variable("UNISONO_HOSTS", "a,a,b,b");
    for (int victim = 0; victim < 4; ++victim) {
        const test::Shared<AllTold> told;
        run_processes(4, *told, [&](HostsGroup& world, const std::vector<int>&) {
            for (int i = 0; i < 1000; ++i) {
                if (i == 20 && world.rank() == victim) ::raise(SIGKILL);
                sum(world, 20'000);
            }
        });
        expect(*told, 4, victim, un::ErrorCode::peer_lost, {"rank " + std::to_string(victim)});
    }
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_at_the_deadline) {
    const test::Variable variable("UNISONO_HOSTS", "a,a,b,b");
    for (const int victim : {1, 3}) { // neither sends to other hosts
        const test::Shared<AllTold> told;
        run_processes(
            4, *told,
            [&](HostsGroup& world, const std::vector<int>& pids) {
                sum(world, 1000);
                if (world.rank() == victim) ::raise(SIGSTOP);
                try {
                    sum(world, 50'000);
                } catch (const un::error&) {
                    if (world.rank() == 0) ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
                    throw;
                }
            },
            2s);
        expect(*told, 4, victim, un::ErrorCode::timeout, {"rank " + std::to_string(victim), "stopped"});
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_by_an_exception_and_one_that_leaves_early) {
    const test::Variable variable("UNISONO_HOSTS", "a,a,b");
    for (const int victim : {1, 2}) {
        const test::Shared<AllTold> told;
        run_processes(3, *told, [&](HostsGroup& world, const std::vector<int>&) {
            un::barrier(world);
            if (world.rank() == victim) throw un::error(un::ErrorCode::bad_input, "its own");
            un::barrier(world);
        });
        expect(*told, 3, victim, un::ErrorCode::aborted, {"rank " + std::to_string(victim)});
        const test::Shared<AllTold> others;
        run_processes(3, *others, [&](HostsGroup& world, const std::vector<int>&) {
            un::barrier(world);
            if (world.rank() != victim) un::barrier(world);
        });
        expect(*others, 3, victim, un::ErrorCode::peer_lost, {"rank " + std::to_string(victim), "left"});
    }
}

BOOST_AUTO_TEST_CASE(who_is_told_wrong_tells_all) {
    const test::Variable variable("UNISONO_HOSTS", "a,b");
    const test::Shared<AllTold> told;
    run_processes(3, *told, [](HostsGroup&, const std::vector<int>&) {});
    expect(*told, 3, -1, un::ErrorCode::refused, {"rank 0: UNISONO_HOSTS has 2 names for 3 ranks", "'a,b'"});
}

BOOST_AUTO_TEST_CASE(who_has_no_interface_or_no_memory_tells_all) {
    {
        const test::Variable nowhere("UNISONO_INTERFACE", "nonesuch0");
        const test::Shared<AllTold> told;
        run_processes(3, *told, [](HostsGroup&, const std::vector<int>&) {});
        expect(*told, 3, -1, un::ErrorCode::refused, {"rank 0: ", "nonesuch0"});
    }
    const test::Shared<AllTold> told;
    test::run_joined(
        3, *told,
        [&](un::ControlPlane&& plane) {
            if (plane.rank() == 2) { // the first rank there: it makes its host's memory
                std::signal(SIGXFSZ, SIG_IGN);
                const rlimit little{1 << 20, 1 << 20};
                ::setrlimit(RLIMIT_FSIZE, &little);
            }
            return un::join<un::Hosts<un::Tcp>>(std::move(plane), {},
                                                {.hosts = {"a", "a", "b"}, .arena_bytes = 1 << 24});
        },
        [](HostsGroup&, const std::vector<int>&) {});
    expect(*told, 3, -1, un::ErrorCode::refused, {"rank 2: shared memory: no memory file"});
}

BOOST_AUTO_TEST_CASE(one_host_or_several) {
    const std::string wrong = test::error_text([] {
        un::fork_run(3, [](un::ControlPlane& plane) {
            const auto deadline = un::deadline_after(un::steady_now(), 30s);
            require(un::share_one_host(plane, deadline), "found several hosts, expected one");
            require(!un::share_one_host(plane, deadline, {"a", "b", "a"}), "found one host, expected two");
            require(un::share_one_host(plane, deadline, {"a", "a", "a"}), "found several hosts of one name");
        });
    });
    BOOST_TEST(wrong == "");
}

BOOST_AUTO_TEST_SUITE_END()
