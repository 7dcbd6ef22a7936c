// Connections that the hub cannot attribute to a rank yet. Their number is limited, and they do not
// keep a rank out.

#include "ranks.hpp"
#include "support/skip.hpp"

#include <unisono/extensions/launch/control/hub.hpp>
#include <unisono/extensions/launch/control/strangers.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

std::vector<un::detail::FileDescriptor> silent_connections(std::uint16_t port, int count) {
    std::string why;
    const auto address = un::detail::resolve("127.0.0.1", port, why).at(0);
    std::vector<un::detail::FileDescriptor> made;
    for (int i = 0; i < count; ++i) made.push_back(un::detail::connect_to(address, test::in(20s), why));
    return made;
}

bool is_open(const un::detail::FileDescriptor& socket) {
    char one = 0;
    return ::recv(socket.get(), &one, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

} // namespace

BOOST_AUTO_TEST_SUITE(launch_strangers)

BOOST_AUTO_TEST_CASE(the_oldest_of_the_largest_crowd_gives_way_after_its_time) {
    constexpr un::nanoseconds grace = un::detail::Strangers::grace;
    un::detail::Strangers all(5);
    BOOST_CHECK(!all.first_to_go(10 * grace));
    BOOST_CHECK_EQUAL(all.add(7, 0), 1u); // the oldest, and alone
    for (std::uint32_t id = 2; id <= 5; ++id) BOOST_CHECK_EQUAL(all.add(8, grace / 10 * id), id);
    BOOST_CHECK(all.full());
    BOOST_CHECK(!all.first_to_go(grace)); // that one is still new
    BOOST_CHECK_EQUAL(all.opens(), grace / 10 * 2 + grace);
    BOOST_CHECK_EQUAL(all.first_to_go(2 * grace).value_or(0), 2u);
    BOOST_CHECK_EQUAL(all.first_to_go().value_or(0), 2u); // also if it is new
    all.remove(2);
    all.remove(2);
    BOOST_CHECK(!all.full());
    BOOST_CHECK_EQUAL(all.opens(), 0);
    BOOST_CHECK_EQUAL(all.first_to_go(2 * grace).value_or(0), 3u);
    for (std::uint32_t id = 3; id <= 5; ++id) all.remove(id);
    BOOST_CHECK_EQUAL(all.first_to_go(2 * grace).value_or(0), 1u);
    BOOST_CHECK_EQUAL(all.size(), 1u);
}

// One source floods: it takes no room of the others.
BOOST_AUTO_TEST_CASE(the_room_for_strangers) {
    constexpr un::nanoseconds second = 1'000'000'000;
    un::detail::Strangers all;
    std::map<std::uint32_t, std::uint64_t> sources;
    const auto come = [&](std::uint64_t source, un::nanoseconds now) { sources[all.add(source, now)] = source; };
    come(7, 0); // the oldest, but the only one of its source
    for (std::uint64_t i = 1; !all.full(); ++i) come(1 + i % 2 + i % 3 / 2, static_cast<un::nanoseconds>(i));
    const std::size_t most = all.size();
    BOOST_CHECK(most >= 16 && most <= un::detail::Strangers::usual_most);
    for (std::size_t i = 0; i < 10 * most; ++i) {
        const un::nanoseconds now = second * static_cast<un::nanoseconds>(10 + 10 * i);
        const auto gone = all.first_to_go(now);
        BOOST_REQUIRE(gone.has_value());
        all.remove(*gone);
        sources.erase(*gone);
        come(2, now);
    }
    const auto count = [&](std::uint64_t source) {
        return static_cast<std::size_t>(
            std::count_if(sources.begin(), sources.end(), [&](const auto& one) { return one.second == source; }));
    };
    BOOST_CHECK_EQUAL(all.size(), most);
    BOOST_CHECK_EQUAL(count(7), 1u);
    BOOST_CHECK(count(1) >= most / 4);
}

// A stranger opens more connections than the limit while a rank has connected and is about to send.
BOOST_AUTO_TEST_CASE(who_has_just_come_is_not_pushed_out) {
    for (int attempt = 0; attempt < 20; ++attempt) { // must take less time than a stranger may stay
        un::detail::Hub hub(un::detail::listen_at(true, 0), {.world = 2, .token = un::JobToken::random()});
        const auto began = un::steady_now();
        const auto rank = silent_connections(hub.port(), 1);
        const auto crowd = silent_connections(hub.port(), 400);
        std::this_thread::sleep_for(50ms);
        const bool stayed = is_open(rank[0]);
        if (un::steady_now() - began >= un::detail::Strangers::grace) continue;
        BOOST_CHECK(stayed);
        return;
    }
    test::skip("this machine is too busy to open 400 connections in time");
}

// Strangers hold silent connections, open others, send what is no hello, and connect again.
BOOST_AUTO_TEST_CASE(a_flood_does_not_keep_ranks_from_their_hub) {
    const un::RendezvousPoint point = test::local_point();
    std::atomic<int> here{0};
    std::atomic<bool> done{false};
    std::thread flood([&] {
        while (here < 2 && !done) std::this_thread::sleep_for(1ms);
        std::vector<un::detail::FileDescriptor> held;
        const std::vector<char> garbage(4096, 'x');
        for (int i = 0; !done; ++i) {
            auto each = silent_connections(point.port, 1);
            if (i >= 400 && each[0].valid())
                static_cast<void>(::send(each[0].get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
            else held.push_back(std::move(each[0]));
        }
    });
    test::all_well(test::run_ranks({0, 1}, [&](int rank) {
        struct Stop {
            std::atomic<bool>* done;
            ~Stop() { *done = true; }
        };
        const Stop stop{&done};
        un::ControlPlane plane = un::rendezvous(un::identity_of(rank, 2), point, test::patience());
        ++here;
        for (int i = 0; i < 1000; ++i) plane.all_gather(test::blob(std::to_string(rank)), test::in(20s));
        plane.leave();
    }));
    done = true;
    flood.join();
}

// A job has failed before all ranks joined. A rank that joins a little later is told the reason.
BOOST_AUTO_TEST_CASE(who_comes_after_the_fault_hears_of_it) {
    const un::RendezvousPoint point = test::local_point();
    const auto outcomes = test::run_ranks({0, 2, 1}, [&](int rank) {
        if (rank == 1) std::this_thread::sleep_for(500ms);
        static_cast<void>(un::rendezvous(un::identity_of(rank, rank == 2 ? 4 : 3), point, test::patience(5s)));
    });
    for (const auto& each : outcomes) BOOST_CHECK_MESSAGE(test::contains(each, "expects a world of 4"), each.text);
}

BOOST_AUTO_TEST_SUITE_END()
