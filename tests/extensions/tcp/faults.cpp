// Peers that are absent, do not answer, or are strangers, and interfaces and ports that do not
// exist.
#include "support.hpp"
#include "support/fails.hpp"
#include "support/skip.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace un = unisono;
using test::connected_to;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// A loopback address that is said to be rank 1's.
std::string address_with(int port) {
    un::detail::TcpEntrance entrance{.interface = un::detail::find_interface("127.0.0.1", false)};
    entrance.listener.port = static_cast<std::uint16_t>(port);
    return entrance.address().text();
}

/// Rank 0 of two calls all_reduce. Its error must have this code, blame rank 1 and mention all of
/// `words`.
void rank_0_fails(const std::string& address_of_1, un::ErrorCode code, const std::vector<std::string>& words) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    Group group{un::Tcp(world, 0)};
    world->publish(1, address_of_1);
    group.set_timeout(1s);
    std::vector<float> data(100);
    try {
        un::all_reduce(group, data);
        BOOST_ERROR("all_reduce without the others");
    } catch (const un::error& failed) {
        BOOST_TEST((failed.code() == code && failed.peer() == 1), failed.what());
        BOOST_TEST(test::mentions(failed.what(), words), failed.what());
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_faults)

BOOST_AUTO_TEST_CASE(a_port_where_nobody_listens) {
    const test::NoSocketLeft left;
    const int port = un::detail::listen_at(true, 0).port; // just now
    rank_0_fails(address_with(port), un::ErrorCode::peer_lost,
                 {"rank 1", "127.0.0.1:" + std::to_string(port), "interface lo", "refused"});
}

/// As for a rank that was stopped for so long that its peer took its connection for a stranger's.
BOOST_AUTO_TEST_CASE(a_connection_that_ends_before_the_answer_is_made_again) {
    const test::NoSocketLeft left;
    const auto world = std::make_shared<un::Tcp::World>(2);
    const un::detail::Listener first = un::detail::listen_at(true, 0);
    Group group{un::Tcp(world, 0)};
    group.set_timeout(5s);
    world->publish(1, address_with(first.port));
    std::vector<float> data(100, 1);
    std::thread other([&] {
        for (int i = 0; i < 3; ++i) { // before or after the hello
            pollfd one{.fd = first.socket.get(), .events = POLLIN, .revents = 0};
            if (::poll(&one, 1, 2000) != 1) return;
            const un::detail::FileDescriptor visitor(::accept(first.socket.get(), nullptr, nullptr));
            if (i == 1) std::this_thread::sleep_for(50ms);
        }
        Group late{un::Tcp(world, 1)};
        late.set_timeout(5s);
        std::vector<float> mine(100, 2);
        un::all_reduce(late, mine);
    });
    try {
        un::all_reduce(group, data);
    } catch (const un::error& failed) {
        BOOST_ERROR(failed.what());
    }
    other.join();
    BOOST_TEST(data == std::vector<float>(100, 3), boost::test_tools::per_element());
}

