// Updates that servers make, or ranks in common, over threads: compared with Synchronous, uneven
// workers, no update is lost, faults, reports.
#include "models.hpp"
#include "outcomes.hpp"
#include "served.hpp"

#include "unisono/trainer/trainer.hpp"
#include "unisono/updates.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

const un::Sgd sgd = {.learning_rate = 0.05, .momentum = 0.9};
const un::Buckets buckets = {.first_bytes = 80, .bytes = 200};
// All with the same types, because each combination is a trainer to compile.

template <class Update>
int servers_of(const Update& update) {
    if constexpr (std::is_same_v<Update, un::Hogwild>) return 0;
    else return update.servers;
}

/// The parameters after seven updates by the workers, which are the ranks from `first` on. Worker w
/// takes no part in updates below `late * w`, and has two micro-batches in every third one.
template <class Update>
std::vector<double> trained(int ranks, int workers, int late, const Update& update, int first = 0) {
    const test::Shared<std::array<double, served_count>> end;
    check_clean(outcomes(ranks, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, sgd, buckets, update};
        const int worker = world.rank() - first;
        const bool works = worker >= 0 && worker < workers;
        for (int i = 0; i < 7 && works; ++i) {
            const auto report = i < late * worker ? trainer.step()
                                : i % 3 == 2      ? trainer.step(seed_of(i, worker), seed_of(50 + i, worker))
                                                  : trainer.step(seed_of(i, worker));
            expect(report.committed && report.staleness == 0, "an update was left out, or stale");
            expect(report.number == static_cast<std::uint64_t>(i) + 1, "the number of an update");
        }
        trainer.synchronise();
        trainer.verify_replicas();
        const bool counts_own = std::is_same_v<Update, un::Hogwild>;
        expect(trainer.updates() == (counts_own && !works ? 0u : 7u), "the updates of rank " + std::to_string(worker));
        if (world.rank() == 0) std::ranges::copy(model.values(), end->begin());
    }));
    return {end->begin(), end->end()};
}

/// Each rank makes its own number of updates. Then all synchronise, and repeat.
template <class Update>
void check_uneven(const Update& update) {
    const int workers = 3, servers = servers_of(update);
    check_clean(outcomes(workers + servers, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, sgd, buckets, update};
        for (int round = 0; round < 2; ++round) {
            for (int i = 0; i < 2 + 9 * world.rank() && world.rank() < workers; ++i)
                expect(trainer.step(seed_of(i, world.rank())).committed, "committed");
            if (servers == 0) {
                expect(trainer.step().micro_batches == 0, "a worker without data");
                trainer.synchronise();
            }
            trainer.verify_replicas(); // servers' updates are synchronised first
            const std::string text = trainer.describe();
            const bool names_servers = text.find("workers") != std::string::npos;
            expect(names_servers == (servers != 0) && (servers == 0 || text.find("3, servers") != std::string::npos),
                   text);
            expect(text.find(" of 33 gradients") != std::string::npos, text);
            expect(text.find("reducer") == std::string::npos && text.find("sharding") == std::string::npos, text);
        }
    }));
}

/// The result of `fit`: y = x0 - 2 x1.
template <class Update>
void check_fit(int ranks, const Update& update) {
    const int servers = servers_of(update);
    std::vector<double> x(44), targets(22);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = x[2 * i] - 2 * x[2 * i + 1];
    check_clean(outcomes(ranks, [&](auto& world) {
        LeastSquares<double> model(2);
        const un::RowData<double, double> data(x, 2, targets);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, update, un::Replicas{ranks - servers}};
        const bool serves = world.rank() >= ranks - servers;
        std::int64_t updates = 0;
        const auto found = trainer.fit(data, {.epochs = 40, .batch_size = 2, .progress = false},
                                       [&](const un::UpdateReport& report) { updates += report.alone ? 1 : 0; });
        trainer.verify_replicas();
        expect(std::abs(model.values()[0] - 1) < 0.01 && std::abs(model.values()[1] + 2) < 0.01, "the answer");
        expect(found.position == un::Position{un::Epoch{40}, 0} && trainer.position() == found.position, "position");
        // Micro-batches of two of each worker.
        const auto each = 40 * ((22 / (ranks - servers) + 1) / 2);
        expect(updates == (serves ? 0 : each), "updates " + std::to_string(updates));
        expect(found.epochs.size() == (serves ? 0u : 40u), "epochs");
        expect(found.staleness.gradients == static_cast<std::uint64_t>(each * (ranks - servers)), "gradients");
        expect(found.staleness.mean <= static_cast<double>(found.staleness.most), "staleness");
        const auto predictions = trainer.predict(data);
        expect(predictions.size() == 22 && std::abs(predictions[7] - targets[7]) < 0.05, "predictions");
        const auto last = trainer.fit(data, {.epochs = 2, .batch_size = 2, .progress = false},
                                      [&](const un::UpdateReport&) { return false; });
        expect(last.stopped && last.position == un::Position{un::Epoch{40}, 2 * (ranks - servers)}, "stopped");
        expect(trainer.describe(22, {.batch_size = 2}).find("22 samples") != std::string::npos, "plan");
    }));
}

