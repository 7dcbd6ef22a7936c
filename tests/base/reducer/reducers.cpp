// The laws of reducers, for each of them: sums reach all ranks or the owner, all ranks get equal
// bits, and several may run at once.
#include "base/trainer/outcomes.hpp"

#include "unisono/core/random.hpp"
#include "unisono/extensions/automatic/predicted_costs.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/extensions/reducers/hierarchical.hpp"
#include "unisono/reducer/parameter_server.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <limits>

namespace {

namespace un = unisono;
using namespace unisono_test;

using Reducers = boost::mpl::list<un::NativeReducer, un::RingReducer, un::TreeReducer, un::HalvingDoublingReducer,
                                  un::AutomaticReducer, un::ParameterServerReducer, un::HierarchicalReducer>;

template <class T>
std::vector<T> contribution(int rank, std::size_t count) {
    std::vector<T> values(count);
    un::Mt19937 generator(static_cast<std::uint64_t>(rank) + 100);
    un::torch_rand(generator, std::span<T>(values));
    return values;
}

template <class T>
bool near_sum(const std::vector<T>& found, int ranks, std::size_t count, std::size_t first = 0) {
    std::vector<double> sums(count);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto one = contribution<T>(rank, count);
        for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(one[i]);
    }
    const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
    for (std::size_t i = 0; i < found.size(); ++i)
        if (!(std::abs(static_cast<double>(found[i]) - sums[first + i]) <= tolerance * sums[first + i])) return false;
    return true;
}

/// Many chunks on small data, so that lanes are used.
template <class Reducer>
Reducer small() {
    Reducer reducer;
    if constexpr (requires { reducer.chunk_bytes; }) reducer.chunk_bytes = 64;
    if constexpr (requires { reducer.ranks_per_host; }) reducer.ranks_per_host = 2;
    return reducer;
}