/// A rank that begins to send and then computes says hello before. It proves itself when it goes
/// on, and loses nothing.
BOOST_AUTO_TEST_CASE(a_rank_says_hello_before_it_computes) {
    const test::NoSocketLeft left;
    std::atomic<bool> computes{false};
    test::Findings findings;
    un::run<un::Tcp>(2,
                     [&](Group& group) {
                         std::vector<float> data(100'000, group.rank() == 0 ? 3.0f : 0.0f);
                         if (group.rank() == 0) {
                             auto sent = un::start_send(group, data, 1);
                             computes = true;
                             std::this_thread::sleep_for(300ms);
                             sent.wait();
                         } else {
                             while (!computes) std::this_thread::sleep_for(1ms);
                             auto received = un::start_receive(group, data, 0);
                             const auto began = std::chrono::steady_clock::now();
                             while (!received.poll() && std::chrono::steady_clock::now() - began < 100ms) {
                             }
                             received.wait();
                             findings.expect(data[99'999] == 3.0f, "data");
                         }
                     },
                     {.timeout = 10s});
}

BOOST_AUTO_TEST_CASE(a_port_where_nobody_answers) {
    const test::NoSocketLeft left;
    // Connects but is not accepted: half open.
    const un::detail::Listener silent = un::detail::listen_at(true, 0);
    rank_0_fails(address_with(silent.port), un::ErrorCode::timeout,
                 {"rank 1", "127.0.0.1:" + std::to_string(silent.port), "interface lo", "answered the greeting"});
}

BOOST_AUTO_TEST_CASE(a_port_where_a_stranger_hangs_up_or_answers_garbage) {
    for (const bool says_something : {false, true}) {
        const un::detail::Listener other = un::detail::listen_at(true, 0);
        std::atomic<bool> over{false};
        std::thread stranger([&] {
            const std::string words(1000, 'x');
            while (!over) { // a peer that closes the connection is asked again
                if (!un::detail::wait_for(other.socket.get(), POLLIN, un::steady_now() + 100'000'000)) continue;
                const un::detail::FileDescriptor visit(::accept(other.socket.get(), nullptr, nullptr));
                if (!says_something) continue;
                static_cast<void>(::send(visit.get(), words.data(), words.size(), MSG_NOSIGNAL) + 0);
                std::this_thread::sleep_for(1500ms);
            }
        });
        rank_0_fails(address_with(other.port), says_something ? un::ErrorCode::peer_lost : un::ErrorCode::timeout,
                     {"rank 1", "127.0.0.1:" + std::to_string(other.port),
                      says_something ? "does not have this world's key"
                                     : "tried again: it ended before it answered the greeting"});
        over = true;
        stranger.join();
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_begins) {
    rank_0_fails("", un::ErrorCode::timeout, {"rank 1", "no address yet"});
}

BOOST_AUTO_TEST_CASE(another_host_by_the_loopback) { // the loopback has no route to it
    un::detail::TcpEntrance entrance;
    std::string why;
    entrance.interface = {.name = "far", .address = un::detail::resolve("192.0.2.1", 0, why).at(0)};
    entrance.listener.port = 1;
    rank_0_fails(entrance.address().text(), un::ErrorCode::peer_lost, {"rank 1", "192.0.2.1:1", "interface far"});
}

BOOST_AUTO_TEST_CASE(strangers_change_nothing) {
    const test::NoSocketLeft left;
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<un::detail::FileDescriptor> strangers;
        const int port = test::port_of(group.endpoint().address());
        const auto visit = [&](const void* words, std::size_t bytes) {
            strangers.push_back(connected_to(port));
            if (bytes != 0) static_cast<void>(::send(strangers.back().get(), words, bytes, MSG_NOSIGNAL) + 0);
        };
        const un::Blob hello = // it proves nothing
            un::detail::TcpCall(1 - group.rank(), group.rank(), 2, 0).hello();
        const auto all_kinds = [&] {
            visit(nullptr, 0);
            visit("GET / HTTP/1.0\r\n\r\n", 18);
            visit(hello.data(), 20);
            visit(hello.data(), hello.size());
            visit(std::string(100'000, '\0').data(), 100'000);
            connected_to(port).close();
        };
        all_kinds(); // before the two know each other
        std::vector<float> data(5000, 1.0f);
        un::all_reduce(group, data);
        for (int i = 0; i < 30; ++i) all_kinds();
        for (int i = 0; i < 100; ++i) {
            std::fill(data.begin(), data.end(), 1.0f);
            un::all_reduce(group, data);
        }
        findings.expect(data[4999] == 2.0f, "sum");
        findings.expect(group.endpoint().connections() == 1, "strangers are no peers");
    });
}

// A crowd that connects after a rank, before that rank is read, does not displace it.
BOOST_AUTO_TEST_CASE(a_crowd_of_strangers_does_not_push_out_a_rank) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    Group here{un::Tcp(world, 0)}, there{un::Tcp(world, 1)};
    const un::nanoseconds until = un::steady_now() + 20'000'000'000;
    std::vector<int> data(100, 7), found(100);
    un::Operation sent = un::start_send(there, data, 0);
    while (there.endpoint().describe(0).find("greeting") == std::string::npos && un::steady_now() < until) sent.poll();
    BOOST_TEST_REQUIRE(there.endpoint().describe(0).find("greeting") != std::string::npos);
    std::vector<un::detail::FileDescriptor> strangers;
    for (int i = 0; i < 300; ++i) strangers.push_back(connected_to(test::port_of(here.endpoint().address())));
    un::Operation received = un::start_receive(here, found, 1);
    for (bool done = false; !done && un::steady_now() < until;) {
        done = received.poll();
        done = sent.poll() && done;
    }
    BOOST_TEST(found == data);
    received.wait(1s);
    sent.wait(1s);
}

// A large crowd does not displace a rank that has connected before it and is still silent.
BOOST_AUTO_TEST_CASE(silent_strangers_do_not_push_out_a_rank_that_is_silent_yet) {
    for (int attempt = 0; attempt < 20; ++attempt) { // must take less time than a stranger may stay
        const auto world = std::make_shared<un::Tcp::World>(2);
        Group here{un::Tcp(world, 0)};
        const int port = test::port_of(here.endpoint().address());
        const un::detail::FileDescriptor rank = connected_to(port);
        std::vector<int> found(100);
        un::Operation received = un::start_receive(here, found, 1);
        const auto look_around = [&] {
            for (int i = 0; i < 200; ++i) received.poll();
        };
        look_around();
        const un::nanoseconds began = un::steady_now();
        std::vector<un::detail::FileDescriptor> strangers;
        for (int i = 0; i < 400; ++i) {
            strangers.push_back(connected_to(port));
            if (i % 50 == 49) look_around();
        }
        const bool is_let_in = test::greet(rank.get(), world->key(), [&] { received.poll(); });
        const bool was_in_time = un::steady_now() - began < un::detail::Strangers::grace;
        if (was_in_time) {
            BOOST_TEST(is_let_in);
            BOOST_TEST(here.endpoint().connections() == 1u);
            BOOST_TEST(here.endpoint().describe(1).find(", connected") != std::string::npos,
                       here.endpoint().describe(1));
        }
        here.endpoint().abort({.code = un::ErrorCode::aborted, .message = "the end"});
        BOOST_CHECK_THROW(received.wait(1s), un::error);
        if (was_in_time) return;
    }
    test::skip_part("this machine is too busy to open 400 connections in time");
}

// A process floods a rank with connections that end immediately. This costs the rank some of its
// time, and no more.
BOOST_AUTO_TEST_CASE(a_flood_of_connections_does_not_hold_up_a_poll) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    Group here{un::Tcp(world, 0)};
    const int port = test::port_of(here.endpoint().address());
    std::vector<un::detail::FileDescriptor> waiting;
    for (int i = 0; i < 300; ++i) waiting.push_back(connected_to(port));
    const std::size_t before = test::open_files();
    std::vector<int> found(1);
    un::Operation received = un::start_receive(here, found, 1);
    std::size_t most = 0;
    // A poll accepts at most one round.
    for (std::size_t last = before, rounds = 0; rounds < 400; ++rounds) {
        received.poll();
        const std::size_t now = test::open_files();
        if (now > last) most = std::max(most, now - last); // else it has dropped more than it let in
        last = now;
    }
    BOOST_TEST((most > 0 && most <= 64), most);
    here.endpoint().abort({.code = un::ErrorCode::aborted, .message = "the end"});
    BOOST_CHECK_THROW(received.wait(1s), un::error);
}

// If the process may open few files, strangers keep no rank from getting one.
BOOST_AUTO_TEST_CASE(strangers_give_their_descriptors_to_ranks) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    Group here{un::Tcp(world, 0)}, there{un::Tcp(world, 1)};
    const int port = test::port_of(here.endpoint().address());
    std::vector<un::detail::FileDescriptor> strangers;
    for (int i = 0; i < 60; ++i) strangers.push_back(connected_to(port));
    std::vector<int> data(100, 7), found(100), to_1(100, 5), at_1(100);
    un::Operation received = un::start_receive(here, found, 1);
    for (int i = 0; i < 200; ++i) received.poll(); // all are accepted
    const int next = ::dup(0);                     // all smaller descriptors are in use
    ::close(next);
    struct Few {
        rlimit before{};
        explicit Few(int files) {
            ::getrlimit(RLIMIT_NOFILE, &before);
            const rlimit few{.rlim_cur = static_cast<rlim_t>(files), .rlim_max = before.rlim_max};
            ::setrlimit(RLIMIT_NOFILE, &few);
        }
        ~Few() { ::setrlimit(RLIMIT_NOFILE, &before); }
    };
    auto limit = std::make_unique<Few>(next);
    un::Operation sent = un::start_send(here, to_1, 1);
    for (int i = 0; i < 200; ++i) received.poll();
    const std::string state = here.endpoint().describe(1);
    limit.reset();
    BOOST_TEST(state.find("Too many open files") == std::string::npos, state);
    un::Operation back = un::start_send(there, data, 0), came = un::start_receive(there, at_1, 0);
    const un::nanoseconds until = un::steady_now() + 20'000'000'000;
    for (bool done = false; !done && un::steady_now() < until;) {
        done = received.poll();
        done = sent.poll() && done;
        done = back.poll() && done;
        done = came.poll() && done;
    }
    BOOST_TEST(found == data);
    BOOST_TEST(at_1 == to_1);
    for (un::Operation* const one : {&received, &sent, &back, &came}) one->wait(5s);
}

