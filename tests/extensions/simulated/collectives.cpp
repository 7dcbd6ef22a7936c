#include "../../base/collective/findings.hpp"
#include "../../base/collective/oracle.hpp"

#include <unisono/simulate.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <string>

namespace un = unisono;
using Group = un::Group<un::Simulated>;

namespace {

/// A different network for each seed.
un::SimulationOptions network(std::uint64_t seed) {
    un::SimulationOptions options;
    options.seed = seed;
    options.jitter_ns = static_cast<un::nanoseconds>(seed % 5) * 700;
    options.reorder = seed % 2 == 0;
    options.contention = static_cast<un::Contention>(seed % 4);
    options.eager_bytes = seed % 3 == 0 ? 0 : 256;
    if (seed % 7 == 3) {
        options.link_between = [](int from, int to) {
            return un::Link{.latency_ns = 100 + from * 37 % 11 * 400, .bytes_per_second = 1e9 + to * 1e8};
        };
    }
    if (seed % 11 == 5) options.stops = {{.rank = 0, .at_ns = 1'000, .for_ns = 50'000}};
    return options;
}

template <class Family>
void all_collectives(Group& group, std::size_t count, const Family& family, test::Findings& findings,
                     const std::string& where) {
    constexpr bool native = std::same_as<Family, un::NativeSchedule>;
    const int world = group.size(), rank = group.rank();
    const auto ranks = static_cast<std::size_t>(world);
    const auto name = [&](const char* what) { return std::string(what) + " by " + std::string(Family::name) + where; };
    std::vector<float> data = oracle::contribution<float>(rank, count);
    un::all_reduce(group, data, un::Sum{}, family);
    findings.expect(oracle::equal(data, oracle::reduced<float>(world, count, un::Sum{})), name("all_reduce"));
    for (const int root : {0, world - 1}) {
        if constexpr (native || un::schedule::offers<Family, un::Collective::broadcast>) {
            std::vector<int> sent = oracle::contribution<int>(rank, count);
            un::broadcast(group, sent, root, family);
            findings.expect(sent == oracle::contribution<int>(root, count), name("broadcast"));
            std::vector<int> sum = oracle::contribution<int>(rank, count);
            un::reduce(group, sum, sum, root, un::Sum{}, family);
            if (rank == root) {
                findings.expect(sum == oracle::reduced<int>(world, count, un::Sum{}), name("reduce"));
            }
        }
        if constexpr (native || un::schedule::offers<Family, un::Collective::gather>) {
            const auto mine = oracle::contribution<int>(rank, count);
            std::vector<int> all(rank == root ? count * ranks : 0), back(count);
            un::gather(group, mine, all, root, {}, family);
            un::scatter(group, all, back, root, {}, family);
            findings.expect(back == mine, name("gather and scatter"));
        }
    }
    if constexpr (native || un::schedule::offers<Family, un::Collective::all_gather>) {
        const auto in = oracle::contribution<int>(rank, count * ranks);
        std::vector<int> mine(count), all(count * ranks);
        un::reduce_scatter(group, in, mine, un::Sum{}, {}, family);
        un::all_gather(group, mine, all, {}, family);
        findings.expect(all == oracle::reduced<int>(world, count * ranks, un::Sum{}), name("scatter and gather"));
    }
    if constexpr (native || un::schedule::offers<Family, un::Collective::all_to_all>) {
        std::vector<int> in(count * ranks), out(count * ranks), expected;
        for (std::size_t i = 0; i < in.size(); ++i)
            in[i] = rank * 1000 + static_cast<int>(i / std::max<std::size_t>(count, 1));
        for (int peer = 0; peer < world; ++peer) expected.insert(expected.end(), count, peer * 1000 + rank);
        un::all_to_all(group, in, out, {}, {}, family);
        findings.expect(out == expected, name("all_to_all"));
    }
    if constexpr (native || un::schedule::offers<Family, un::Collective::barrier>) un::barrier(group, family);
}

void everything(Group& group, std::size_t count, test::Findings& findings, const std::string& where) {
    all_collectives(group, count, un::NativeSchedule{}, findings, where);
    all_collectives(group, count, un::RingSchedule{}, findings, where);
    all_collectives(group, count, un::RingSchedule{.chunk_bytes = 128}, findings, where);
    all_collectives(group, count, un::TreeSchedule{}, findings, where);
    all_collectives(group, count, un::TreeSchedule{.chunk_bytes = 200}, findings, where);
    all_collectives(group, count, un::HalvingDoublingSchedule{}, findings, where);
    all_collectives(group, count, un::DirectSchedule{}, findings, where);
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulated_collectives)

BOOST_AUTO_TEST_CASE(every_collective_and_family_for_many_seeds) {
    test::Findings findings;
    const std::uint64_t seeds = test::under_thread_sanitizer ? 10 : 200; // it is slow
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const int world = 1 + static_cast<int>(seed * 5 % 9);
        const std::size_t count = std::array<std::size_t, 4>{0, 1, 7, 300}[seed % 4];
        const std::string where =
            ", world " + std::to_string(world) + " count " + std::to_string(count) + ", seed " + std::to_string(seed);
        try {
            un::simulate(world, network(seed), [&](Group& group) { everything(group, count, findings, where); });
        } catch (const std::exception& failed) {
            findings.expect(false, failed.what() + where);
        }
    }
}