template <class Update>
void check_throw(int ranks, const Update& update) {
    for (const int thrower : {0, 2}) {
        const auto told = outcomes(ranks, [&](auto& world) {
            Bowl<double> model;
            un::Trainer trainer{world, model, sgd, buckets, update};
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

template <class Update>
void check_nan(int ranks, const Update& update) {
    for (const auto& one : outcomes(ranks, [&](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, sgd, buckets, update};
             for (int i = 0; i < 1000; ++i) trainer.step(world.rank() == 1 && i == 3 ? -1 : i);
             trainer.synchronise();
         })) {
        BOOST_TEST((one.failed && one.ours), one.what);
        BOOST_TEST((one.code == un::ErrorCode::not_finite), one.what);
        BOOST_TEST(one.says("the gradient of parameter 3 is NaN or infinite on rank 1"), one.what);
    }
}

/// Two workers, of which the second has a NaN. `together`: all workers of one clock are left out,
/// or none.
template <class Update>
void check_nan_that_is_left_out(const Update& update, bool together) {
    check_clean(outcomes(2 + servers_of(update), [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, update, un::FiniteGuard{un::OnOffence::skip}};
        for (int i = 0; i < 6 && world.rank() < 2; ++i) {
            const bool mine = world.rank() == 1 && i == 2;
            const auto report = trainer.step(mine ? -1 : i);
            const bool left_out = mine || (together && i == 2);
            expect(report.committed != left_out, "committed");
            expect((report.offender_rank == 1) == mine && (report.offender_parameter == 3) == mine, "offender");
        }
        if (servers_of(update) == 0) trainer.synchronise();
        trainer.verify_replicas();
        for (const double value : model.values()) expect(std::isfinite(value), "a NaN came through");
        const std::uint64_t expected = together ? 5 : world.rank() == 2 ? 11 : world.rank() == 1 ? 5 : 6;
        expect(trainer.updates() == expected, "updates");
    }));
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

BOOST_AUTO_TEST_SUITE(served_updates)

BOOST_AUTO_TEST_CASE(no_staleness_is_synchronous_to_the_bit) {
    for (const int workers : {1, 2, 3, 4}) {
        const auto expected = trained(workers, workers, 0, un::Synchronous{});
        for (const int servers : {1, 3})
            BOOST_TEST((trained(workers + servers, workers, 0,
                                un::BoundedStaleness{.staleness = 0, .servers = servers}) == expected));
    }
    BOOST_TEST(
        (trained(5, 3, 0, un::BackupWorkers{.backups = 0, .servers = 2}) == trained(3, 3, 0, un::Synchronous{})));
    // With workers that have no data at first.
    const auto late = trained(3, 3, 1, un::Synchronous{});
    BOOST_TEST((late != trained(3, 3, 0, un::Synchronous{})));
    BOOST_TEST((late == trained(4, 3, 1, un::BoundedStaleness{.staleness = 0})));
}

BOOST_AUTO_TEST_CASE(one_worker_is_synchronous) {
    const auto expected = trained(1, 1, 0, un::Synchronous{});
    BOOST_TEST((trained(1, 1, 0, un::Asynchronous{}) == expected)); // no server
    BOOST_TEST((trained(2, 1, 0, un::Asynchronous{}) == expected));
    // Nothing is stale.
    BOOST_TEST((trained(3, 1, 0, un::DelayCompensated{.lambda = 0.5, .servers = 2}) == expected));
}

BOOST_AUTO_TEST_CASE(one_worker_on_common_parameters_is_synchronous_to_the_bit) {
    const auto expected = trained(1, 1, 0, un::Synchronous{});
    for (const bool loses_none : {true, false}) {
        // It has nothing in common with another rank.
        BOOST_TEST((trained(1, 1, 0, un::Hogwild{loses_none}) == expected));
        BOOST_TEST((trained(3, 1, 0, un::Hogwild{loses_none}) == expected));
        BOOST_TEST((trained(3, 1, 0, un::Hogwild{loses_none}, 2) == expected));
    }
}

BOOST_AUTO_TEST_CASE(no_update_of_common_parameters_is_lost) {
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

BOOST_AUTO_TEST_CASE(workers_may_make_different_numbers_of_updates) {
    check_uneven(un::Asynchronous{.servers = 2});
    check_uneven(un::BoundedStaleness{.staleness = 1});
    check_uneven(un::BoundedStaleness{.staleness = 0, .servers = 2});
    check_uneven(un::DelayCompensated{});
    check_uneven(un::Hogwild{});
}

BOOST_AUTO_TEST_CASE(fit_comes_to_the_known_answer) {
    check_fit(3, un::BoundedStaleness{.staleness = 1000});
    check_fit(4, un::BoundedStaleness{.staleness = 2, .servers = 2});
    for (const bool loses_none : {true, false}) check_fit(2, un::Hogwild{loses_none});
}

BOOST_AUTO_TEST_CASE(a_worker_that_throws_ends_the_training_of_all) {
    check_throw(4, un::BoundedStaleness{.staleness = 1});
    check_throw(3, un::Hogwild{});
}

BOOST_AUTO_TEST_CASE(a_nan_is_named_to_all) {
    check_nan(4, un::Asynchronous{});
    check_nan(3, un::Hogwild{});
}

BOOST_AUTO_TEST_CASE(a_nan_may_be_left_out) {
    check_nan_that_is_left_out(un::BoundedStaleness{.staleness = 0}, true);
    check_nan_that_is_left_out(un::BoundedStaleness{.staleness = 4}, false);
    check_nan_that_is_left_out(un::Hogwild{}, false);
}

BOOST_AUTO_TEST_CASE(what_is_dropped_is_told) {
    const int workers = 3;
    for (const int servers : {1, 2}) {
        const test::Shared<std::array<std::uint64_t, workers>> late;
        check_clean(outcomes(workers + servers, [&](auto& world) {
            Bowl<double> model;
            un::Trainer trainer{world, model, sgd, buckets, un::BackupWorkers{.backups = 1, .servers = servers}};
            if (world.rank() < workers) {
                std::uint64_t& mine = late->at(static_cast<std::size_t>(world.rank()));
                for (int i = 0; i < 40 + 5 * world.rank(); ++i) {
                    const auto report = trainer.step(seed_of(i, world.rank()));
                    expect(report.committed != report.late || servers > 1, "either applied or dropped");
                    mine += report.late ? 1 : 0;
                }
            }
            trainer.verify_replicas();
            std::uint64_t dropped = 0;
            for (const std::uint64_t one : *late) dropped += one;
            const std::string text = trainer.describe();
            expect(text.find(" gradients, " + std::to_string(dropped) + " more dropped") != std::string::npos, text);
            if (servers > 1) return; // each makes its own number of updates
            const std::uint64_t pushes = 3 * 40 + 5 + 10;
            // An update uses the gradients of two workers while three train, and of one while
            // two train. The gradients of the last worker are dropped.
            expect(dropped >= 5, text);
            expect(trainer.updates() >= (pushes - dropped) / 2 && trainer.updates() <= pushes - dropped, text);
            expect(text.find(std::to_string(pushes - dropped) + " gradients") != std::string::npos, text);
        }));
    }
}

BOOST_AUTO_TEST_CASE(a_worker_without_data_ticks) {
    check_clean(outcomes(3, [](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, sgd, buckets, un::BoundedStaleness{.staleness = 1}};
        for (int i = 0; i < 8 && world.rank() < 2; ++i) {
            const auto report = world.rank() == 1 ? trainer.step() : trainer.step(i);
            expect(report.committed == (world.rank() == 0) && report.alone, "report");
        }
        expect(trainer.step(1).micro_batches == (world.rank() == 2 ? 0 : 1), "a server has no data");
        trainer.verify_replicas();
    }));
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused) {
    const auto refused = [](int ranks, const auto& update, const std::string& expected) {
        for (const auto& one : outcomes(ranks, [&](auto& world) {
                 Bowl<double> model;
                 un::Trainer trainer{world, model, sgd, buckets, update};
             })) {
            BOOST_TEST((one.failed && one.ours), one.what);
            BOOST_TEST(one.says(expected), one.what);
        }
    };
    refused(2, un::Asynchronous{.servers = 2}, "asynchronous.servers is 2 in a world of 2 ranks; expected at most 1");
    refused(2, un::Asynchronous{.servers = 0}, "asynchronous.servers is 0; expected at least 1");
    refused(1, un::BoundedStaleness{.servers = -1}, "bounded staleness.servers is -1; expected at least 1");
    refused(3, un::BackupWorkers{.backups = -1}, "backup workers.backups is -1; expected at least 0");
    refused(4, un::BackupWorkers{.backups = 2, .servers = 2},
            "backup workers.backups is 2 of 2 workers; expected at most 1");
    refused(2, un::DelayCompensated{.lambda = -0.1}, "delay compensated.lambda is -0.100000; expected a finite number");
    for (const auto& one : outcomes(3, [](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, sgd, buckets,
                                 un::BoundedStaleness{.staleness = world.rank() == 1 ? 2u : 1u}};
         }))
        BOOST_TEST(one.says("another update"), one.what);
}

BOOST_AUTO_TEST_SUITE_END()