template <class Reducer, class T>
void sums(int ranks, std::size_t count) {
    std::vector<std::vector<T>> all(static_cast<std::size_t>(ranks));
    check_clean(outcomes(ranks, [&](auto& world) {
        const Reducer reducer = small<Reducer>();
        auto run = reducer.start(world);
        const int rank = world.rank();
        if constexpr (requires { run.sum(world, std::span<T>()); }) {
            auto values = contribution<T>(rank, count);
            run.sum(world, std::span<T>(values)).wait();
            if (!near_sum(values, ranks, count)) throw std::runtime_error("sum is wrong");
            all[static_cast<std::size_t>(rank)] = values;
        }
        if constexpr (Reducer::reduces_to_owners) {
            for (int owner = 0; owner < ranks; ++owner) {
                auto values = contribution<T>(rank, count);
                run.sum_to(world, std::span<T>(values), owner).wait();
                if (rank == owner && !near_sum(values, ranks, count)) throw std::runtime_error("sum_to is wrong");
                if (rank != owner) values.assign(count, T(-1));
                run.publish(world, std::span<T>(values), owner).wait();
                if (!near_sum(values, ranks, count)) throw std::runtime_error("publish is wrong");
            }
        }
    }));
    for (const auto& one : all) {
        BOOST_TEST(one.size() == all[0].size());
        BOOST_TEST((one == all[0]), "ranks have different bits");
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(reducers)

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_reach_who_should_have_them, Reducer, Reducers) {
    for (const int ranks : {1, 2, 3, 4, 5})
        for (const std::size_t count : {1u, 2u, 7u, 64u, 1000u, 5003u}) {
            BOOST_TEST_CONTEXT(ranks << " ranks, " << count << " elements") {
                sums<Reducer, float>(ranks, count);
                if (count % 2 == 1) sums<Reducer, double>(ranks, count);
            }
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(several_in_flight, Reducer, Reducers) {
    for (const int ranks : {2, 3}) {
        check_clean(outcomes(ranks, [&](auto& world) {
            const Reducer reducer = small<Reducer>();
            auto run = reducer.start(world);
            std::vector<std::vector<double>> values;
            std::vector<un::Operation> operations;
            std::vector<int> owners;
            for (std::size_t i = 0; i < 6; ++i) values.push_back(contribution<double>(world.rank(), 50 * i + 1));
            for (std::size_t i = 0; i < 6; ++i) {
                const int owner = static_cast<int>(i) % ranks;
                const std::span<double> one(values[i]);
                bool to_all = false;
                if constexpr (requires { run.sum(world, one); }) {
                    if (i % 2 == 0) {
                        operations.push_back(run.sum(world, one));
                        to_all = true;
                    }
                }
                if (!to_all) operations.push_back(run.sum_to(world, one, owner));
                owners.push_back(to_all ? world.rank() : owner);
            }
            // In the reverse order of their start.
            for (std::size_t i = 6; i-- > 0;) operations[i].wait();
            for (std::size_t i = 0; i < 6; ++i)
                if (owners[i] == world.rank() && !near_sum(values[i], ranks, 50 * i + 1))
                    throw std::runtime_error("wrong sum");
        }));
    }
}

BOOST_AUTO_TEST_CASE(servers_own_equal_slices) {
    const un::ParameterServerReducer reducer{.servers = 3};
    const auto owners = reducer.owners({.index = 0, .count = 1000, .element_bytes = 4, .world = 5});
    BOOST_TEST(owners.slice(0).count == 336u); // 334 rounded up to whole cache lines
    BOOST_TEST(owners.slice(1).first == 336u);
    BOOST_TEST(owners.slice(2).count == 328u);
    BOOST_TEST(owners.slice(3).count == 0u);
    BOOST_CHECK_THROW(static_cast<void>(reducer.owners({.index = 0, .count = 1000, .element_bytes = 4, .world = 2})),
                      un::error);
    BOOST_CHECK_THROW(static_cast<void>(un::ParameterServerReducer{.servers = -1}.owners({})), un::error);
}

BOOST_AUTO_TEST_CASE(costs_choose_by_size) {
    un::ReducerCosts costs = un::assumed_reducer_costs(8);
    BOOST_TEST(costs.measured());
    // A ring is best from 128 KiB on, a tree below.
    for (std::size_t i = 0; i < un::ReducerCosts::exponents.size(); ++i) {
        costs.seconds[0][i] = costs.seconds[2][i] = 1;
        costs.seconds[1][i] = i >= 3 ? 1e-4 : 1e-2;
        costs.seconds[3][i] = i >= 3 ? 1e-2 : 1e-4;
    }
    BOOST_TEST(name_of(costs.best(8)) == "tree");
    BOOST_TEST(name_of(costs.best(16384)) == "tree");
    BOOST_TEST(name_of(costs.best(131072)) == "ring");
    BOOST_TEST(name_of(costs.best(std::size_t{1} << 30)) == "ring");
    // Half-way between two sizes, the cost is half-way between their costs.
    BOOST_TEST(std::abs(costs.estimate(un::ReducerChoice::ring, (16384 + 131072) / 2) - (1e-2 + 1e-4) / 2) < 1e-12);
    BOOST_TEST(std::abs(costs.estimate(un::ReducerChoice::ring, std::size_t{1} << 24) - 2e-4) < 1e-12);
    // Small data: few rounds. Large data: few bytes.
    const auto assumed = un::assumed_reducer_costs(64);
    BOOST_TEST(assumed.estimate(un::ReducerChoice::tree, 8) < assumed.estimate(un::ReducerChoice::ring, 8));
    BOOST_TEST(assumed.estimate(un::ReducerChoice::ring, 100000000) <
               assumed.estimate(un::ReducerChoice::tree, 100000000));
}

/// A cluster's model determines the costs: few rounds where latency counts, few bytes through the
/// hosts' network cards where bandwidth counts.
BOOST_AUTO_TEST_CASE(costs_are_predicted_from_a_model) {
    un::ClusterModel model;
    model.ranks_per_host = 4;
    model.within.one_way.points = {{0, 500}, {1e6, 1e5}};
    model.between.one_way.points = {{0, 20'000}, {1e6, 1e6}};
    model.between.shared.points = {{0, 100}, {1e6, 1e6}};
    const un::ReducerCosts costs = un::predicted_reducer_costs(model, 64);
    BOOST_CHECK_NO_THROW(costs.check());
    BOOST_TEST(costs.world == 64);
    BOOST_TEST(name_of(costs.best(8)) != "ring");
    BOOST_TEST(name_of(costs.best(1 << 23)) == "ring");
    // The native schedule halves and doubles until a rank's part is large.
    BOOST_TEST(costs.seconds[0] == costs.seconds[2], boost::test_tools::per_element());
    const un::ReducerCosts few = un::predicted_reducer_costs(model, 16);
    BOOST_TEST(few.seconds[0].back() == few.seconds[1].back());
    // The predicted time of one of them.
    const auto tree = un::schedule::predict(
        [](const un::schedule::Shape& shape) { return un::schedule::TreeAllReduce{{shape}}; }, 64, 1024, model);
    BOOST_TEST(costs.estimate(un::ReducerChoice::tree, 1024) == tree.seconds);
    // Hosts with free places.
    BOOST_CHECK_NO_THROW(static_cast<void>(un::predicted_reducer_costs(model, 63)));
    BOOST_CHECK_THROW(static_cast<void>(un::predicted_reducer_costs({}, 8)), un::error);
    check_clean(outcomes(4, [&](auto& world) {
        const auto run = un::AutomaticReducer{.costs = un::predicted_reducer_costs(model, 4)}.start(world);
        if (run.costs().world != 4) throw std::runtime_error("the model's costs were not taken");
    }));
}

BOOST_AUTO_TEST_CASE(costs_are_kept_as_text) {
    un::ReducerCosts costs;
    check_clean(outcomes(2, [&](auto& world) {
        const auto measured = un::measure_reducers(world);
        if (world.rank() == 0) costs = measured;
        un::barrier(world);
        if (!(measured == costs)) throw std::runtime_error("ranks have different costs");
    }));
    BOOST_TEST(costs.world == 2);
    for (const auto& choice : costs.seconds)
        for (const double seconds : choice) BOOST_TEST(seconds > 0);
    const std::string text = costs.save();
    BOOST_TEST((un::ReducerCosts::load(text) == costs));
    const auto refused = [](std::string bad, const std::string& line) {
        try {
            static_cast<void>(un::ReducerCosts::load(bad));
            BOOST_ERROR("accepted: " << bad);
        } catch (const un::error& found) {
            BOOST_TEST(name_of(found.code()) == "bad_input");
            BOOST_TEST(std::string(found.what()).find("line " + line) != std::string::npos, found.what());
        }
    };
    refused("", "1");
    refused("something else\n", "1");
    refused("unisono reducer costs 1, world 0\n", "1");
    refused(text.substr(0, text.find("ring")), "3");
    std::string negative = text;
    negative.replace(negative.find("ring 0x"), 7, "ring -0x");
    refused(negative, "3");
    std::string short_line = text;
    short_line.erase(short_line.rfind(' '));
    refused(short_line, "5");
    refused(text.substr(0, text.size() - 1) + " 0x1p-3\n", "5");
}

BOOST_AUTO_TEST_CASE(costs_that_are_no_times_are_refused) {
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        for (const auto& told : outcomes(2, [&](auto& world) {
                 un::AutomaticReducer reducer{.costs = un::assumed_reducer_costs(2)};
                 reducer.costs.seconds[1][2] = bad;
                 static_cast<void>(reducer.start(world));
             }))
            BOOST_TEST(told.says("ReducerCosts.seconds of ring for 2^14 bytes is "), told.what);
    }
    un::ReducerCosts negative = un::assumed_reducer_costs(2);
    negative.world = -2;
    BOOST_CHECK_THROW(negative.check(), un::error);
}

BOOST_AUTO_TEST_CASE(costs_of_rank_0_decide) {
    // Each rank has another opinion. If they did not agree on one, their schedules would not match.
    check_clean(outcomes(3, [&](auto& world) {
        un::AutomaticReducer reducer{.costs = un::assumed_reducer_costs(3)};
        for (auto& seconds : reducer.costs.seconds[static_cast<std::size_t>(world.rank()) + 1]) seconds = 1e-15;
        auto run = reducer.start(world);
        if (name_of(run.costs().best(1000)) != "ring") throw std::runtime_error("not as rank 0 says");
        auto values = contribution<float>(world.rank(), 250);
        run.sum(world, std::span<float>(values)).wait();
        if (!near_sum(values, 3, 250)) throw std::runtime_error("wrong sum");
    }));
    const auto all = outcomes(2, [&](auto& world) {
        const un::AutomaticReducer reducer{.costs = un::assumed_reducer_costs(3)};
        static_cast<void>(reducer.start(world));
    });
    for (const auto& outcome : all) BOOST_TEST(outcome.says("measured with 3 ranks"), outcome.what);
}

BOOST_AUTO_TEST_CASE(costs_of_another_membership_are_assumed) {
    const un::AutomaticReducer given{.costs = un::assumed_reducer_costs(3)};
    BOOST_TEST((given.within(3) == given));
    for (const int ranks : {1, 2, 4}) {
        BOOST_TEST(!given.within(ranks).costs.measured());
        check_clean(outcomes(ranks, [&](auto& world) { static_cast<void>(given.within(ranks).start(world)); }));
    }
    BOOST_TEST((un::AutomaticReducer{}.within(2) == un::AutomaticReducer{}));
    BOOST_TEST((un::AutomaticReducer{.measure = true}.within(2).measure));
}

BOOST_AUTO_TEST_SUITE_END()
