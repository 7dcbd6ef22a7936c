// The policy matrix over networks: every pair of policies that tests/together/matrix crosses
// pairwise trains like a serial loop in double, over each network, on 1 to 4 ranks. It is compiled
// once, for a transport with each network behind it (any_network.hpp).
//
// Row i of the table runs once over network k, on 1 + (i + k) % 4 ranks, and on at least as many as
// it has servers. So each combination runs over each network, and each network on each number of
// ranks.
#include "../any_network.hpp"
#define UNISONO_TEST_TRANSPORT test::AnyNetwork
#include "../../matrix/pairwise.hpp"

#include <unisono/automatic.hpp>
#include <unisono/extensions/reducers/hierarchical.hpp>
#include <unisono/reproducible.hpp>

#include <cstdio>

namespace {

using namespace unisono_matrix;

/// Calls `body(number)` for each network. Reports of failures have the network's name.
template <class Body>
void over_each_network(Body body) {
    int number = 0;
    for (const test::NetworkKind& kind : test::network_kinds()) {
        test::network = &kind;
        BOOST_TEST_CONTEXT("over " << kind.name) { body(number++); }
    }
    BOOST_TEST_REQUIRE(number > 0);
}

/// Runs over the network `network`, unless it has another number of ranks. Another start of the
/// program runs that.
template <class Check>
void on(int ranks, Check check) {
    if (test::network->ranks != 0 && test::network->ranks != ranks) return;
    test::AnyNetwork::worlds_to_try = ranks;
    check();
}

template <std::size_t... I>
void rows_over(int network, std::index_sequence<I...>) {
    const auto row = [&]<std::size_t Row>() {
        const int least = rows[Row][reducers_at] == 1 ? 2 : 1; // two servers
        on(std::max(least, 1 + (static_cast<int>(Row) + network) % 4), [] { check_row<Row>(); });
    };
    (row.template operator()<I>(), ...);
}

#ifdef UNISONO_TEST_FEW
constexpr std::size_t rows_tried = 3;
#else
constexpr std::size_t rows_tried = rows.size();
#endif

BOOST_AUTO_TEST_CASE(pairs_of_policies) {
    over_each_network([](int network) { rows_over(network, std::make_index_sequence<rows_tried>{}); });
}

BOOST_AUTO_TEST_CASE(owners_of_slices) {
    namespace un = unisono;
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    const un::DistributedSampler sampler{.seed = 4};
    over_each_network([&](int network) {
        on(2 + network % 3, [&] {
            check(un::NativeReducer{}, un::Synchronous{}, un::StateSharding{}, un::FiniteGuard{}, sgd, sampler,
                  un::AccumulateTokens{.tokens = 20}, un::BySamples{}, un::ConstantRate{});
            check(un::ParameterServerReducer{.servers = 2}, OwnUpdate{}, un::Replicated{}, un::FiniteGuard{},
                  un::Adam{.learning_rate = 0.02}, un::ScatterSampler{.seed = 8}, un::Accumulate{.steps = 3},
                  un::ByTokens{}, un::CosineRate{.final_factor = 0.1});
        });
        on(4 - network % 3, [&] {
            check(un::HalvingDoublingReducer{}, un::Synchronous{}, EqualShards{}, un::NoGuard{}, sgd, sampler,
                  un::NoAccumulation{}, un::ReplicasAlike{}, un::ConstantRate{});
            check(un::AutomaticReducer{}, un::Synchronous{}, un::Replicated{}, un::FiniteGuard{}, sgd, sampler,
                  un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{}, un::Reproducible{});
#ifndef UNISONO_TEST_FEW
            check(un::HierarchicalReducer{}, un::Synchronous{}, un::Replicated{}, un::FiniteGuard{}, sgd, sampler,
                  un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
            check(un::NativeReducer{}, un::Synchronous{}, un::ParameterSharding{}, un::FiniteGuard{}, sgd, sampler,
                  un::AccumulateSamples{.samples = 7}, un::BySamples{}, un::ConstantRate{});
#endif
        });
        // Combinations that no network can run.
        check(SumOnlyReducer{}, un::Synchronous{}, EqualShards{}, un::FiniteGuard{}, sgd, sampler, un::NoAccumulation{},
              un::BySamples{}, un::ConstantRate{});
        check(un::NativeReducer{}, un::LocalSteps{.steps = 3}, un::StateSharding{}, un::FiniteGuard{}, sgd, sampler,
              un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
        check(un::ParameterServerReducer{.servers = 2}, un::LocalSteps{.steps = 3}, un::Replicated{}, un::FiniteGuard{},
              sgd, sampler, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
    });
}

BOOST_AUTO_TEST_CASE(counts_are_told) {
    std::string names;
    for (const test::NetworkKind& kind : test::network_kinds()) names += (names.empty() ? "" : ", ") + kind.name;
    int refused = 0;
    for (const auto& [reason, count] : counts().refused) refused += count;
    std::printf("policy matrix over %s: %d combinations ran; %d were refused at compile time\n", names.c_str(),
                counts().ran, refused);
    std::fflush(stdout);
    BOOST_TEST(counts().ran > 0);
}

} // namespace
