// Updates for which ranks train independently, compared with the formulas of their papers in
// double.
#include "ends.hpp"
#include "models.hpp"

#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t count = served_count;
constexpr double rate = 0.05;
constexpr double momentum = 0.9;

/// Momentum SGD on each rank by itself. `meet(update, all ranks' parameters)` synchronises the
/// ranks.
template <class Meet>
std::vector<double> reference(int ranks, int updates, int warm_up, int steps, Meet meet) {
    struct Rank {
        std::vector<double> x = std::vector<double>(count), velocity = std::vector<double>(count);
    };
    std::vector<Rank> all(static_cast<std::size_t>(ranks));
    for (Rank& one : all)
        for (std::size_t i = 0; i < count; ++i) one.x[i] = served_initial(i);
    int own = 0;
    for (int update = 0; update < updates; ++update) {
        std::vector<std::vector<double>> gradients;
        for (int rank = 0; rank < ranks; ++rank) {
            auto& gradient = gradients.emplace_back(count);
            for (std::size_t i = 0; i < count; ++i)
                gradient[i] = served_slope(seed_of(update, rank), i, all[static_cast<std::size_t>(rank)].x[i]);
        }
        if (update < warm_up) {
            std::vector<double> mean(count);
            for (const auto& one : gradients)
                for (std::size_t i = 0; i < count; ++i) mean[i] += one[i] / ranks;
            for (auto& one : gradients) one = mean;
        }
        for (std::size_t rank = 0; rank < all.size(); ++rank)
            for (std::size_t i = 0; i < count; ++i) {
                double& v = all[rank].velocity[i];
                v = momentum * v + gradients[rank][i];
                all[rank].x[i] -= rate * v;
            }
        if (update < warm_up || (++own % steps != 0 && update + 1 != updates)) continue;
        std::vector<double> mean(count);
        for (const Rank& one : all)
            for (std::size_t i = 0; i < count; ++i) mean[i] += one.x[i] / ranks;
        meet(mean);
        for (Rank& one : all) one.x = mean;
    }
    return all[0].x;
}

/// Trains. Returns each rank's parameters after a last synchronisation.
template <class... Policies>
std::vector<Values> trained(int ranks, int updates, bool in_one_piece, const Policies&... policies) {
    const auto step = [&](auto& trainer, auto& world) {
        for (int update = 0; update < updates; ++update) trainer.step(seed_of(update, world.rank()));
    };
    return ends_of(ranks, in_one_piece, step, un::Sgd{.learning_rate = rate, .momentum = momentum},
                   un::Buckets{.first_bytes = 100, .bytes = 200}, policies...)
        .after;
}

} // namespace

BOOST_AUTO_TEST_SUITE(local_updates)

BOOST_AUTO_TEST_CASE(local_steps_average_the_parameters) {
    for (const int ranks : {1, 2, 3, 4})
        for (const int steps : {1, 3})
            for (const bool in_one_piece : {false, true}) {
                BOOST_TEST_CONTEXT(ranks << " ranks, " << steps << " steps, in one piece " << in_one_piece) {
                    const int updates = 8; // 8 % 3 != 0: the last synchronisation comes early
                    const auto expected = reference(ranks, updates, 0, steps, [](auto&) {});
                    const auto found = trained(ranks, updates, in_one_piece,
                                               un::LocalSteps{.steps = static_cast<std::uint64_t>(steps)});
                    for (const auto& one : found) check_near(one, expected);
                }
            }
}

BOOST_AUTO_TEST_CASE(one_step_is_synchronous_and_more_are_not) {
    const auto synchronous = trained(3, 9, false)[0];
    check_near(trained(3, 9, false, un::LocalSteps{.steps = 1})[0], synchronous);
    check_near(trained(3, 9, false, un::LocalSteps{.steps = 5, .warm_up = 9})[0], synchronous, 0);
    BOOST_TEST(apart(trained(3, 9, false, un::LocalSteps{.steps = 4})[0], synchronous) > 1e-4);
}

BOOST_AUTO_TEST_CASE(a_warm_up_is_synchronous) {
    const auto expected = reference(3, 10, 4, 3, [](auto&) {});
    for (const auto& one : trained(3, 10, true, un::LocalSteps{.steps = 3, .warm_up = 4}, un::RingReducer{}))
        check_near(one, expected);
}

// Douillard et al. 2023, algorithm 1, with Nesterov's momentum as in PyTorch.
BOOST_AUTO_TEST_CASE(diloco_is_the_papers_algorithm) {
    for (const int ranks : {1, 3}) {
        std::vector<double> common(count), velocity(count);
        for (std::size_t i = 0; i < count; ++i) common[i] = served_initial(i);
        const auto expected = reference(ranks, 12, 0, 4, [&](std::vector<double>& mean) {
            for (std::size_t i = 0; i < count; ++i) {
                const double moved = common[i] - mean[i];
                velocity[i] = 0.8 * velocity[i] + moved;
                common[i] -= 0.6 * (moved + 0.8 * velocity[i]);
            }
            mean = common;
        });
        const un::Diloco<> diloco{.steps = 4, .outer = {.learning_rate = 0.6, .momentum = 0.8, .nesterov = true}};
        for (const auto& one : trained(ranks, 12, ranks == 1, diloco)) check_near(one, expected);
    }
    BOOST_TEST(un::Diloco<>{}.outer.nesterov);
}

