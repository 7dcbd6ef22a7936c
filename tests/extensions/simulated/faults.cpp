#include "../../base/collective/findings.hpp"
#include "../../base/collective/oracle.hpp"
#include "../../support/fails.hpp"

#include <unisono/simulate.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>

namespace un = unisono;
using Group = un::Group<un::Simulated>;
using namespace std::chrono_literals;

namespace {

bool contains(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

struct Failure {
    un::ErrorCode code = un::ErrorCode::none;
    int peer = -1;
    std::string text;
    un::nanoseconds time = -1;
};

/// The error of each rank's body. The code is none if it ended well or was crashed.
template <class Body>
std::vector<Failure> failures(int world, const un::SimulationOptions& options, Body body,
                              const un::RunOptions& run_options = {}) {
    std::vector<Failure> found(static_cast<std::size_t>(world));
    try {
        un::simulate(
            world, options,
            [&](Group& group) {
                try {
                    body(group);
                } catch (const un::error& failed) {
                    found[static_cast<std::size_t>(group.rank())] = {failed.code(), failed.peer(), failed.what(),
                                                                     group.endpoint().now()};
                    throw;
                }
            },
            run_options);
    } catch (const un::error&) {
    }
    return found;
}

void train(Group& group) {
    std::vector<float> data(100, 1.0f);
    for (int i = 0; i < 1000; ++i) {
        group.endpoint().compute(500);
        un::all_reduce(group, data, un::Max{}, un::RingSchedule{});
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulated_faults)

BOOST_AUTO_TEST_CASE(a_crash_is_heard_by_all_survivors) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            const int victim = static_cast<int>(seed % 5);
            un::SimulationOptions options;
            options.seed = seed;
            options.jitter_ns = 300;
            options.crashes = {{.rank = victim, .at_ns = 20'000 + static_cast<un::nanoseconds>(seed) * 1'711}};
            options.detection_ns = 40'000;
            const auto found = failures(5, options, train);
            for (int rank = 0; rank < 5; ++rank) {
                const Failure& failure = found[static_cast<std::size_t>(rank)];
                if (rank == victim) {
                    BOOST_TEST((failure.code == un::ErrorCode::none));
                    continue;
                }
                BOOST_TEST((failure.code == un::ErrorCode::peer_lost));
                BOOST_TEST(failure.peer == victim);
                BOOST_TEST(contains(failure.text, "rank " + std::to_string(victim) + " crashed at"));
                BOOST_TEST(failure.time >= options.crashes[0].at_ns);
                BOOST_TEST(failure.time <= options.crashes[0].at_ns + 40'000 + 500);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(without_a_detector_the_deadline_names_the_crashed_rank) {
    un::SimulationOptions options;
    options.crashes = {{.rank = 2, .at_ns = 33'333}};
    options.detection_ns = un::never;
    const auto found = failures(4, options, train, {.timeout = 5ms, .bind_to_cores = false});
    for (const int rank : {0, 1, 3}) {
        const Failure& failure = found[static_cast<std::size_t>(rank)];
        BOOST_TEST((failure.code == un::ErrorCode::timeout || failure.code == un::ErrorCode::peer_lost));
        BOOST_TEST(contains(failure.text, "rank 2"));
        BOOST_TEST(failure.time <= 33'333 + 5'100'000);
    }
}

BOOST_AUTO_TEST_CASE(crashes_chosen_by_the_seed) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        un::SimulationOptions options;
        options.seed = seed;
        options.random_crashes = 2;
        options.random_crashes_before_ns = 100'000;
        options.detection_ns = 10'000;
        const auto found = failures(6, options, train);
        int lost = 0;
        for (const Failure& failure : found) {
            lost += failure.code == un::ErrorCode::peer_lost ? 1 : 0;
            BOOST_TEST((failure.code == un::ErrorCode::peer_lost || failure.code == un::ErrorCode::none),
                       "seed " << seed << ": " << failure.text);
        }
        BOOST_TEST((lost == 4 || lost == 5), "seed " << seed << ": " << lost << " survivors heard of it");
    }
}

BOOST_AUTO_TEST_CASE(crashes_chosen_by_the_seed_are_of_other_ranks_than_those_that_are_named) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        un::SimulationOptions options;
        options.seed = seed;
        options.crashes = {{.rank = 1, .at_ns = 5'000}, {.rank = 1, .at_ns = 6'000}};
        options.random_crashes = 2;
        options.detection_ns = un::never;
        const auto report = un::simulate(4, options, [](Group& group) { group.endpoint().compute(1'000'000'000); });
        int crashed = 0;
        for (const un::SimulatedRank& rank : report.ranks) crashed += rank.crashed ? 1 : 0;
        BOOST_TEST(crashed == 3, "seed " << seed << ": " << crashed << " ranks crashed");
    }
}

BOOST_AUTO_TEST_CASE(a_crash_that_nobody_notices_does_no_harm) {
    un::SimulationOptions options;
    options.crashes = {{.rank = 1, .at_ns = 5'000}};
    const un::SimulationReport report = un::simulate(3, options, [](Group& group) {
        if (group.rank() == 1) group.endpoint().compute(1'000'000'000);
    });
    BOOST_TEST(report.ranks[1].crashed);
    BOOST_TEST(report.ranks[1].finished_at == 5'000);
    BOOST_TEST(!report.ranks[0].crashed);
    options.crashes = {{.rank = 0, .at_ns = 5'000}};
    BOOST_TEST(un::simulate(1, options, [](Group& group) { group.endpoint().compute(6'000); }).ranks[0].crashed);
}

BOOST_AUTO_TEST_CASE(a_lost_message_is_named_after_the_deadline) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        un::SimulationOptions options;
        options.seed = seed;
        options.loss = 0.02;
        for (const Failure& failure : failures(4, options, train, {.timeout = 1ms, .bind_to_cores = false})) {
            BOOST_TEST((failure.code == un::ErrorCode::timeout), "seed " << seed << ": " << failure.text);
            BOOST_TEST(contains(failure.text, "messages lost: "), "seed " << seed << ": " << failure.text);
            BOOST_TEST(contains(failure.text, ", from rank "), "seed " << seed << ": " << failure.text);
            BOOST_TEST(failure.peer >= 0);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_circle_of_receives_is_explained) {
    const auto circle = [](Group& group) {
        std::vector<float> data(3);
        un::receive(group, data, (group.rank() + 1) % 3, 5);
    };
    for (const auto timeout : {std::chrono::nanoseconds(2s), std::chrono::nanoseconds::max()}) {
        for (const Failure& failure : failures(3, {}, circle, {.timeout = timeout, .bind_to_cores = false})) {
            BOOST_TEST((failure.code == un::ErrorCode::timeout));
            BOOST_TEST(
                contains(failure.text, "rank 0 waits for rank 1; rank 1 waits for rank 2; rank 2 waits for rank 0"),
                failure.text);
            BOOST_TEST(failure.peer == 1);
            BOOST_TEST((timeout == 2s) != contains(failure.text, "deadlock"));
        }
    }
}

BOOST_AUTO_TEST_CASE(polling_for_what_never_comes_ends) {
    const auto found = failures(2, {}, [](Group& group) {
        if (group.rank() == 1) return;
        std::vector<float> data(3);
        un::Operation pending = un::start_receive(group, data, 1);
        while (!pending.poll()) {
        }
    });
    BOOST_TEST((found[0].code == un::ErrorCode::timeout));
    BOOST_TEST(contains(found[0].text, "rank 0 waits for rank 1"));
}

BOOST_AUTO_TEST_CASE(a_rank_that_polls_does_not_stop_the_clock) {
    un::nanoseconds seen = 0;
    un::simulate(2, {}, [&](Group& group) {
        std::vector<float> data(3, 1.0f);
        if (group.rank() == 1) {
            group.endpoint().compute(3'000'000);
            un::send(group, data, 0);
            return;
        }
        un::Operation pending = un::start_receive(group, data, 1);
        while (!pending.poll()) {
        }
        seen = group.endpoint().now();
    });
    BOOST_TEST(seen >= 3'000'000);
    BOOST_TEST(seen < 5'000'000);
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree) {
    const auto found = failures(4, {}, [](Group& group) {
        std::vector<float> data(group.rank() == 2 ? 11u : 10u);
        un::all_reduce(group, data, un::Sum{}, un::TreeSchedule{});
        un::barrier(group);
    });
    for (const Failure& failure : found) {
        BOOST_TEST((failure.code == un::ErrorCode::mismatch));
        BOOST_TEST(contains(failure.text, "of 10 float32"), failure.text);
        BOOST_TEST(contains(failure.text, "of 11 float32"), failure.text);
        BOOST_TEST(contains(failure.text, "rank 2"), failure.text);
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_or_throws) {
    const auto left = failures(3, {}, [](Group& group) {
        if (group.rank() != 1) un::barrier(group);
    });
    BOOST_TEST((left[0].code == un::ErrorCode::peer_lost && contains(left[0].text, "rank 1 has left")), left[0].text);
    BOOST_TEST((left[2].code == un::ErrorCode::peer_lost && contains(left[2].text, "rank 1 has left")), left[2].text);
    BOOST_CHECK_THROW(un::simulate(3, {},
                                   [](Group& group) {
                                       if (group.rank() == 1) throw std::domain_error("mine");
                                       un::barrier(group);
                                   }),
                      std::domain_error);
    test::fails(un::ErrorCode::aborted, {}, [] {
        un::run<un::Simulated>(3, [](Group& group) {
            std::vector<float> data(10);
            if (group.rank() == 0) static_cast<void>(un::start_all_reduce(group, data)); // dropped
            un::barrier(group);
        });
    });
}

BOOST_AUTO_TEST_CASE(one_thread_hears_of_it_too) {
    const auto attempt = [](const un::SimulationOptions& options, bool skip_one = false) {
        std::vector<std::vector<float>> data(64, std::vector<float>(200, 1.0f));
        un::Simulation simulation(64, options);
        std::vector<un::Operation> operations(64);
        for (int rank = 0; rank < 64; ++rank) {
            if (skip_one && rank == 9) continue;
            operations[static_cast<std::size_t>(rank)] = un::start_all_reduce(
                simulation.group(rank), data[static_cast<std::size_t>(rank)], un::Sum{}, un::RingSchedule{});
        }
        try {
            simulation.run_until_done(operations);
            return Failure{};
        } catch (const un::error& failed) {
            return Failure{failed.code(), failed.peer(), failed.what(), simulation.now()};
        }
    };
    un::SimulationOptions options;
    BOOST_TEST((attempt(options).code == un::ErrorCode::none));
    const Failure missing = attempt(options, true);
    BOOST_TEST((missing.code == un::ErrorCode::timeout));
    BOOST_TEST(contains(missing.text, "never started by rank 9"), missing.text);
    options.crashes = {{.rank = 7, .at_ns = 30'000}};
    const Failure crashed = attempt(options);
    BOOST_TEST((crashed.code == un::ErrorCode::peer_lost));
    BOOST_TEST(crashed.peer == 7);
    options.detection_ns = un::never;
    BOOST_TEST(contains(attempt(options).text, "rank 7 crashed at 30000 ns"));
    options.crashes = {};
    options.loss = 0.001;
    options.seed = 4;
    BOOST_TEST(contains(attempt(options).text, "messages lost: "));
}

/// A notice that is not a message reaches a waiting rank, also if the rank was stopped at that
/// time.
BOOST_AUTO_TEST_CASE(a_stopped_rank_is_woken) {
    for (const un::nanoseconds stopped_for : {0, 1000}) {
        un::SimulationOptions options;
        options.stops = {{.rank = 0, .at_ns = 10, .for_ns = stopped_for}};
        un::detail::SimulatedWorld world(1, options);
        world.enter(0);
        world.later(50, [&] { world.wake(0); });
        world.idle(0, 1'000'000);
        BOOST_TEST(world.now(0) == (stopped_for == 0 ? 50 : 1010));
        world.leave(0);
    }
}

BOOST_AUTO_TEST_CASE(bad_options) {
    const auto refused = [](const char* name, int ranks, auto change) {
        un::SimulationOptions options;
        change(options);
        test::fails(un::ErrorCode::bad_input, {name}, [&] { un::simulate(ranks, options, [](Group&) {}); });
        BOOST_CHECK_THROW(un::Simulation(ranks, options), un::error);
    };
    using Options = un::SimulationOptions;
    refused("latency_ns", 2, [](Options& o) { o.link.latency_ns = -1; });
    refused("bytes_per_second", 2, [](Options& o) { o.link.bytes_per_second = 0.0; });
    refused("bytes_per_second", 2, [](Options& o) { o.link.bytes_per_second = std::nan(""); });
    refused("jitter_ns", 2, [](Options& o) { o.jitter_ns = -5; });
    refused("loss", 2, [](Options& o) { o.loss = 1.5; });
    refused("loss", 2, [](Options& o) { o.loss = std::nan(""); });
    refused("crashes", 2, [](Options& o) { o.crashes = {{.rank = 2, .at_ns = 0}}; });
    refused("stops", 2, [](Options& o) { o.stops = {{.rank = 0, .at_ns = 0, .for_ns = -1}}; });
    refused("random_crashes", 2, [](Options& o) { o.random_crashes = 3; });
    refused("0 to 1, the ranks that `crashes` does not name", 2, [](Options& o) {
        o.crashes = {{.rank = 0, .at_ns = 0}};
        o.random_crashes = 2;
    });
    refused("poll_ns", 2, [](Options& o) { o.poll_ns = 0; });
    refused("detection_ns", 2, [](Options& o) { o.detection_ns = -2; });
    refused("ranks", 0, [](Options&) {});
    refused("ranks", -1, [](Options&) {});
    BOOST_CHECK_THROW(un::simulate(1, {}, [](Group& group) { group.endpoint().compute(-1); }), un::error);
    BOOST_CHECK_THROW(un::simulate(2, {.link_between = [](int, int) { return un::Link{.latency_ns = -1}; }},
                                   [](Group& group) { un::barrier(group); }),
                      un::error);
}

/// No thread can be made for rank 1, and that of rank 0 begins only after that.
BOOST_AUTO_TEST_CASE(a_thread_that_begins_late_learns_that_another_is_missing) {
    un::detail::SimulatedWorld world(2);
    world.abort(1, {.code = un::ErrorCode::refused, .rank = 1});
    world.enter(0);
    BOOST_REQUIRE(world.first_fault() != nullptr);
    BOOST_TEST((world.first_fault()->code == un::ErrorCode::refused));
    world.leave(0);
}

BOOST_AUTO_TEST_SUITE_END()
