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
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            for (const std::size_t count : {0u, 1u, 7u, 1000u, 30'000u, 700'001u}) {
                check_all_reduce(group, findings, count, un::NativeSchedule{});
                check_all_reduce(group, findings, count, un::RingSchedule{.chunk_bytes = 4096});
                check_all_reduce(group, findings, count, un::TreeSchedule{});
                check_all_reduce(group, findings, count, un::DirectSchedule{});
                check_all_reduce(group, findings, count, un::ExchangeSchedule{});
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(the_other_collectives) {
    test::on_ranks(4, [&](Group& group, test::Findings& findings) {
        for (const std::size_t count : {1u, 5'000u}) test::check_others(group, findings, count);
    });
}

BOOST_AUTO_TEST_CASE(several_in_flight_and_groups_of_some) {
    test::on_ranks(4, [&](Group& group, test::Findings& findings) {
        Group half = group.split(group.rank() % 2, group.rank());
        test::check_several_in_flight(group, half, findings);
    });
}

BOOST_AUTO_TEST_CASE(large_messages_cross) { // more than any socket's buffers hold
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        const int other = 1 - group.rank();
        std::vector<float> out(6'000'000, static_cast<float>(group.rank() + 1)), in(out.size());
        un::Operation sending = un::start_send(group, out, other);
        un::Operation receiving = un::start_receive(group, in, other);
        sending.wait();
        receiving.wait();
        findings.expect(std::all_of(in.begin(), in.end(), [&](float x) { return x == static_cast<float>(other + 1); }),
                        "exchanged");
    });
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
        test::on_ranks(3, [&](Group& group, test::Findings& findings) {
            findings.expect(group.endpoint().connections() == 0, "none before it is used");
            std::vector<int> send(3, group.rank()), received(3);
            un::all_to_all(group, send, received); // all begin together
            findings.expect(received == std::vector<int>{0, 1, 2}, "all_to_all");
            un::barrier(group);
            if (group.rank() == 0) expect_files(group, findings, before + 3 + 6, "3 listen, 3 pairs are connected");
            un::barrier(group);
        });
    }
    test::on_ranks(4, [&](Group& group, test::Findings& findings) {
        check_all_reduce(group, findings, 1000, un::RingSchedule{});
        findings.expect(group.endpoint().connections() == 2, "a ring has two neighbours");
        if (group.rank() == 0) expect_files(group, findings, before + 4 + 8, "4 listen, 4 pairs are connected");
        check_all_reduce(group, findings, 1000, un::RingSchedule{});
    });
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_leaving_arrives) { test::check_sent_before_leaving(300'000); }

BOOST_AUTO_TEST_CASE(a_step_does_not_allocate) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
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
    });
}

BOOST_AUTO_TEST_SUITE_END()
