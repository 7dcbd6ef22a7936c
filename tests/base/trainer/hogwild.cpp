// Parameters that ranks update in common, over threads: compared with Synchronous, no update is
// lost, faults, reports.
#include "models.hpp"
#include "outcomes.hpp"
#include "served.hpp"

#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

const un::Sgd sgd = {.learning_rate = 0.05, .momentum = 0.9};
// All with the same types, because each combination is a trainer to compile.

/// The parameters after seven updates of `worker` alone. Two of the updates have two micro-batches.
template <class Update>
std::vector<double> trained_by(int worker, int ranks, const Update& update) {
    const test::Shared<std::array<double, served_count>> end;
    check_clean(outcomes(ranks, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, sgd, update};
        for (int i = 0; i < 7 && world.rank() == worker; ++i) {
            const auto report = i % 3 == 2 ? trainer.step(i, 50 + i) : trainer.step(i);
            expect(report.committed && report.staleness == 0, "an update");
            expect(report.number == static_cast<std::uint64_t>(i) + 1, "the number of an update");
        }
        trainer.synchronise();
        trainer.verify_replicas();
        if (world.rank() == 0) std::ranges::copy(model.values(), end->begin());
    }));
    return {end->begin(), end->end()};
}

/// For any parameters, each gradient is -1 in all elements but every third one, which is 0.
struct Ones {
    std::vector<double> weights = std::vector<double>(1000), gradient = std::vector<double>(1000);
    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return gradient; }
    double operator()(const int&, un::Pass&) {
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= i % 3 == 0 ? 0 : 1;
        return 0;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(hogwild)

BOOST_AUTO_TEST_CASE(one_worker_is_synchronous_to_the_bit) {
    const auto expected = trained_by(0, 1, un::Synchronous{});
    for (const bool loses_none : {true, false}) {
        // It has nothing in common with another rank.
        BOOST_TEST((trained_by(0, 1, un::Hogwild{loses_none}) == expected));
        BOOST_TEST((trained_by(0, 3, un::Hogwild{loses_none}) == expected));
        BOOST_TEST((trained_by(2, 3, un::Hogwild{loses_none}) == expected));
    }
}

BOOST_AUTO_TEST_CASE(no_update_is_lost) {
    constexpr int updates = 200;
    check_clean(outcomes(4, [&](auto& world) {
        Ones model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, un::Hogwild{}};
        std::uint64_t last = 0;
        for (int i = 0; i < updates; ++i) {
            const auto report = trainer.step(i);
            expect(report.number > last && report.alone, "updates have numbers that grow");
            expect(report.number - 1 - report.staleness == last, "what was read is what the last update left");
            last = report.number;
            const double own = i + 1; // it sees all of its own updates
            expect(model.weights[1] >= own && model.weights[1] <= 4 * updates, "what a worker sees");
        }
        trainer.synchronise();
        trainer.verify_replicas();
        for (std::size_t i = 0; i < model.weights.size(); ++i)
            expect(model.weights[i] == (i % 3 == 0 ? 0 : 4 * updates), "element " + std::to_string(i));
        expect(trainer.updates() == updates, "a worker counts its own");
        const std::string text = trainer.describe();
        expect(text.find(" of 800 gradients") != std::string::npos, text);
        expect(text.find("reducer") == std::string::npos && text.find("workers") == std::string::npos, text);
    }));
}

BOOST_AUTO_TEST_CASE(fit_comes_to_the_known_answer) { // y = x0 - 2 x1
    std::vector<double> x(44), targets(22);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = x[2 * i] - 2 * x[2 * i + 1];
    for (const bool loses_none : {true, false})
        check_clean(outcomes(2, [&](auto& world) {
            LeastSquares<double> model(2);
            const un::RowData<double, double> data(x, 2, targets);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::Hogwild{loses_none}};
            const auto found = trainer.fit(data, {.epochs = 60, .batch_size = 2, .progress = false});
            trainer.verify_replicas();
            expect(std::abs(model.values()[0] - 1) < 0.01 && std::abs(model.values()[1] + 2) < 0.01, "the answer");
            expect(found.position == un::Position{un::Epoch{60}, 0}, "position");
            expect(found.staleness.gradients == 2 * 60 * 6, "gradients");
            expect(found.staleness.mean <= static_cast<double>(found.staleness.most), "staleness");
            const auto predictions = trainer.predict(data);
            expect(predictions.size() == 22 && std::abs(predictions[7] - targets[7]) < 0.05, "predictions");
        }));
}

BOOST_AUTO_TEST_CASE(workers_may_make_different_numbers_of_updates) {
    check_clean(outcomes(3, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, sgd, un::Hogwild{}};
        for (int round = 0; round < 2; ++round) {
            for (int i = 0; i < 2 + 9 * world.rank(); ++i) expect(trainer.step(i).committed, "committed");
            expect(trainer.step().micro_batches == 0, "a worker without data");
            trainer.synchronise();
            trainer.verify_replicas();
            expect(trainer.describe().find(" of 33 gradients") != std::string::npos, trainer.describe());
        }
    }));
}

BOOST_AUTO_TEST_CASE(a_worker_that_throws_ends_the_training_of_all) {
    for (const int thrower : {0, 2}) {
        const auto told = outcomes(3, [&](auto& world) {
            Bowl<double> model;
            un::Trainer trainer{world, model, sgd, un::Hogwild{}};
            for (int i = 0; i < 1000; ++i) {
                if (world.rank() == thrower && i == 5) throw std::runtime_error("the data are gone");
                trainer.step(i);
            }
            trainer.synchronise();
        });
        for (std::size_t rank = 0; rank < told.size(); ++rank) {
            BOOST_TEST(told[rank].failed);
            if (static_cast<int>(rank) != thrower) BOOST_TEST(told[rank].ours, told[rank].what);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_nan_is_named_to_all) {
    for (const auto& one : outcomes(3, [](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, sgd, un::Hogwild{}};
             for (int i = 0; i < 1000; ++i) trainer.step(world.rank() == 1 && i == 3 ? -1 : i);
             trainer.synchronise();
         })) {
        BOOST_TEST((one.failed && one.ours), one.what);
        BOOST_TEST((one.code == un::ErrorCode::not_finite), one.what);
        BOOST_TEST(one.says("the gradient of parameter 3 is NaN or infinite on rank 1"), one.what);
    }
}

BOOST_AUTO_TEST_CASE(a_nan_may_be_left_out_by_its_rank_alone) {
    check_clean(outcomes(2, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::Hogwild{}, un::FiniteGuard{un::OnOffence::skip}};
        for (int i = 0; i < 6; ++i) {
            const bool bad = world.rank() == 1 && i == 2;
            const auto report = trainer.step(bad ? -1 : i);
            expect(report.committed != bad && (report.offender_rank == 1) == bad, "report");
        }
        trainer.synchronise();
        trainer.verify_replicas();
        for (const double value : model.values()) expect(std::isfinite(value), "a NaN came through");
        expect(trainer.updates() == (world.rank() == 1 ? 5u : 6u), "updates");
    }));
}

BOOST_AUTO_TEST_SUITE_END()
