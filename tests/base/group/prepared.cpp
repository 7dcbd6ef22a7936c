// Collectives that are prepared once and started repeatedly.
#include "../collective/findings.hpp"
#include "support/allocation_counter.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace un = unisono;
using test::Group;

namespace {

struct Plus { // an operation of the user's, with a state
    double more = 0;
    double operator()(double a, double b) const { return a + b + more; }
};

/// Numbers that differ on each rank, in each round and at each place.
void fill(std::vector<double>& data, const Group& group, int round) {
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = 1.0 / static_cast<double>(i + 3 + 7 * static_cast<std::size_t>(group.rank() + 5 * round));
}

/// The fault of `body`; empty: none.
template <class Body>
std::string text_of(Body body) {
    try {
        body();
    } catch (const un::error& failed) {
        return std::string(name_of(failed.code())) + ": " + failed.what();
    }
    return {};
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Prepared and plain calls in turns, by this family, give the same bits.
template <class Family, class Op>
void check_bits(test::Findings& findings, Group& group, std::size_t count, const Op& op, const Family& family) {
    std::vector<double> in(count), out(count), expected(count);
    un::Prepared prepared = un::prepare_all_reduce(group, in, out, op, family);
    for (int round = 0; round < 6; ++round) {
        fill(in, group, round);
        un::all_reduce(group, in, expected, op, family);
        if (round % 3 == 0) {
            prepared.run();
        } else {
            prepared.start();
            if (round % 3 == 1) prepared.wait();
            else
                while (!prepared.poll()) {
                }
        }
        findings.expect(out == expected, std::to_string(count) + " elements by " + std::string(Family::name) +
                                             ", round " + std::to_string(round) + ": other bits");
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(prepared)

BOOST_AUTO_TEST_CASE(the_bits_are_those_of_the_plain_call) {
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        for (const std::size_t count : {0u, 1u, 60u, 2000u, 50'000u}) {
            check_bits(findings, group, count, un::Sum{}, un::NativeSchedule{});
            check_bits(findings, group, count, Plus{0.5}, un::NativeSchedule{});
            check_bits(findings, group, count, un::Max{}, un::RingSchedule{.chunk_bytes = 4096});
        }
    });
}

BOOST_AUTO_TEST_CASE(every_collective_can_be_prepared) {
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        using un::detail::buffer_of, un::detail::call_on;
        using enum un::Collective;
        const un::NativeSchedule native;
        const auto ranks = static_cast<std::size_t>(group.size());
        std::vector<double> one(40), all(40 * ranks), plain(40 * ranks), plain_one(40);
        std::vector<std::size_t> counts{10, 60, 50};
        const std::size_t own = counts[static_cast<std::size_t>(group.rank())];
        std::vector<double> uneven(own);
        un::Prepared gathering =
            group.prepare(call_on<all_gather, std::vector<double>>(group, native), buffer_of(one), buffer_of(all));
        un::Prepared scattering = group.prepare(call_on<reduce_scatter, std::vector<double>>(group, native, un::Sum{}),
                                                buffer_of(all), buffer_of(one));
        un::Prepared from_one =
            group.prepare(call_on<broadcast, std::vector<double>>(group, native, un::detail::NoOperation{}, 2),
                          buffer_of(one), buffer_of(one));
        un::Prepared meet = group.prepare(call_on<barrier, std::span<std::byte>>(group, native), {}, {});
        un::Prepared gather_uneven = group.prepare(
            call_on<all_gather, std::vector<double>>(group, native, un::detail::NoOperation{}, 0, counts, counts),
            buffer_of(uneven), buffer_of(all));
        counts.assign(3, 0); // they were copied
        for (int round = 0; round < 3; ++round) {
            fill(one, group, round);
            gathering.run();
            un::all_gather(group, one, plain);
            findings.expect(all == plain, "all_gather");
            scattering.run();
            un::reduce_scatter(group, plain, plain_one);
            findings.expect(one == plain_one, "reduce_scatter");
            fill(one, group, round + 10);
            fill(plain_one, group, round + 10);
            from_one.run();
            un::broadcast(group, plain_one, 2);
            findings.expect(one == plain_one, "broadcast");
            meet.run();
            fill(uneven, group, round + 20);
            gather_uneven.run();
            un::all_gather(group, uneven, plain, std::vector<std::size_t>{10, 60, 50});
            findings.expect(all == plain, "all_gather of blocks that differ");
        }
    });
}

BOOST_AUTO_TEST_CASE(several_are_in_flight_between_other_operations_and_end_in_any_order) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        Group other = group.split(0, group.rank());
        std::vector<std::vector<double>> data(40); // more than a group keeps states
        std::vector<un::Prepared> prepared;
        for (std::size_t i = 0; i < data.size(); ++i) {
            data[i].resize(1 + 97 * i);
            prepared.push_back(un::prepare_all_reduce(i % 2 == 0 ? group : other, data[i]));
        }
        for (int round = 0; round < 4; ++round) {
            for (std::vector<double>& one : data) fill(one, group, round);
            std::vector<std::vector<double>> expected = data;
            std::vector<double> between(5, 1.0);
            for (std::size_t i = 0; i < data.size(); ++i) {
                prepared[i].start();
                if (i % 7 == 0) un::all_reduce(group, between);
                un::Operation plain = un::start_all_reduce(other, expected[i]);
                if (i % 3 == 0) prepared[i].wait();
                plain.wait();
            }
            for (std::size_t i = data.size(); i-- > 0;) prepared[i].wait();
            findings.expect(data == expected, "other results in round " + std::to_string(round));
        }
    });
}