BOOST_AUTO_TEST_CASE(groups_and_messages) {
    test::Findings findings;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        un::simulate(6, network(seed), [&](Group& world) {
            const std::string where = ", seed " + std::to_string(seed);
            Group part = world.split(world.rank() % 2, -world.rank());
            findings.expect(part.rank() == 2 - world.rank() / 2, "key order" + where);
            everything(part, 10, findings, where);
            // Messages overtake each other. Tags and counts match them.
            const int next = (world.rank() + 1) % 6, previous = (world.rank() + 5) % 6;
            std::vector<int> out(50), in(50);
            std::iota(out.begin(), out.end(), world.rank() * 100);
            std::vector<un::Operation> pending;
            for (std::size_t i = 0; i < out.size(); ++i) {
                pending.push_back(un::start_send(world, std::span(&out[i], 1), next, static_cast<int>(i % 3)));
            }
            for (const int tag : {2, 0, 1}) {
                for (std::size_t i = static_cast<std::size_t>(tag); i < in.size(); i += 3) {
                    un::receive(world, std::span(&in[i], 1), previous, tag);
                }
            }
            for (auto& each : pending) each.wait();
            std::vector<int> expected(50);
            std::iota(expected.begin(), expected.end(), previous * 100);
            findings.expect(in == expected, "messages" + where);
        });
    }
}

BOOST_AUTO_TEST_CASE(several_in_flight_and_polled) {
    test::Findings findings;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        un::simulate(5, network(seed), [&](Group& group) {
            std::vector<std::vector<float>> data;
            for (std::size_t i = 0; i < 12; ++i) data.push_back(oracle::contribution<float>(group.rank(), 20 + i * 40));
            std::vector<un::Operation> pending;
            for (std::size_t i = 0; i < data.size(); ++i) {
                if (i % 2 == 0) pending.push_back(un::start_all_reduce(group, data[i], un::Sum{}, un::RingSchedule{}));
                else pending.push_back(un::start_all_reduce(group, data[i], un::Sum{}, un::TreeSchedule{}));
            }
            if (group.rank() % 2 == 0) {
                for (std::size_t i = pending.size(); i-- > 0;) pending[i].wait();
            } else {
                for (auto& each : pending) {
                    while (!each.poll()) {
                    }
                }
            }
            for (std::size_t i = 0; i < data.size(); ++i) {
                findings.expect(oracle::equal(data[i], oracle::reduced<float>(5, data[i].size(), un::Sum{})),
                                "operation " + std::to_string(i) + ", seed " + std::to_string(seed));
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(one_thread_moves_many_ranks) {
    const auto check = [](int world, std::size_t count, const auto& family, std::uint64_t seed) {
        BOOST_TEST_INFO("world " << world << " family " << family.name << " seed " << seed);
        std::vector<std::vector<float>> data;
        for (int rank = 0; rank < world; ++rank) data.push_back(oracle::contribution<float>(rank, count));
        un::Simulation simulation(world, network(seed));
        simulation.run([&](Group& group) {
            return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, family);
        });
        const auto expected = oracle::reduced<float>(world, count, un::Sum{});
        bool right = true;
        for (const auto& each : data) right = right && oracle::equal(each, expected);
        BOOST_TEST(right);
        BOOST_TEST((simulation.report().time > 0 || world == 1));
    };
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
        const int world = std::array{1, 2, 33, 64, 100, 127}[seed % 6];
        check(world, 200, un::RingSchedule{}, seed);
        check(world, 200, un::RingSchedule{.chunk_bytes = 100}, seed);
        check(world, 200, un::TreeSchedule{}, seed);
        check(world, 200, un::HalvingDoublingSchedule{}, seed);
        check(world, 200, un::DirectSchedule{}, seed);
        check(world, 200, un::NativeSchedule{}, seed);
    }
}

BOOST_AUTO_TEST_CASE(several_operations_a_rank_on_one_thread) {
    constexpr int world = 12;
    un::Simulation simulation(world, network(6));
    std::vector<std::vector<float>> first, second;
    for (int rank = 0; rank < world; ++rank) {
        first.push_back(oracle::contribution<float>(rank, 100));
        second.push_back(oracle::contribution<float>(rank, 77));
    }
    std::vector<std::vector<un::Operation>> operations(world);
    for (int rank = 0; rank < world; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        operations[r].push_back(un::start_all_reduce(simulation.group(rank), first[r], un::Sum{}, un::RingSchedule{}));
        operations[r].push_back(un::start_all_reduce(simulation.group(rank), second[r], un::Max{}, un::TreeSchedule{}));
    }
    simulation.run_until_done(operations);
    for (int rank = 0; rank < world; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        BOOST_TEST(oracle::equal(first[r], oracle::reduced<float>(world, 100, un::Sum{})));
        BOOST_TEST(oracle::equal(second[r], oracle::reduced<float>(world, 77, un::Max{})));
    }
}

BOOST_AUTO_TEST_CASE(four_thousand_ranks) {
    constexpr int world = 4096;
    std::vector<std::vector<int>> data;
    for (int rank = 0; rank < world; ++rank) data.push_back(oracle::contribution<int>(rank, 33));
    un::SimulationOptions options;
    options.jitter_ns = 500;
    un::Simulation simulation(world, options);
    simulation.run([&](Group& group) {
        return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, un::TreeSchedule{});
    });
    const auto expected = oracle::reduced<int>(world, 33, un::Sum{});
    BOOST_TEST(std::all_of(data.begin(), data.end(), [&](const auto& each) { return each == expected; }));
    BOOST_TEST(simulation.report().messages == 2u * (world - 1));
    BOOST_TEST(simulation.report().bytes == 2u * (world - 1) * 33 * sizeof(int));
}

BOOST_AUTO_TEST_SUITE_END()