BOOST_AUTO_TEST_CASE(a_plain_outer_step_of_one_is_the_mean) {
    const un::Diloco<> plain{.steps = 3, .outer = {.learning_rate = 1}};
    check_near(trained(2, 7, false, plain)[1], trained(2, 7, false, un::LocalSteps{.steps = 3})[1]);
}

BOOST_AUTO_TEST_CASE(any_optimizer_may_be_the_outer_one) {
    const un::Diloco<un::Adam> outer_adam{.steps = 2, .outer = {.learning_rate = 0.01}};
    const auto found = trained(2, 6, false, outer_adam);
    BOOST_TEST((found[0] == found[1]));
    BOOST_TEST((found[0] != trained(2, 6, false, un::LocalSteps{.steps = 2})[0]));
}

BOOST_AUTO_TEST_CASE(a_report_is_of_the_rank_alone) {
    check_clean(outcomes(2, [](auto& world) {
        Bowl<double> model(world, false);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 2, .warm_up = 1}};
        const std::string before = trainer.describe();
        const auto together = trainer.step(world.rank()); // both ranks
        const auto own = trainer.step(5 + world.rank());
        if (together.alone || together.micro_batches != 2 || together.loss != 0.5) throw std::runtime_error("first");
        if (!own.alone || own.micro_batches != 1 || own.loss != 5 + world.rank()) throw std::runtime_error("own");
        if (world.rank() == 0) trainer.step(); // a rank without data still takes part
        else trainer.step(7);
        trainer.verify_replicas();
        if (trainer.describe() == before) throw std::runtime_error("the memory of a meeting does not count");
    }));
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_between_meetings) {
    // Ranks that do not wait for each other may be any number of updates apart. Rank 1 begins after
    // rank 0 has made all its updates.
    const test::Shared<std::atomic<int>> done;
    check_clean(outcomes(2, [&](auto& world) {
        Bowl<double> model(world, true);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 10}, un::ClipByNorm{.max_norm = 0.5}};
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (world.rank() == 1 && done->load() == 0)
            if (std::chrono::steady_clock::now() > until) throw std::runtime_error("rank 0 waits for rank 1");
        for (int i = 0; i < 9; ++i) {
            const auto report = trainer.step(i);
            if (!(report.gradient_norm > 0)) throw std::runtime_error("no norm of its own");
        }
        done->store(1);
        trainer.step(9);
        trainer.verify_replicas();
    }));
}

BOOST_AUTO_TEST_CASE(a_nan_stops_its_rank_and_is_named_to_the_others) {
    const auto told = outcomes(3, [](auto& world) {
        Bowl<double> model(world, false);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 4}};
        for (int i = 0; i < 4; ++i) trainer.step(world.rank() == 1 && i == 2 ? -1 : i);
    });
    for (const Outcome& one : told) {
        BOOST_TEST((one.failed && one.ours), one.what);
        BOOST_TEST(one.says("NaN or infinite on rank 1"), one.what);
        BOOST_TEST((one.code == un::ErrorCode::not_finite), one.what);
    }
}

BOOST_AUTO_TEST_CASE(a_nan_may_be_skipped_by_its_rank_alone) {
    check_clean(outcomes(2, [](auto& world) {
        Bowl<double> model(world, false);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 3}, un::FiniteGuard{un::OnOffence::skip}};
        for (int i = 0; i < 6; ++i) {
            const bool bad = world.rank() == 1 && i == 1;
            const auto report = trainer.step(bad ? -1 : i);
            if (report.committed == bad || (report.offender_rank == 1) != bad) throw std::runtime_error("report");
        }
        trainer.verify_replicas();
        for (const double x : model.values())
            if (!std::isfinite(x)) throw std::runtime_error("a NaN came through");
        if (trainer.updates() != (world.rank() == 1 ? 5u : 6u)) throw std::runtime_error("updates");
    }));
}

BOOST_AUTO_TEST_CASE(fit_ends_with_equal_parameters) {
    std::vector<double> x(40), targets(20);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = x[2 * i] - 2 * x[2 * i + 1];
    check_clean(outcomes(2, [&](auto& world) {
        LeastSquares<double> model(2);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 3}, un::Sgd{.learning_rate = 0.2}};
        trainer.fit(un::RowData<double, double>(x, 2, targets), {.epochs = 40, .batch_size = 2, .progress = false});
        trainer.verify_replicas();
        if (std::abs(model.values()[0] - 1) > 0.01 || std::abs(model.values()[1] + 2) > 0.01)
            throw std::runtime_error("not the known answer");
    }));
}

BOOST_AUTO_TEST_CASE(bad_steps_are_refused) {
    for (const auto& one : outcomes(1, [](auto& world) {
             Bowl<double> model(world, false);
             un::Trainer trainer{world, model, un::LocalSteps{.steps = 0}};
         }))
        BOOST_TEST(one.says("local steps.steps is 0; expected at least one"), one.what);
    for (const auto& one : outcomes(2, [](auto& world) {
             Bowl<double> model(world, false);
             un::Trainer trainer{world, model, un::LocalSteps{.steps = static_cast<std::uint64_t>(world.rank() + 2)}};
         }))
        BOOST_TEST(one.says("another update"), one.what);
}

BOOST_AUTO_TEST_SUITE_END()
