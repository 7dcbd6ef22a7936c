#include <unisono/simulate.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>

namespace un = unisono;
using Group = un::Group<un::Simulated>;

namespace {

un::SimulationOptions network(std::uint64_t seed) {
    un::SimulationOptions options;
    options.seed = seed;
    options.jitter_ns = 5'000;
    options.reorder = true;
    return options;
}

void program(Group& group) {
    std::vector<float> data(300);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(group.rank()) + static_cast<float>(i);
    for (int i = 0; i < 5; ++i) {
        un::Operation ring = un::start_all_reduce(group, data, un::Max{}, un::RingSchedule{});
        group.endpoint().compute(100 * (group.rank() % 3));
        while (group.rank() % 2 == 0 && !ring.poll()) {
        }
        ring.wait();
        un::all_reduce(group, data, un::Max{}, un::TreeSchedule{.chunk_bytes = 300});
        un::barrier(group);
    }
}

struct Run {
    un::SimulationReport report;
    std::vector<un::TraceRecord> trace;
};

Run run_threads(un::SimulationOptions options) {
    Run run;
    options.trace = [&](const un::TraceRecord& record) { run.trace.push_back(record); };
    run.report = un::simulate(7, options, program);
    return run;
}

Run run_alone(un::SimulationOptions options) {
    Run run;
    options.trace = [&](const un::TraceRecord& record) { run.trace.push_back(record); };
    std::vector<std::vector<float>> data(50, std::vector<float>(500, 1.0f));
    un::Simulation simulation(50, options);
    simulation.run([&](Group& group) {
        return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{},
                                    un::DirectSchedule{});
    });
    run.report = simulation.report();
    return run;
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulated_determinism)

BOOST_AUTO_TEST_CASE(equal_seeds_give_equal_traces_and_others_do_not) {
    for (const auto run : {run_threads, run_alone}) {
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            const Run first = run(network(seed)), again = run(network(seed)), other = run(network(seed + 1));
            BOOST_TEST((first.trace == again.trace), "seed " << seed);
            BOOST_TEST((first.report == again.report), "seed " << seed);
            BOOST_TEST((first.trace != other.trace), "seed " << seed);
            BOOST_TEST(first.report.digest != other.report.digest, "seed " << seed);
            BOOST_TEST(first.trace.size() >= 2 * first.report.messages);
        }
    }
}

BOOST_AUTO_TEST_CASE(messages_of_a_pair_overtake_only_if_they_may) {
    for (const bool reorder : {false, true}) {
        int overtaken = 0;
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            un::SimulationOptions options = network(seed);
            options.reorder = reorder;
            std::vector<un::Tag> sent, arrived;
            options.trace = [&](const un::TraceRecord& record) {
                if (record.kind == un::TraceKind::sent) sent.push_back(record.tag);
                if (record.kind == un::TraceKind::arrived) arrived.push_back(record.tag);
            };
            un::simulate(2, options, [&](Group& group) {
                std::vector<int> data(20);
                std::vector<un::Operation> pending;
                for (std::size_t i = 0; i < data.size(); ++i) {
                    const std::span one(&data[i], 1);
                    if (group.rank() == 0) pending.push_back(un::start_send(group, one, 1, static_cast<int>(i)));
                    else pending.push_back(un::start_receive(group, one, 0, static_cast<int>(i)));
                }
                for (auto& each : pending) each.wait();
            });
            BOOST_TEST(sent.size() == 20u);
            overtaken += sent != arrived ? 1 : 0;
        }
        BOOST_TEST((overtaken != 0) == reorder);
    }
}

BOOST_AUTO_TEST_CASE(a_trace_tells_what_happened) {
    un::SimulationOptions options;
    options.crashes = {{.rank = 2, .at_ns = 40'000}};
    options.stops = {{.rank = 0, .at_ns = 10'000, .for_ns = 3'000}};
    std::vector<un::TraceRecord> trace;
    options.trace = [&](const un::TraceRecord& record) { trace.push_back(record); };
    BOOST_CHECK_THROW(un::simulate(3, options,
                                   [](Group& group) {
                                       for (;;) {
                                           group.endpoint().compute(1'000);
                                           un::barrier(group);
                                       }
                                   }),
                      un::error);
    const auto count = [&](un::TraceKind kind) {
        return std::count_if(trace.begin(), trace.end(), [&](const auto& record) { return record.kind == kind; });
    };
    BOOST_TEST(count(un::TraceKind::crashed) == 1);
    BOOST_TEST(count(un::TraceKind::stopped) == 1);
    BOOST_TEST(count(un::TraceKind::left) == 3);
    BOOST_TEST(count(un::TraceKind::sent) > 10);
    BOOST_TEST(
        std::is_sorted(trace.begin(), trace.end(), [](const auto& a, const auto& b) { return a.time < b.time; }));
}

BOOST_AUTO_TEST_SUITE_END()
