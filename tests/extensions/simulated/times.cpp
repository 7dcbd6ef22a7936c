#include "../../base/collective/oracle.hpp"

#include <unisono/extensions/laboratory/timing.hpp>
#include <unisono/simulate.hpp>

#include <boost/test/unit_test.hpp>

namespace un = unisono;
using Group = un::Group<un::Simulated>;

namespace {

constexpr un::nanoseconds latency = 1'000;

/// One nanosecond per byte.
un::SimulationOptions plain(un::Contention contention = un::Contention::endpoints) {
    un::SimulationOptions options;
    options.link = {.latency_ns = latency, .bytes_per_second = 1e9};
    options.contention = contention;
    return options;
}

/// The virtual time of an all_reduce of n bytes, run by one thread. The same program on threads
/// must take as long.
template <class Family>
un::nanoseconds all_reduce_ns(int world, un::nanoseconds bytes, const Family& family,
                              const un::SimulationOptions& options = plain()) {
    std::vector<std::vector<float>> data(static_cast<std::size_t>(world),
                                         std::vector<float>(static_cast<std::size_t>(bytes) / sizeof(float)));
    un::Simulation simulation(world, options);
    simulation.run([&](Group& group) {
        return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, family);
    });
    const un::SimulationReport threads = un::simulate(world, options, [&](Group& group) {
        un::all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, family);
    });
    BOOST_TEST(threads.time == simulation.report().time);
    BOOST_TEST(threads.messages == simulation.report().messages);
    BOOST_TEST(threads.bytes == simulation.report().bytes);
    return simulation.report().time;
}

un::nanoseconds time_of(int world, const un::SimulationOptions& options, auto body) {
    return un::simulate(world, options, body).time;
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulated_times)

// n bytes on p ranks, where n / p is a whole number of cache lines, so that blocks are equal.

BOOST_AUTO_TEST_CASE(all_reduce_takes_what_the_formulas_say) {
    for (const int p : {2, 4, 8, 16}) {
        const int levels = std::countr_zero(static_cast<unsigned>(p));
        for (const un::nanoseconds n : {64 * 16, 64 * 1024}) {
            BOOST_TEST_INFO("p " << p << " n " << n);
            BOOST_TEST(all_reduce_ns(p, n, un::RingSchedule{}) == 2 * (p - 1) * (latency + n / p));
            BOOST_TEST(all_reduce_ns(p, n, un::TreeSchedule{}) == 2 * levels * (latency + n));
            BOOST_TEST(all_reduce_ns(p, n, un::HalvingDoublingSchedule{}) == 2 * (levels * latency + (p - 1) * n / p));
            BOOST_TEST(all_reduce_ns(p, n, un::DirectSchedule{}) == 2 * (latency + (p - 1) * (n / p)));
            BOOST_TEST(all_reduce_ns(p, n, un::DirectSchedule{}, plain(un::Contention::none)) == 2 * (latency + n / p));
        }
    }
}