BOOST_AUTO_TEST_CASE(a_handle_moves_also_in_flight) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<int> data(3000, 1), later(10, 1);
        un::Prepared first = un::prepare_all_reduce(group, data);
        first.start();
        un::Prepared second = std::move(first);
        findings.expect(contains(text_of([&] { first.start(); }), "was moved from"), "a moved handle starts");
        findings.expect(first.poll(), "a moved handle is in flight"); // NOLINT(bugprone-use-after-move)
        second.wait();
        findings.expect(data == std::vector<int>(3000, 2), "other results");
        second = un::prepare_all_reduce(group, later);
        second.run();
        findings.expect(later == std::vector<int>(10, 2), "other results of what was assigned");
    });
}

BOOST_AUTO_TEST_CASE(a_start_on_other_memory_of_the_same_size) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        using un::detail::buffer_of;
        std::vector<int> a(2000, 1), b(2000, 2), c(2000, 3), small(1999);
        un::Prepared sum = un::prepare_all_reduce(group, a, b);
        const std::span<int> few(small);
        for (const auto& [what, words] : {std::pair{text_of([&] { sum.start(buffer_of(small), buffer_of(small)); }),
                                                    "expected 8000 bytes of int32"},
                                          std::pair{text_of([&] { sum.start(buffer_of(a), buffer_of(small)); }),
                                                    "has 1999 elements, expected 2000"},
                                          std::pair{text_of([&] {
                                                        auto behind = buffer_of(a);
                                                        behind.data += 4;
                                                        sum.start(buffer_of(a), behind);
                                                    }),
                                                    "overlaps it"},
                                          std::pair{text_of([&] {
                                                        auto none = buffer_of(a);
                                                        none.data = nullptr;
                                                        sum.start(none, buffer_of(b));
                                                    }),
                                                    "is NULL"}}) {
            findings.expect(contains(what, words), what);
        }
        sum.start(buffer_of(b), buffer_of(c));
        sum.wait();
        findings.expect(c == std::vector<int>(2000, 4) && b == std::vector<int>(2000, 2), "other results");
        sum.run(); // on the same memory again
        findings.expect(c == std::vector<int>(2000, 4), "other results of the second run");
        sum.start(buffer_of(c), buffer_of(c)); // in place, which it was not
        sum.wait();
        findings.expect(c == std::vector<int>(2000, 8), "other results in place");
    });
}