BOOST_AUTO_TEST_CASE(interfaces) {
    const test::Variable said("UNISONO_INTERFACE", "nonesuch0");
    test::fails(un::ErrorCode::refused, {"'nonesuch0'", "lo (127.0.0.1)"}, [] { un::run<un::Tcp>(2, [](auto&) {}); });
    un::run<un::Tcp>(1, [](auto&) {}); // it needs no interface
}

BOOST_AUTO_TEST_CASE(an_interface_by_its_address) {
    const test::Variable said("UNISONO_INTERFACE", "127.0.0.1");
    test::Findings findings;
    test::run(2, [&](Group& group) {
        findings.expect(test::mentions(group.endpoint().address(), {"127.0.0.1:", "interface lo"}),
                        group.endpoint().address());
        un::barrier(group);
    });
}

BOOST_AUTO_TEST_CASE(congestion_controls) {
    const un::Environment said{{"UNISONO_TCP_CONGESTION", "reno"}};
    BOOST_TEST(un::TcpOptions{}.with(said).congestion == "reno");
    BOOST_TEST((un::TcpOptions{.congestion = "cubic"}.with(said).congestion == "cubic"));
    std::atomic<int> sum = 0;
    {
        const test::Variable variable("UNISONO_TCP_CONGESTION", "reno"); // every system has it
        un::run<un::Tcp>(2, [&](auto& world) {
            std::vector<int> one{1};
            un::all_reduce(world, one);
            sum += one[0];
        });
    }
    BOOST_TEST(sum == 4);
    const auto shared = std::make_shared<un::Tcp::World>(2);
    test::fails(un::ErrorCode::refused, {"congestion control", "no_such"},
                [&] { un::Tcp(shared, 0, {.congestion = "no_such"}); });
}

