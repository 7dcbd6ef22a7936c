// Collectives over sockets, and the connections that they make.
#include "support.hpp"

#include "support/allocation_counter.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace un = unisono;
using test::check_all_reduce;
using test::Group;

BOOST_AUTO_TEST_SUITE(tcp_collectives)

BOOST_AUTO_TEST_CASE(all_reduce_by_every_family) {
    for (int world = 1; world <= 4; ++world) {
        test::Findings findings;
        test::run(
            world,
            [&](Group& group) {
                for (const std::size_t count : {0u, 1u, 7u, 1000u, 30'000u, 700'001u}) {
                    check_all_reduce(group, findings, count, un::NativeSchedule{});
                    check_all_reduce(group, findings, count, un::RingSchedule{.chunk_bytes = 4096});
                    check_all_reduce(group, findings, count, un::TreeSchedule{});
                    check_all_reduce(group, findings, count, un::DirectSchedule{});
                    check_all_reduce(group, findings, count, un::ExchangeSchedule{});
                }
            },
            test::limit);
    }
}

BOOST_AUTO_TEST_CASE(the_other_collectives) {
    test::Findings findings;
    test::run(
        4,
        [&](Group& group) {
            const auto rank = static_cast<std::size_t>(group.rank());
            for (const std::size_t count : {1u, 5'000u}) {
                const auto mine = oracle::contribution<int>(group.rank(), count);
                std::vector<int> all(4 * count), expected;
                for (int peer = 0; peer < 4; ++peer) {
                    const auto theirs = oracle::contribution<int>(peer, count);
                    expected.insert(expected.end(), theirs.begin(), theirs.end());
                }
                un::all_gather(group, mine, all);
                findings.expect(all == expected, "all_gather");
                std::vector<int> part(count);
                un::scatter(group, group.rank() == 1 ? all : std::vector<int>(), part, 1);
                findings.expect(part == mine, "scatter");
                std::fill(all.begin(), all.end(), 0);
                un::gather(group, mine, all, 2);
                findings.expect(group.rank() != 2 || all == expected, "gather");
                std::vector<int> send(4 * count), received(4 * count);
                for (std::size_t peer = 0; peer < 4; ++peer)
                    std::fill_n(send.begin() + static_cast<std::ptrdiff_t>(peer * count), count,
                                static_cast<int>(10 * rank + peer));
                un::all_to_all(group, send, received);
                for (std::size_t peer = 0; peer < 4; ++peer)
                    findings.expect(received[peer * count] == static_cast<int>(10 * peer + rank), "all_to_all");
                std::vector<int> root = mine;
                un::broadcast(group, root, 3);
                findings.expect(root == oracle::contribution<int>(3, count), "broadcast");
                un::barrier(group);
            }
        },
        test::limit);
}

BOOST_AUTO_TEST_CASE(several_in_flight_and_groups_of_some) {
    test::Findings findings;
    test::run(
        4,
        [&](Group& group) {
            Group half = group.split(group.rank() % 2, group.rank());
            std::vector<std::vector<float>> data;
            for (std::size_t i = 0; i < 30; ++i)
                data.push_back(oracle::contribution<float>(i % 2 == 0 ? group.rank() : half.rank(), 10 + i * 3000));
            std::vector<un::Operation> pending;
            for (std::size_t i = 0; i < data.size(); ++i)
                pending.push_back(un::start_all_reduce(i % 2 == 0 ? group : half, data[i]));
            for (std::size_t i = 0; i < pending.size(); ++i)
                pending[group.rank() == 1 ? pending.size() - 1 - i : i].wait();
            for (std::size_t i = 0; i < data.size(); ++i)
                findings.expect(
                    oracle::equal(data[i], oracle::reduced<float>(i % 2 == 0 ? 4 : 2, data[i].size(), un::Sum{})),
                    "operation " + std::to_string(i));
        },
        test::limit);
}

BOOST_AUTO_TEST_CASE(large_messages_cross) { // more than any socket's buffers hold
    test::Findings findings;
    test::run(
        2,
        [&](Group& group) {
            const int other = 1 - group.rank();
            std::vector<float> out(6'000'000, static_cast<float>(group.rank() + 1)), in(out.size());
            un::Operation sending = un::start_send(group, out, other);
            un::Operation receiving = un::start_receive(group, in, other);
            sending.wait();
            receiving.wait();
            findings.expect(
                std::all_of(in.begin(), in.end(), [&](float x) { return x == static_cast<float>(other + 1); }),
                "exchanged");
        },
        test::limit);
}

/// Counts the process's open files until their number is as expected, because an unused connection
/// is closed a little later.
void expect_files(Group& group, test::Findings& findings, std::size_t expected, const char* what) {
    for (int i = 0; test::open_files() != expected && i < 5000; ++i) {
        group.progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    findings.expect(test::open_files() == expected, what);
}

BOOST_AUTO_TEST_CASE(one_connection_a_pair_whoever_begins) {
    const test::NoSocketLeft left;
    const std::size_t before = test::open_files();
    for (int round = 0; round < 30; ++round) {
        test::Findings findings;
        test::run(
            3,
            [&](Group& group) {
                findings.expect(group.endpoint().connections() == 0, "none before it is used");
                std::vector<int> send(3, group.rank()), received(3);
                un::all_to_all(group, send, received); // all begin together
                findings.expect(received == std::vector<int>{0, 1, 2}, "all_to_all");
                un::barrier(group);
                if (group.rank() == 0) expect_files(group, findings, before + 3 + 6, "3 listen, 3 pairs are connected");
                un::barrier(group);
            },
            test::limit);
    }
    test::Findings findings;
    test::run(
        4,
        [&](Group& group) {
            check_all_reduce(group, findings, 1000, un::RingSchedule{});
            findings.expect(group.endpoint().connections() == 2, "a ring has two neighbours");
            if (group.rank() == 0) expect_files(group, findings, before + 4 + 8, "4 listen, 4 pairs are connected");
            check_all_reduce(group, findings, 1000, un::RingSchedule{});
        },
        test::limit);
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_leaving_arrives) {
    test::Findings findings;
    test::run(
        3,
        [&](Group& group) {
            std::vector<float> data(300'000, 2.0f);
            if (group.rank() == 0) return un::send(group, data, 2); // and ends
            if (group.rank() == 1) return;                          // immediately
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            std::vector<float> in(data.size());
            un::receive(group, in, 0);
            findings.expect(in == data, "received");
        },
        test::limit);
}

BOOST_AUTO_TEST_CASE(a_step_does_not_allocate) {
    test::Findings findings;
    test::run(
        2,
        [&](Group& group) {
            std::vector<float> small(100), large(100'000);
            const auto step = [&] {
                un::all_reduce(group, small);
                un::all_reduce(group, large);
            };
            for (int i = 0; i < 100; ++i) step();
            // After 10 ms a waiting step notes for which rank it waits, which allocates.
            int without = 0;
            for (int i = 0; i < 100; ++i) {
                const std::size_t before = unisono_test::allocations_of_thread();
                step();
                without += unisono_test::allocations_of_thread() == before;
            }
            findings.expect(without >= 25, "only " + std::to_string(without) + " of 100 steps do not allocate");
        },
        test::limit);
}

BOOST_AUTO_TEST_SUITE_END()
