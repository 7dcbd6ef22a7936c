// Absent or different providers, interfaces, ports and peers. Also ranks that are processes: they
// leave, die, or are stopped.
#include "support.hpp"

#include <array>
#include <chrono>
#include <memory>

// libfabric 1.17 leaks some of its own memory with each endpoint of net. (A program of bare calls
// shows it, too.)
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so"; }

namespace un = unisono;
using test::AllTold;
using test::expect;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// See joined.hpp. `of_rank_1`: rank 1's own provider.
template <class Body>
void run_processes(int ranks, AllTold& told, Body body, std::chrono::nanoseconds timeout = 30s,
                   const char* of_rank_1 = nullptr) {
    test::run_joined(
        ranks, told,
        [&](un::ControlPlane&& plane) {
            un::LibfabricOptions options;
            if (plane.rank() == 1 && of_rank_1 != nullptr) options.provider = of_rank_1;
            return un::join<un::Libfabric>(std::move(plane), {.timeout = timeout}, options);
        },
        body);
}

std::string refusal(const un::LibfabricOptions& options) {
    try {
        const un::detail::FabricDevice there(options, false);
    } catch (const un::error& failed) {
        BOOST_TEST((failed.code() == un::ErrorCode::refused));
        return failed.what();
    }
    return "nothing was refused";
}

} // namespace

BOOST_AUTO_TEST_SUITE(libfabric_faults)

BOOST_AUTO_TEST_CASE(what_is_not_there_is_named) {
    BOOST_TEST(test::mentions(refusal({.provider = "nonesuch"}), {"provider nonesuch"}));
    const std::string no_interface = refusal({.interface = "nonesuch0"});
    BOOST_TEST(test::mentions(no_interface, {"'nonesuch0'", "lo (127.0.0.1)"}), no_interface);
    const test::Variable said("UNISONO_PROVIDER", "nonesuch");
    BOOST_CHECK_EXCEPTION(un::run<un::Libfabric>(2, [](auto&) {}), un::error,
                          [](const un::error& e) { return test::mentions(e.what(), {"provider nonesuch"}); });
    un::run<un::Libfabric>(1, [](auto&) {}); // it needs no provider
}

BOOST_AUTO_TEST_CASE(the_program_speaks_before_its_environment) {
    const un::Environment environment{
        {"UNISONO_PROVIDER", "a"}, {"UNISONO_INTERFACE", "b"}, {"UNISONO_PORT_RANGE", "1-2"}};
    BOOST_TEST((un::LibfabricOptions{}.with(environment) == un::LibfabricOptions{"a", "b", {1, 2}, 0}));
    const un::LibfabricOptions own{"c", "d", {3, 4}, 5};
    BOOST_TEST((own.with(environment) == own));
}

BOOST_AUTO_TEST_CASE(port_ranges) {
    for (int attempt = 0;; ++attempt) { // other processes may take a port that was free just now
        const auto first = static_cast<std::uint16_t>(un::detail::listen_at(true, 0).port);
        const auto last = static_cast<std::uint16_t>(first + 1);
        try {
            const un::detail::FabricDevice one({.port_range = {first, last}}, false),
                two({.port_range = {first, last}}, false, 1);
            const std::string a = one.text_of(one.address()), b = two.text_of(two.address());
            BOOST_TEST((a != b && a.find("127.0.0.1:" + std::to_string(first)) == 0), a << ", " << b);
            BOOST_TEST(b.find("127.0.0.1:" + std::to_string(last)) == 0, b);
            const std::string full = refusal({.port_range = {first, last}});
            BOOST_TEST(test::mentions(full, {"interface lo", std::to_string(first), "provider"}), full);
            return;
        } catch (const un::error&) {
            if (attempt == 20) throw;
        }
    }
}

BOOST_AUTO_TEST_CASE(a_silent_peer_is_named_at_the_deadline) {
    const auto world = std::make_shared<un::Libfabric::World>(2);
    Group group{un::Libfabric(world, 0)};
    // A rank 1 that listens, but never polls.
    const un::detail::FabricDevice silent({}, false);
    world->publish(1, un::detail::card_of(silent, {}).text());
    group.set_timeout(300ms);
    for (const std::size_t count : {100u}) {
        std::vector<float> data(count);
        try {
            un::all_reduce(group, data);
            BOOST_ERROR("all_reduce without the others");
        } catch (const un::error& failed) {
            BOOST_TEST((failed.code() == un::ErrorCode::timeout && failed.peer() == 1), failed.what());
            BOOST_TEST(test::mentions(failed.what(), {"rank 1", silent.text_of(silent.address()), silent.text()}),
                       failed.what());
        }
    }
}

BOOST_AUTO_TEST_CASE(strangers_change_nothing) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        un::detail::FabricDevice stranger({}, false);
        std::vector<float> data(5000, 1.0f);
        un::all_reduce(group, data);
        const fi_addr_t to = stranger.insert(group.endpoint().address());
        un::detail::FabricFrame frame; // its key is wrong
        frame.from = 1 - group.rank();
        std::byte garbage[96] = {};
        for (int i = 0; i < 2000; ++i) {
            std::memcpy(garbage, &frame, sizeof frame);
            frame.kind = static_cast<un::detail::FabricFrame::Kind>(i % 7);
            static_cast<void>(stranger.inject(to, 0, garbage, i % 2 == 0 ? sizeof garbage : 10));
            stranger.poll([](auto&, int, std::size_t) {});
            if (i % 100 == 0) un::barrier(group);
        }
        findings.expect(!group.endpoint().has_left(1 - group.rank()), "a stranger said goodbye for a rank");
        std::fill(data.begin(), data.end(), 1.0f);
        un::all_reduce(group, data);
        findings.expect(data[4999] == 2.0f, "sum");
        findings.expect(group.endpoint().peers_used() == 1, "strangers are no peers");
    });
}

constexpr auto run = [](auto&&... all) { run_processes(all...); };
BOOST_AUTO_TEST_CASE(ranks_join_and_leave) {
    test::for_each_provider([](const std::string&) { test::check_join_and_leave(3, run); });
}
BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all) { test::check_killed(run); }
BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_at_the_deadline) { test::check_stopped(run); }

BOOST_AUTO_TEST_CASE(ranks_with_different_providers) {
    const test::Variable said("UNISONO_PROVIDER", "net");
    const test::Shared<AllTold> told;
    const auto body = [](Group&, const std::vector<int>&) {};
    run_processes(2, *told, body, 30s, "tcp;ofi_rxm");
    expect(*told, 2, -1, un::ErrorCode::refused, {"rank 1 has the provider 'tcp;ofi_rxm'", "rank 0 has 'net'"});
}

BOOST_AUTO_TEST_SUITE_END()
