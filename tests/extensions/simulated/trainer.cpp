// A whole Trainer on simulated ranks: its arithmetic depends neither on the transport nor on when
// messages arrive.
#include "../../../examples/own_update/elastic_averaging.hpp"
#include "../../base/trainer/models.hpp"
#include "support/owners_or_all.hpp"

#include <unisono/simulate.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <concepts>

namespace un = unisono;
using namespace unisono_test;

namespace {

constexpr int ranks = 64;
constexpr std::size_t width = 200, rows = 640;

/// The training of the published program on one rank of a world. Returns its weights.
template <class World, class... Policies>
std::vector<float> train(World& world, const std::vector<float>& values, const Policies&... policies) {
    SumOfOutputs<float> model(width);
    un::RowData<float> data(values, width);
    un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 3},
                        un::Sgd{.learning_rate = 0.01, .momentum = 0.9}, policies...};
    trainer.fit(data, {.epochs = 2, .batch_size = 4, .progress = false});
    return model.weights;
}

template <class... Policies>
void check(std::uint64_t seed, const Policies&... policies) {
    const std::vector<float> values = un::torch_rand(0, width * rows);
    using Weights = std::vector<std::vector<float>>;
    Weights real(ranks), simulated(ranks);
    un::run<un::InProcess>(
        ranks, [&](auto& world) { real[static_cast<std::size_t>(world.rank())] = train(world, values, policies...); });
    un::SimulationOptions options;
    options.seed = seed;
    options.jitter_ns = 20'000;
    options.reorder = true;
    options.stops = {{.rank = 17, .at_ns = 100'000, .for_ns = 1'000'000}};
    const auto body = [&](auto& world) {
        simulated[static_cast<std::size_t>(world.rank())] = train(world, values, policies...);
    };
    const un::SimulationReport report = un::simulate(ranks, options, body);
    BOOST_TEST_CONTEXT("seed " << seed) {
        BOOST_TEST(real[0] != std::vector<float>(width, 1.0f));
        for (int rank = 0; rank < ranks; ++rank) {
            BOOST_TEST((simulated[static_cast<std::size_t>(rank)] == simulated[0]),
                       "rank " << rank << " differs from rank 0");
        }
        // Parameter servers use the transport's best schedules, which differ if memory is mapped.
        constexpr bool same_schedules = !(std::same_as<Policies, un::ParameterServerReducer> || ...);
        for (std::size_t i = 0; i < width; ++i) {
            if constexpr (same_schedules)
                BOOST_TEST(simulated[0][i] == real[0][i], "in_process has another weight " << i);
            else BOOST_TEST(std::abs(simulated[0][i] - real[0][i]) <= 1e-5f * std::abs(real[0][i]));
        }
        BOOST_TEST(report.time > 1'000'000);
        const Weights before = simulated;
        BOOST_TEST((un::simulate(ranks, options, body) == report));
        BOOST_TEST((simulated == before));
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulated_trainer)

BOOST_AUTO_TEST_CASE(sixty_four_ranks_by_a_ring) { check(1, un::RingReducer{}); }

BOOST_AUTO_TEST_CASE(sixty_four_ranks_by_a_tree_with_accumulation) {
    check(2, un::TreeReducer{}, un::Accumulate{.steps = 2});
}

BOOST_AUTO_TEST_CASE(sixty_four_ranks_by_halving_and_doubling) { check(3, un::HalvingDoublingReducer{}); }

BOOST_AUTO_TEST_CASE(sixty_four_ranks_by_parameter_servers) { check(4, un::ParameterServerReducer{}); }

BOOST_AUTO_TEST_CASE(sixty_four_ranks_by_an_update_of_ones_own) {
    check(5, ElasticAveraging{.steps = 2, .strength = 0.01}, un::RingReducer{});
}

BOOST_AUTO_TEST_CASE(with_logical_replicas_and_sums_on_a_grid_one_rank_has_the_bits_of_sixty_four) {
    const std::vector<float> values = un::torch_rand(0, width * rows);
    std::vector<float> one;
    const auto on = [&](int count, const auto& reducer) {
        std::vector<float> weights;
        un::run<un::InProcess>(count, [&](auto& world) {
            auto found = train(world, values, un::Replicas{64}, un::Reproducible{}, reducer);
            if (world.rank() == 0) weights = std::move(found);
        });
        return weights;
    };
    one = on(1, un::NativeReducer{});
    BOOST_TEST((on(5, un::ParameterServerReducer{2}) == one));
    un::SimulationOptions options;
    options.seed = 5;
    options.jitter_ns = 20'000;
    options.reorder = true;
    const auto simulated = [&](int count, const auto& reducer) {
        std::vector<float> weights;
        un::simulate(count, options, [&](auto& world) {
            auto found = train(world, values, un::Replicas{64}, un::Reproducible{}, reducer);
            if (world.rank() == 0) weights = std::move(found);
        });
        return weights;
    };
    BOOST_TEST((simulated(64, un::RingReducer{}) == one));
    BOOST_TEST((simulated(48, un::TreeReducer{}) == one));
    BOOST_TEST((simulated(7, un::HalvingDoublingReducer{}) == one));
    BOOST_TEST((simulated(64, un::NativeReducer{}) == one));
}

BOOST_AUTO_TEST_CASE(sixty_four_ranks_sharded) {
    check(5, un::RingReducer{}, un::StateSharding{});
    check(6, un::HalvingDoublingReducer{}, un::StateSharding{});
    check(7, un::RingReducer{}, test::OwnersOrAll{.sharded = true});
}

BOOST_AUTO_TEST_CASE(a_rank_that_crashes_ends_the_training_of_all) {
    const std::vector<float> values = un::torch_rand(0, width * rows);
    un::SimulationOptions options;
    options.crashes = {{.rank = 33, .at_ns = 300'000}};
    int heard = 0; // exactly one rank runs at a time
    BOOST_CHECK_THROW(un::simulate(ranks, options,
                                   [&](auto& world) {
                                       try {
                                           for (;;) train(world, values, un::RingReducer{});
                                       } catch (const un::error& failed) {
                                           heard += failed.code() == un::ErrorCode::peer_lost && failed.peer() == 33;
                                           throw;
                                       }
                                   }),
                      un::error);
    BOOST_TEST(heard == ranks - 1);
}

/// The messages with which trainers begin that have this many parameters and as many buffers.
std::uint64_t messages_at_start(std::size_t tensors, std::size_t elements) {
    struct Pieces {
        std::vector<float> values, gradient, statistics;
        std::vector<std::span<float>> spans, gradient_spans, statistics_spans;
        auto& parameters() { return spans; }
        auto& gradients() { return gradient_spans; }
        auto& buffers() { return statistics_spans; }
        double operator()(int, un::Pass&) { return 0; }
    };
    return un::simulate(4, {},
                        [&](auto& world) {
                            Pieces model;
                            const auto cut = [&](std::vector<float>& all, std::vector<std::span<float>>& into) {
                                all.assign(tensors * elements, static_cast<float>(world.rank()));
                                for (std::size_t i = 0; i < tensors; ++i)
                                    into.push_back(std::span(all).subspan(i * elements, elements));
                            };
                            cut(model.values, model.spans);
                            cut(model.gradient, model.gradient_spans);
                            cut(model.statistics, model.statistics_spans);
                            un::Trainer trainer{world, model, un::Buckets{.bytes = 1u << 20}};
                        })
        .messages;
}

/// A broadcast for each of 100,000 parameters would take seconds.
BOOST_AUTO_TEST_CASE(many_parameters_and_buffers_are_broadcast_in_few_messages) {
    BOOST_TEST(messages_at_start(3000, 5) == messages_at_start(2, 7500));
}

BOOST_AUTO_TEST_SUITE_END()