BOOST_AUTO_TEST_CASE(a_restart_does_not_allocate) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        for (const std::size_t count : {3u, 300u, 30'000u}) {
            auto data = group.allocate<float>(count); // memory that the peers see
            auto other = group.allocate<float>(count);
            un::Prepared sum = un::prepare_all_reduce(group, data);
            un::Prepared with_lanes =
                un::prepare_all_reduce(group, data, un::Sum{}, un::RingSchedule{.chunk_bytes = 8192});
            const auto round = [&] {
                sum.run();
                with_lanes.run();
                sum.start(un::detail::buffer_of(other), un::detail::buffer_of(other));
                with_lanes.start();
                sum.wait();
                with_lanes.wait();
            };
            for (int i = 0; i < 20; ++i) round();
            un::barrier(group);
            std::size_t made = 1; // in a round; those with messages that come early may lengthen a queue
            for (int i = 0; i < 200; ++i) {
                const std::size_t before = unisono_test::allocations_of_thread();
                round();
                made = std::min(made, unisono_test::allocations_of_thread() - before);
            }
            findings.expect(made == 0, std::to_string(made) + " allocations in each of 200 rounds of " +
                                           std::to_string(count) + " elements");
        }
    });
}

BOOST_AUTO_TEST_CASE(a_start_carries_the_number_of_the_trainer_in_whose_call_it_is) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<float> data(10, 1);
        un::Prepared outside = un::prepare_all_reduce(group, data);
        const std::uint64_t trainer = group.context().next_trainer();
        const auto inside = [&](auto body) {
            const un::detail::TrainerCall call(group.context(), trainer);
            body();
        };
        std::optional<un::Prepared> within;
        inside([&] { within = un::prepare_all_reduce(group, data); });
        for (int round = 0; round < 3; ++round) { // one rank prepared, the other not
            inside([&] { group.rank() == 0 ? outside.run() : un::all_reduce(group, data); });
            group.rank() == 0 ? within->run() : un::all_reduce(group, data);
            inside([&] { group.rank() == 1 ? within->run() : un::all_reduce(group, data); });
            group.rank() == 1 ? outside.run() : un::all_reduce(group, data);
        }
        findings.expect(data == std::vector<float>(10, 4096.0f), "other results");
    });
}

BOOST_AUTO_TEST_CASE(a_start_carries_the_floating_point_mode_of_its_thread) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<float> data(1000, 1);
        un::Prepared sum = un::prepare_all_reduce(group, data);
        const un::detail::FloatingPointMode before = un::detail::floating_point_mode();
        for (const auto mode : {un::detail::FloatingPointMode::rounds_down, before}) {
            un::detail::set_floating_point_mode(mode);
            for (int round = 0; round < 10; ++round) // one rank prepared, the other not
                group.rank() == round % 2 ? sum.run() : un::all_reduce(group, data);
        }
        findings.expect(data == std::vector<float>(1000, 1 << 20), "other results");
    });
}

BOOST_AUTO_TEST_CASE(a_second_start_in_flight_is_refused_and_the_first_goes_on) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<int> data(20'000, 1);
        un::Prepared sum = un::prepare_all_reduce(group, data);
        sum.start();
        const std::string text = text_of([&] { sum.start(); });
        findings.expect(contains(text, "bad_input: ") && contains(text, "it is in flight; expected a wait"), text);
        findings.expect(contains(text_of([&] { sum.run(); }), "Prepared::run of all_reduce on rank"), "run goes on");
        sum.wait();
        findings.expect(data == std::vector<int>(20'000, 2), "other results");
        sum.wait(); // not in flight
        findings.expect(sum.poll(), "it is in flight after wait");
    });
}