BOOST_AUTO_TEST_CASE(port_ranges) {
    // Ports that were free just now. Other processes may take one, so the test tries several
    // ranges.
    for (int attempt = 0;; ++attempt) {
        const int first = un::detail::listen_at(true, 0).port;
        const test::Variable said("UNISONO_PORT_RANGE", std::to_string(first) + "-" + std::to_string(first + 2));
        try {
            test::Findings findings;
            test::run(3, [&](Group& group) {
                const int port = test::port_of(group.endpoint().address());
                findings.expect(port >= first && port <= first + 2, group.endpoint().address());
                un::barrier(group);
            });
        } catch (const un::error&) {
            if (attempt == 20) throw;
            continue;
        }
        test::fails(un::ErrorCode::refused, {"interface lo", std::to_string(first), "127.0.0.1"},
                    [] { un::run<un::Tcp>(4, [](auto& group) { un::barrier(group); }); });
        break;
    }
    for (const char* const wrong : {"x", "0", "70000", "5-4", "1-", "-1", "1-2-3"})
        test::fails(un::ErrorCode::bad_input, {}, [&] { static_cast<void>(un::PortRange::parse(wrong, "here")); });
    BOOST_TEST((un::PortRange::parse("40000-40100", "") == un::PortRange{40000, 40100}));
    BOOST_TEST((un::PortRange::parse("40000", "") == un::PortRange{40000, 40000}));
    const un::Environment environment{{"UNISONO_INTERFACE", "eth0"}, {"UNISONO_PORT_RANGE", "1-2"}};
    BOOST_TEST((un::TcpOptions{}.with(environment) == un::TcpOptions{"eth0", {1, 2}}));
    BOOST_TEST((un::TcpOptions{"lo", {3, 4}}.with(environment) == un::TcpOptions{"lo", {3, 4}}));
}

BOOST_AUTO_TEST_SUITE_END()