/// In a cluster, programs with their data take as long as the schedule's rounds alone: both use one
/// model. The times are equal if ranks share nothing and wait for one message at a time. Otherwise
/// the simulator takes messages as they arrive, and the prediction in the schedule's order.
BOOST_AUTO_TEST_CASE(a_model_of_a_cluster_gives_the_times_of_schedule_predict) {
    un::ClusterModel model;
    model.within.one_way.points = {{0, 500}, {1000, 900}};
    model.within.overhead.points = {{0, 100}};
    model.within.shared.points = {{0, 50}, {1000, 300}};
    model.between.one_way.points = {{0, 5000}, {1000, 8000}};
    model.between.overhead.points = {{0, 400}, {1000, 600}};
    model.between.gap.points = {{0, 700}, {1000, 2000}};
    model.between.shared.points = {{0, 300}, {1000, 1500}};
    for (const int per_host : {1, 3}) {
        for (const double buffered : {1e9, 300.0}) {
            model.ranks_per_host = per_host;
            model.between.buffered_bytes = buffered;
            un::SimulationOptions options;
            options.cluster = model;
            const auto compare = [&](int p, std::size_t bytes, auto family, double most) {
                std::vector<std::vector<float>> data(static_cast<std::size_t>(p),
                                                     std::vector<float>(bytes / sizeof(float), 1));
                un::Simulation simulation(p, options);
                simulation.run([&](Group& group) {
                    return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, family);
                });
                const auto make = [&](const un::schedule::Shape& shape) {
                    return un::schedule::schedule_of<un::Collective::all_reduce>(family, shape);
                };
                const un::Prediction predicted = un::schedule::predict(make, p, bytes, model, 0, sizeof(float));
                BOOST_TEST_CONTEXT(family.name << ", " << bytes << " bytes, " << per_host << " a host, buffered up to "
                                               << buffered) {
                    BOOST_TEST(data.back().back() == static_cast<float>(p));
                    BOOST_TEST(static_cast<double>(simulation.report().time) == predicted.seconds * 1e9,
                               boost::test_tools::tolerance(per_host == 1 ? most : 0.12));
                    BOOST_TEST(simulation.report().messages == predicted.messages);
                }
            };
            for (const std::size_t bytes : {std::size_t{64} * 12, std::size_t{64} * 1200}) {
                compare(12, bytes, un::RingSchedule{}, 1e-3); // whole nanoseconds
                compare(12, bytes, un::TreeSchedule{}, 1e-3);
                compare(8, bytes, un::HalvingDoublingSchedule{}, 0.12);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(chunks_go_through_a_chain_as_through_a_pipe) {
    for (const un::nanoseconds p : {2, 3, 7}) {
        const un::nanoseconds n = 64 * 64, chunks = 8;
        BOOST_TEST(time_of(static_cast<int>(p), plain(), [&](Group& group) {
                       std::vector<std::byte> data(static_cast<std::size_t>(n));
                       un::broadcast(group, data, 0,
                                     un::RingSchedule{.chunk_bytes = static_cast<std::size_t>(n / chunks)});
                   }) == (p - 1) * (latency + n / chunks) + (chunks - 1) * (n / chunks));
    }
}

BOOST_AUTO_TEST_CASE(many_to_one_take_turns_at_its_way_in) {
    const auto gather = [](Group& group) {
        std::vector<std::byte> mine(1000), all(group.rank() == 0 ? 8000 : 0);
        un::gather(group, mine, all, 0, {}, un::DirectSchedule{});
    };
    BOOST_TEST(time_of(8, plain(), gather) == latency + 7 * 1000);
    BOOST_TEST(time_of(8, plain(un::Contention::sender), gather) == latency + 1000);
    BOOST_TEST(time_of(8, plain(un::Contention::none), gather) == latency + 1000);
}

BOOST_AUTO_TEST_CASE(what_carries_one_message_at_a_time) {
    // Rank 0 sends two messages of 1,000 bytes to each of two ranks.
    const auto fan_out = [](Group& group) {
        std::vector<std::byte> one(1000), two(1000);
        std::vector<un::Operation> pending;
        for (int peer = 1; peer < 3; ++peer) {
            if (group.rank() == 0) {
                pending.push_back(un::start_send(group, one, peer, 1));
                pending.push_back(un::start_send(group, two, peer, 2));
            } else if (group.rank() == peer) {
                pending.push_back(un::start_receive(group, one, 0, 1));
                pending.push_back(un::start_receive(group, two, 0, 2));
            }
        }
        for (auto& each : pending) each.wait();
    };
    BOOST_TEST(time_of(3, plain(un::Contention::none), fan_out) == latency + 1000);
    BOOST_TEST(time_of(3, plain(un::Contention::link), fan_out) == latency + 2000);
    BOOST_TEST(time_of(3, plain(un::Contention::sender), fan_out) == latency + 4000);
    BOOST_TEST(time_of(3, plain(un::Contention::endpoints), fan_out) == latency + 4000);
}

BOOST_AUTO_TEST_CASE(a_large_send_is_done_when_it_has_left) {
    for (const std::size_t eager : {0u, 100'000u}) {
        un::SimulationOptions options = plain();
        options.eager_bytes = eager;
        un::nanoseconds sent = -1, received = -1;
        un::simulate(2, options, [&](Group& group) {
            std::vector<std::byte> data(5000);
            if (group.rank() == 0) {
                un::send(group, data, 1);
                sent = group.endpoint().now();
            } else {
                un::receive(group, data, 0);
                received = group.endpoint().now();
            }
        });
        BOOST_TEST(sent == (eager == 0 ? 5000 : 0));
        BOOST_TEST(received == latency + 5000);
    }
}

BOOST_AUTO_TEST_CASE(barrier_takes_a_latency_a_level) {
    BOOST_TEST(time_of(8, plain(), [](Group& group) { un::barrier(group); }) == 3 * latency);
    BOOST_TEST(time_of(5, plain(), [](Group& group) { un::barrier(group); }) == 3 * latency);
    BOOST_TEST(time_of(1, plain(), [](Group& group) { un::barrier(group); }) == 0);
}

BOOST_AUTO_TEST_CASE(links_may_differ) {
    un::SimulationOptions options = plain();
    options.link_between = [](int from, int to) {
        return un::Link{.latency_ns = from / 4 == to / 4 ? 10 : 5'000, .bytes_per_second = 1e9};
    };
    // Ranks 0-3 and 4-7 are near each other. A binomial tree of 8 crosses once up and once down.
    BOOST_TEST(all_reduce_ns(8, 640, un::TreeSchedule{}, options) == 2 * (2 * (10 + 640) + 5'000 + 640));
}

BOOST_AUTO_TEST_CASE(computing_takes_time_and_nobody_answers_meanwhile) {
    std::vector<un::nanoseconds> ends(3);
    const un::SimulationReport report = un::simulate(3, plain(), [&](Group& group) {
        group.endpoint().compute(10'000 * group.rank());
        un::barrier(group);
        ends[static_cast<std::size_t>(group.rank())] = group.endpoint().now();
        group.endpoint().compute(7);
    });
    BOOST_TEST(ends[0] == 20'000 + latency);     // receives from rank 2 ...
    BOOST_TEST(ends[2] == 20'000 + 2 * latency); // ... and answers it
    BOOST_TEST(report.ranks[2].finished_at == ends[2] + 7);
}

BOOST_AUTO_TEST_CASE(a_rank_that_stops_for_a_while_delays_the_others) {
    const auto body = [](Group& group) {
        std::vector<float> data(10, 1.0f);
        un::all_reduce(group, data, un::Sum{}, un::RingSchedule{});
    };
    un::SimulationOptions options = plain();
    const un::nanoseconds undisturbed = time_of(4, options, body);
    options.stops = {{.rank = 2, .at_ns = 1'500, .for_ns = 100'000}};
    const un::nanoseconds disturbed = time_of(4, options, body);
    BOOST_TEST(disturbed > 100'000);
    BOOST_TEST(disturbed < undisturbed + 101'500);
}

BOOST_AUTO_TEST_CASE(counters) {
    const un::SimulationReport report = un::simulate(4, plain(), [&](Group& group) {
        std::vector<float> data(64, 1.0f);
        un::all_reduce(group, data, un::Sum{}, un::RingSchedule{});
        const un::SimulatedRank& mine = group.endpoint().statistics();
        if (mine.messages_sent != group.traffic().messages_sent || mine.bytes_sent != group.traffic().bytes_sent ||
            mine.bytes_received != group.traffic().bytes_received) {
            throw std::runtime_error("the transport counts otherwise than the group");
        }
    });
    BOOST_TEST(report.messages == 4u * 6);
    BOOST_TEST(report.bytes == 4u * 6 * 64);
    for (const un::SimulatedRank& rank : report.ranks) {
        BOOST_TEST(rank.messages_sent == 6u);
        BOOST_TEST(rank.messages_received == 6u);
        BOOST_TEST(rank.bytes_received == 6u * 64);
        BOOST_TEST(!rank.crashed);
    }
}

BOOST_AUTO_TEST_SUITE_END()