BOOST_AUTO_TEST_CASE(memory_of_a_device_is_refused) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<int> data(20, 1);
        un::Prepared sum = un::prepare_all_reduce(group, data);
        un::detail::CallBuffer there = un::detail::buffer_of(data);
        there.space = un::MemorySpace::device;
        const std::string text = text_of([&] { sum.start(there, there); });
        findings.expect(contains(text, "80 bytes of int32 on a device, expected 80 bytes of int32"), text);
        un::detail::Call call{.what = un::Collective::all_reduce};
        const std::string other = text_of([&] { static_cast<void>(group.prepare(call, there, there)); });
        findings.expect(contains(other, "prepare: found memory of a device for all_reduce"), other);
        sum.run();
        findings.expect(data == std::vector<int>(20, 2), "other results");
    });
}

BOOST_AUTO_TEST_CASE(a_start_after_a_fault_throws_the_fault) {
    test::Findings findings;
    static_cast<void>(text_of([&] {
        test::run(
            2,
            [&](Group& group) {
                std::vector<float> data(20'000);
                un::Prepared sum = un::prepare_all_reduce(group, data);
                std::string first;
                while (first.empty()) { // the fault may arrive in any of these
                    first = text_of([&] { sum.run(); });
                    if (group.rank() == 0) throw un::error(un::ErrorCode::refused, "no more");
                }
                const std::string second = text_of([&] { sum.run(); });
                findings.expect(contains(first, "no more") && contains(second, "no more"), first + " then " + second);
            },
            test::limit);
    }));
}

BOOST_AUTO_TEST_CASE(one_of_a_group_that_ended_is_refused) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::optional<Group> part = group.split(0, group.rank());
        std::vector<int> data(2000, 1);
        un::Prepared sum = un::prepare_all_reduce(*part, data);
        sum.run();
        part.reset();
        const std::string text = text_of([&] { sum.start(); });
        findings.expect(contains(text, "its group has ended; expected a group that outlives"), text);
        findings.expect(contains(text_of([&] { sum.run(); }), "its group has ended"), "it runs");
        sum.wait();
        findings.expect(sum.poll(), "it is in flight");
        un::all_reduce(group, data);
        findings.expect(data == std::vector<int>(2000, 4), "other results");
    });
}

namespace {

/// Waits for a message that rank 0 never sends. No collective: beside one of rank 0's, it would be
/// a mismatch.
void wait_for_the_fault(Group& group) {
    std::vector<float> never(1);
    un::receive(group, never, 0);
}

} // namespace

BOOST_AUTO_TEST_CASE(two_in_another_order_on_another_rank_are_a_mismatch) {
    test::all_fail(2, un::ErrorCode::mismatch, {"all_reduce"}, [](Group& group) {
        std::vector<float> few(100), many(20'000);
        un::Prepared a = un::prepare_all_reduce(group, few);
        un::Prepared b = un::prepare_all_reduce(group, many);
        un::Prepared& first = group.rank() == 0 ? a : b;
        un::Prepared& second = group.rank() == 0 ? b : a;
        first.start();
        second.start();
        first.wait();
        second.wait();
    });
}

BOOST_AUTO_TEST_CASE(one_that_is_dropped_in_flight_ends_the_world) {
    test::all_fail(2, un::ErrorCode::aborted, {"dropped the handle of an unfinished operation"}, [](Group& group) {
        std::vector<float> data(20'000);
        un::Prepared sum = un::prepare_all_reduce(group, data);
        sum.run();
        if (group.rank() != 0) wait_for_the_fault(group);
        sum.start();
        { const un::Prepared dropped = std::move(sum); }
        un::barrier(group);
    });
}

BOOST_AUTO_TEST_CASE(a_group_that_ends_while_one_is_in_flight_ends_the_world) {
    test::all_fail(2, un::ErrorCode::aborted, {"dropped the handle of an unfinished operation"}, [](Group& group) {
        std::optional<Group> part = group.split(0, group.rank());
        std::vector<float> data(20'000);
        un::Prepared sum = un::prepare_all_reduce(*part, data);
        if (group.rank() != 0) wait_for_the_fault(group);
        sum.start();
        part.reset();
        sum.wait();
        un::barrier(group);
    });
}

BOOST_AUTO_TEST_SUITE_END()
