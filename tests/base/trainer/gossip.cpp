// Averages with neighbours, compared with the formula in double.
#include "ends.hpp"

#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr double rate = 0.05, momentum = 0.9;

Ends trained(int ranks, int updates, const un::Gossip& gossip) {
    const auto step = [&](auto& trainer, auto& world) {
        for (int i = 0; i < updates; ++i) {
            // It takes part in the averages nevertheless.
            const bool none = world.rank() == 1 && i == 2;
            const auto report = none ? trainer.step() : trainer.step(seed_of(i, world.rank()));
            const bool alone = static_cast<std::uint64_t>(i) >= gossip.warm_up;
            expect(report.alone == alone && report.committed == (!alone || !none), "report");
        }
    };
    return ends_of(ranks, false, step, un::Sgd{.learning_rate = rate, .momentum = momentum}, gossip);
}

/// x = W (x - rate v), with W written out for each graph.
std::vector<Values> reference(int ranks, int updates, const un::Gossip& gossip) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<Values> x(n, Values(served_count)), v(n, Values(served_count));
    for (auto& one : x)
        for (std::size_t i = 0; i < served_count; ++i) one[i] = served_initial(i);
    std::uint64_t own = 0;
    for (int update = 0; update < updates; ++update) {
        for (std::size_t r = 0; r < n; ++r) {
            if (r == 1 && update == 2) continue;
            for (std::size_t i = 0; i < served_count; ++i) {
                v[r][i] = momentum * v[r][i] + served_slope(seed_of(update, static_cast<int>(r)), i, x[r][i]);
                x[r][i] -= rate * v[r][i];
            }
        }
        if (++own % gossip.steps != 0 || n == 1) continue;
        std::vector<Values> weights(n, Values(n));
        std::size_t distance = 1; // 1, 2, 4, ... below n, and again
        for (std::uint64_t round = 1; round < own / gossip.steps; ++round)
            distance = 2 * distance < n ? 2 * distance : 1;
        for (std::size_t r = 0; r < n; ++r) {
            if (gossip.graph == un::GossipGraph::exponential) {
                weights[r][r] = weights[r][(r + n - distance) % n] = 0.5;
            } else {
                const double weight = n == 2 ? 0.5 : 1.0 / 3;
                weights[r][r] = weights[r][(r + 1) % n] = weights[r][(r + n - 1) % n] = weight;
            }
        }
        std::vector<Values> next(n, Values(served_count));
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t other = 0; other < n; ++other)
                for (std::size_t i = 0; i < served_count; ++i) next[r][i] += weights[r][other] * x[other][i];
        x = std::move(next);
    }
    return x;
}

} // namespace

BOOST_AUTO_TEST_SUITE(gossip)

BOOST_AUTO_TEST_CASE(is_its_formula) {
    for (const auto graph : {un::GossipGraph::ring, un::GossipGraph::exponential})
        for (const int ranks : {1, 2, 3, 4, 5})
            for (const std::uint64_t steps : {1u, 2u}) {
                BOOST_TEST_CONTEXT("graph " << static_cast<int>(graph) << ", " << ranks << " ranks, every " << steps) {
                    const un::Gossip policy{.graph = graph, .steps = steps};
                    const auto expected = reference(ranks, 7, policy);
                    const Ends found = trained(ranks, 7, policy);
                    Values mean(served_count);
                    for (const Values& one : expected)
                        for (std::size_t i = 0; i < served_count; ++i) mean[i] += one[i] / ranks;
                    for (std::size_t r = 0; r < expected.size(); ++r) {
                        check_near(found.before[r], expected[r]);
                        check_near(found.after[r], mean);
                    }
                    if (ranks > 3)
                        // The ranks have not all exchanged their parameters.
                        BOOST_TEST((found.before[0] != found.before[1]));
                }
            }
}

BOOST_AUTO_TEST_CASE(all_send_as_many_as_they_receive) {
    for (const auto graph : {un::GossipGraph::ring, un::GossipGraph::exponential})
        for (int ranks = 1; ranks < 20; ++ranks)
            for (std::uint64_t round = 0; round < 6; ++round)
                for (int rank = 0; rank < ranks; ++rank) {
                    const un::Gossip policy{.graph = graph};
                    const auto sources = policy.sources(rank, ranks, round);
                    BOOST_TEST(sources.size() == policy.targets(rank, ranks, round).size());
                    for (const int source : sources) {
                        BOOST_TEST((source >= 0 && source < ranks && source != rank));
                        const auto theirs = policy.targets(source, ranks, round);
                        BOOST_TEST((std::find(theirs.begin(), theirs.end(), rank) != theirs.end()));
                    }
                }
}

BOOST_AUTO_TEST_CASE(a_warm_up_is_synchronous) {
    for (const auto& one : trained(1, 6, {.warm_up = 6}).after) check_near(one, reference(1, 6, {})[0]);
    // The same on all ranks without synchronisation.
    const Ends all = trained(3, 6, {.warm_up = 6});
    BOOST_TEST((all.before[0] == all.before[2]));
}

BOOST_AUTO_TEST_CASE(a_rank_that_stops_is_named_to_all) {
    for (const auto& one : outcomes(4, [](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum}, un::Gossip{}};
             for (int i = 0; i < 1000; ++i) trainer.step(world.rank() == 1 && i == 3 ? -1 : i);
             trainer.synchronise();
         })) {
        BOOST_TEST((one.failed && one.ours), one.what);
        BOOST_TEST((one.code == un::ErrorCode::not_finite), one.what);
        BOOST_TEST(one.says("NaN or infinite on rank 1"), one.what);
    }
}

BOOST_AUTO_TEST_CASE(bad_steps_are_refused) {
    for (const auto& one : outcomes(1, [](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum},
                                 un::Gossip{.steps = 0}};
         }))
        BOOST_TEST(one.says("gossip.steps is 0; expected at least one update"), one.what);
}

BOOST_AUTO_TEST_SUITE_END()
