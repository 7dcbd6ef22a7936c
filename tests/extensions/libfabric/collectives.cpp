// Collectives over libfabric, on few ranks and many.
#include "support.hpp"

#include <unisono/hosts.hpp>
#include <unisono/transports.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>

namespace un = unisono;
using test::check_all_reduce;
using test::Group;

BOOST_AUTO_TEST_SUITE(libfabric_collectives)

BOOST_AUTO_TEST_CASE(all_reduce_by_several_families) {
    test::for_each_provider([](const std::string&) {
        for (int world = 1; world <= 4; ++world) {
            test::on_ranks(world, [&](Group& group, test::Findings& findings) {
                for (const std::size_t count : {0u, 1u, 7u, 1000u, 30'000u, 300'001u}) {
                    check_all_reduce(group, findings, count, un::NativeSchedule{});
                    check_all_reduce(group, findings, count, un::TreeSchedule{});
                }
                check_all_reduce(group, findings, 100'000, un::RingSchedule{.chunk_bytes = 4096});
            });
        }
    });
}

BOOST_AUTO_TEST_CASE(large_messages_cross_and_others_pass) {
    test::for_each_provider([](const std::string&) {
        test::on_ranks(3, [&](Group& group, test::Findings& findings) {
            std::vector<float> out(3 * 700'000, static_cast<float>(group.rank() + 1)), in(out.size());
            std::vector<int> small(3, group.rank()), received(3);
            un::Operation large = un::start_all_to_all(group, out, in);
            un::all_to_all(group, small, received);
            large.wait();
            findings.expect(received == std::vector<int>{0, 1, 2}, "small ones");
            for (std::size_t peer = 0; peer < 3; ++peer)
                findings.expect(in[peer * 700'000] == static_cast<float>(peer + 1) &&
                                    in[peer * 700'000 + 699'999] == static_cast<float>(peer + 1),
                                "large ones");
        });
    });
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_leaving_arrives) {
    test::for_each_provider([](const std::string&) {
        for (const std::size_t count : {100u, 300'000u}) test::check_sent_before_leaving(count);
    });
}

BOOST_AUTO_TEST_CASE(memory_of_the_groups) {
    un::Memory<float> kept;
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        un::Memory<float> data = group.allocate<float>(200'000);
        std::fill(data.begin(), data.end(), 1.0f);
        un::all_reduce(group, data);
        findings.expect(data[199'999] == 2.0f, "sum");
        if (group.rank() == 0) kept = std::move(data); // outlives its world
    });
    BOOST_TEST(kept[0] == 2.0f);
    un::run<un::Libfabric>(1, [](Group& group) { BOOST_TEST(group.allocate<int>(5).size() == 5u); });
}

/// Calls body(group) on two ranks that register memory, as verbs and efa require; net accepts it,
/// too.
template <class Body>
void with_registration(Body body) {
    const auto world = std::make_shared<un::Libfabric::World>(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            un::detail::FabricDevice device({}, false);
            device.register_always();
            const un::detail::FabricCard card = un::detail::card_of(device, {.eager_bytes = 1000});
            un::detail::LibfabricWire wire(world, rank, std::move(device), card.eager_bytes);
            world->publish(rank, card.text());
            Group group{un::Libfabric(world, rank, std::move(wire))};
            group.set_timeout(std::chrono::seconds(30));
            body(group);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

BOOST_AUTO_TEST_CASE(memory_that_is_registered) {
    test::Findings findings;
    with_registration([&](Group& group) {
        un::Memory<float> data = group.allocate<float>(50'000);
        std::fill(data.begin(), data.end(), 1.0f);
        std::vector<float> other(50'000, 1.0f);
        for (int i = 0; i < 10; ++i) {
            un::all_reduce(group, data, un::Sum{}, un::RingSchedule{.chunk_bytes = 10'000});
            un::all_reduce(group, other);
            un::barrier(group);
        }
        findings.expect(data[49'999] == 1024.0f && other[49'999] == 1024.0f, "sums");
    });
}

// A bounce buffer would be registered for each message. Rank 0 sends when the receive is posted.
BOOST_AUTO_TEST_CASE(large_messages_land_in_memory_that_is_registered_once) {
    test::Findings findings;
    with_registration([&](Group& group) {
        constexpr std::size_t count = 50'000;
        const auto owner = std::make_shared<std::vector<float>>(count, static_cast<float>(1 - group.rank()));
        const std::span<float> data(*owner);
        std::shared_ptr<std::byte> known = group.endpoint().register_once(
            std::shared_ptr<std::byte>(owner, reinterpret_cast<std::byte*>(data.data())), data.size_bytes());
        const auto registrations_of_messages = [&] {
            const std::uint64_t before = group.endpoint().registrations();
            for (int i = 0; i < 5; ++i) {
                int go = 0;
                if (group.rank() == 0) {
                    un::receive(group, std::span<int>(&go, 1), 1);
                    un::send(group, data, 1);
                } else {
                    un::Operation landing = un::start_receive(group, data, 0);
                    un::send(group, std::span<const int>(&go, 1), 0);
                    landing.wait();
                }
            }
            return group.endpoint().registrations() - before;
        };
        findings.expect(registrations_of_messages() == 0, "registered once, at both ends");
        findings.expect(data[0] == 1.0f && data[count - 1] == 1.0f, "received");
        known.reset();
        findings.expect(registrations_of_messages() == 5, "a registration ends with its owner");
    });
}

// Their names differ, so that one program may choose, and ranks of both form no elastic world.
BOOST_AUTO_TEST_CASE(hosts_are_named_after_their_network) {
    using Choice = un::Transports<un::Hosts<un::Tcp>, un::Hosts<un::Libfabric>>;
    BOOST_TEST(Choice::words() == "hosts or hosts_libfabric");
}

BOOST_AUTO_TEST_CASE(memory_that_a_host_shares_is_registered_once) {
    using Hosts = un::Hosts<un::Libfabric>;
    static_assert(un::registers_memory<un::Libfabric>);
    const auto world = std::make_shared<un::detail::HostsWorld>(2, std::vector<std::string>{"a", "b"});
    test::Findings findings;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            un::detail::FabricDevice device({}, false);
            device.register_always();
            const un::detail::FabricCard card = un::detail::card_of(device, {.eager_bytes = 1000});
            un::detail::LibfabricWire wire(world->network(), rank, std::move(device), card.eager_bytes);
            world->network()->publish(rank, card.text());
            un::Group<Hosts> group{Hosts(world->places(),
                                         un::SharedMemory(world->memory_of(rank), world->places().local_rank(rank)),
                                         un::Libfabric(world->network(), rank, std::move(wire)))};
            group.set_timeout(std::chrono::seconds(30));
            un::Memory<float> data = group.allocate<float>(50'000);
            std::vector<float> other(50'000, 1.0f);
            std::fill(data.begin(), data.end(), 1.0f);
            // And count what that registers at the sender.
            const auto send_often = [&](const auto& what) {
                const std::uint64_t before = group.endpoint().network().registrations();
                for (int i = 0; i < 5; ++i) {
                    if (rank == 0) un::send(group, what, 1);
                    else un::receive(group, other, 0);
                }
                return group.endpoint().network().registrations() - before;
            };
            const std::uint64_t known = send_often(data), unknown = send_often(std::vector<float>(50'000, 1.0f));
            findings.expect(group.endpoint().reaches(data.data(), 200'000), "shared");
            findings.expect(rank != 0 || (known == 0 && unknown == 5), "registered once");
            findings.expect(other[49'999] == 1.0f, "received");
        });
    }
    for (std::thread& thread : threads) thread.join();
}

BOOST_AUTO_TEST_CASE(two_hundred_and_fifty_six_ranks) {
    constexpr int ranks = 256;
    test::Findings findings;
    test::run(ranks,
              [&](Group& group) {
                  findings.expect(group.endpoint().peers_used() == 0, "no peer is known before use");
                  std::vector<int> data(1000, 1);
                  un::all_reduce(group, data, un::Sum{}, un::TreeSchedule{});
                  findings.expect(data[999] == ranks, "tree");
                  // A binomial tree has at most 8 children and a parent.
                  findings.expect(group.endpoint().peers_used() <= 9, "neighbours in the tree alone");
              },
              {.timeout = std::chrono::seconds(100)});
}

BOOST_AUTO_TEST_SUITE_END()
