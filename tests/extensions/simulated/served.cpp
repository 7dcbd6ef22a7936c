// Updates that servers make, or ranks in common, in virtual time: compared with their formulas,
// replayed from a seed, and within the bound that SSP promises.
#include "../../base/trainer/served.hpp"

#include <unisono/simulate.hpp>
#include <unisono/trainer/trainer.hpp>
#include <unisono/updates.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace un = unisono;
using namespace unisono_test;

namespace {

constexpr double rate = 0.03, momentum = 0.6;

un::SimulationOptions network(std::uint64_t seed) {
    un::SimulationOptions options;
    options.seed = seed;
    options.link = {.latency_ns = 10'000, .bytes_per_second = 1e8};
    options.jitter_ns = 40'000;
    return options;
}

/// The report of one worker's update.
struct Told {
    int worker = 0;
    int update = 0;
    un::UpdateReport report = {};
};

struct Course {
    std::vector<Told> told = {}; ///< of all workers, each in its order
    std::vector<std::vector<double>> ends = {};
    un::SimulationReport simulation = {};
};

template <class Update>
int workers_of(int ranks, const Update& update) {
    if constexpr (std::is_same_v<Update, un::Hogwild>) return ranks;
    else return ranks - update.servers;
}

/// `updates` of each worker. Rank r takes r + 1 times as long to compute.
template <class Update>
Course trained(int ranks, int updates, std::uint64_t seed, const Update& update) {
    Course course;
    course.ends.resize(static_cast<std::size_t>(ranks));
    course.simulation = un::simulate(ranks, network(seed), [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum}, update};
        const int worker = world.rank();
        for (int i = 0; i < updates; ++i) {
            if (worker < workers_of(ranks, update)) world.endpoint().compute(20'000 * (worker + 1));
            const un::UpdateReport report = trainer.step(seed_of(i, worker));
            if (report.micro_batches != 0) course.told.push_back({worker, i, report});
        }
        trainer.synchronise();
        trainer.verify_replicas();
        course.ends[static_cast<std::size_t>(worker)] = model.values();
    });
    return course;
}

/// The updates in order, each by the velocity of all workers, or by its worker's own. The workers'
/// reports determine what each worker read.
std::vector<double> replayed(std::vector<Told> told, double lambda, bool own_velocity) {
    std::sort(told.begin(), told.end(), [](const Told& a, const Told& b) { return a.report.number < b.report.number; });
    std::vector<std::vector<double>> x(1, std::vector<double>(served_count));
    for (std::size_t i = 0; i < served_count; ++i) x[0][i] = served_initial(i);
    std::map<int, std::vector<double>> velocities;
    for (std::size_t n = 0; n < told.size(); ++n) {
        BOOST_REQUIRE_EQUAL(told[n].report.number, n + 1); // one update each, none skipped
        const std::size_t read = n - told[n].report.staleness;
        std::vector<double> next = x[n];
        std::vector<double>& velocity = velocities[own_velocity ? told[n].worker : 0];
        velocity.resize(served_count);
        for (std::size_t i = 0; i < served_count; ++i) {
            double g = served_slope(seed_of(told[n].update, told[n].worker), i, x[read][i]);
            g += lambda * g * g * (x[n][i] - x[read][i]);
            velocity[i] = momentum * velocity[i] + g;
            next[i] -= rate * velocity[i];
        }
        x.push_back(std::move(next));
    }
    return x.back();
}

/// If every push is answered immediately, a worker has read the result of its own last update.
void check_read_at_once(const std::vector<Told>& told, int workers) {
    std::vector<std::uint64_t> last(static_cast<std::size_t>(workers));
    for (const Told& one : told) {
        std::uint64_t& mine = last[static_cast<std::size_t>(one.worker)];
        BOOST_TEST(one.report.number - 1 - one.report.staleness == mine);
        mine = one.report.number;
    }
}

template <class Update>
void check_formula(const Update& update, double lambda, bool at_once) {
    constexpr bool in_common = std::is_same_v<Update, un::Hogwild>;
    const int workers = workers_of(4, update);
    for (const std::uint64_t seed : {1u, 2u}) {
        const Course course = trained(4, 12, seed, update);
        BOOST_TEST(course.told.size() == static_cast<std::size_t>(12 * workers));
        if (at_once) check_read_at_once(course.told, workers);
        const auto expected = replayed(course.told, lambda, in_common);
        std::uint64_t most = 0, ahead = 0;
        for (const Told& one : course.told) {
            most = std::max(most, one.report.staleness);
            ahead = std::max(ahead, one.report.ahead);
        }
        BOOST_TEST(most >= 2u); // otherwise this tests nothing
        if (in_common) BOOST_TEST(ahead >= 2u);
        for (const auto& end : course.ends) BOOST_TEST(apart(end, expected) <= 1e-12);
        if (lambda != 0) BOOST_TEST(apart(expected, replayed(course.told, 0, in_common)) > 1e-3);
    }
}

template <class Update>
void check_replay(int ranks, const Update& update) {
    const Course first = trained(ranks, 10, 5, update);
    const Course again = trained(ranks, 10, 5, update);
    const Course other = trained(ranks, 10, 6, update);
    const auto order = [](const Course& course) { // in which the workers' updates were applied
        std::vector<std::pair<std::uint64_t, int>> applied;
        for (const Told& one : course.told) applied.emplace_back(one.report.number, one.worker);
        std::sort(applied.begin(), applied.end());
        return applied;
    };
    BOOST_TEST((first.simulation == again.simulation));
    BOOST_TEST((first.ends == again.ends));
    BOOST_TEST((order(first) == order(again)));
    BOOST_TEST((order(first) != order(other)));
    BOOST_TEST((first.ends != other.ends));
}

} // namespace

BOOST_AUTO_TEST_SUITE(served_updates)

BOOST_AUTO_TEST_CASE(asynchronous_is_its_formula) { check_formula(un::Asynchronous{}, 0, true); }

BOOST_AUTO_TEST_CASE(delay_compensation_is_its_formula) {
    check_formula(un::DelayCompensated{.lambda = 0.3}, 0.3, true);
}

BOOST_AUTO_TEST_CASE(bounded_staleness_is_its_formula) {
    check_formula(un::BoundedStaleness{.staleness = 2}, 0, false);
}

BOOST_AUTO_TEST_CASE(common_parameters_are_their_formula) {
    for (const bool loses_none : {true, false}) check_formula(un::Hogwild{loses_none}, 0, false);
}

BOOST_AUTO_TEST_CASE(a_seed_replays_the_run_and_another_has_another_order) {
    for (const int servers : {1, 2}) check_replay(3 + servers, un::Asynchronous{.servers = servers});
    check_replay(3, un::Hogwild{});
}

BOOST_AUTO_TEST_CASE(a_bound_that_nobody_reaches_is_asynchronous) {
    const Course bounded = trained(5, 10, 7, un::BoundedStaleness{.staleness = 1000, .servers = 2});
    BOOST_TEST((bounded.ends == trained(5, 10, 7, un::Asynchronous{.servers = 2}).ends));
}

namespace {

/// Parameter 16 r is the number of updates that the worker of rank r has made, as the reader sees
/// it.
struct Tally {
    std::vector<double> weights, gradient;
    std::size_t worker;

    Tally(int workers, int rank)
        : weights(16 * static_cast<std::size_t>(workers)), gradient(weights.size()),
          worker(static_cast<std::size_t>(rank)) {}
    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return gradient; }
    double operator()(const int&, un::Pass&) {
        gradient[16 * worker] -= 1;
        return 0;
    }
};

struct Seen {
    /// Clocks by which a worker's view of another lagged behind its own clock.
    double most_behind = 0;
    bool own_all = true; ///< it saw all of its own updates
    std::uint64_t most_ahead = 0;
    std::string description = {};
};

/// Worker 1 is slow, and pauses for a while.
Seen seen(const un::BoundedStaleness& update, std::uint64_t seed) {
    constexpr int workers = 4;
    un::SimulationOptions options = network(seed);
    options.stops = {{.rank = 1, .at_ns = 700'000, .for_ns = 600'000}};
    Seen all;
    un::simulate(workers + update.servers, options, [&](auto& world) {
        Tally model(workers, std::min(world.rank(), workers - 1));
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, update};
        for (int clock = 0; clock < 14 && world.rank() < workers; ++clock) {
            for (std::size_t w = 0; w < workers; ++w)
                all.most_behind = std::max(all.most_behind, clock - model.weights[16 * w]);
            all.own_all = all.own_all && model.weights[16 * model.worker] == clock;
            world.endpoint().compute(world.rank() == 1 ? 90'000 : 20'000);
            all.most_ahead = std::max(all.most_ahead, trainer.step(0).ahead);
        }
        trainer.synchronise();
        trainer.verify_replicas();
        for (std::size_t w = 0; w < workers; ++w) BOOST_TEST(model.weights[16 * w] == 14);
        if (world.rank() == 0) all.description = trainer.describe();
    });
    return all;
}

template <class Update>
void check_crash(int ranks, const Update& update, int rank) {
    un::SimulationOptions options = network(3);
    options.crashes = {{.rank = rank, .at_ns = 900'000}};
    int heard = 0;
    BOOST_CHECK_THROW(
        un::simulate(
            ranks, options,
            [&](auto& world) {
                Bowl<double> model;
                try {
                    un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum}, update};
                    for (int i = 0; i < 1000; ++i) trainer.step(i);
                    trainer.synchronise();
                } catch (const un::error& failed) {
                    heard += failed.code() == un::ErrorCode::peer_lost && failed.peer() == rank;
                    throw;
                }
            }),
        un::error);
    BOOST_TEST(heard == ranks - 1);
}

} // namespace

namespace {

/// The updates of one server, each with the gradients whose workers were given its number.
std::vector<double> replayed_together(const std::vector<Told>& told) {
    std::vector<double> x(served_count), velocity(served_count);
    for (std::size_t i = 0; i < served_count; ++i) x[i] = served_initial(i);
    std::size_t applied = 0, committed = 0;
    for (const Told& one : told) committed += one.report.committed ? 1 : 0;
    for (std::uint64_t number = 1; applied < committed; ++number) {
        std::vector<double> sum(served_count);
        double size = 0;
        for (const Told& one : told) {
            if (!one.report.committed || one.report.number != number) continue;
            BOOST_TEST(one.report.staleness == 0u);
            for (std::size_t i = 0; i < served_count; ++i)
                sum[i] += served_slope(seed_of(one.update, one.worker), i, x[i]);
            size += 1;
        }
        BOOST_REQUIRE(size > 0);
        applied += static_cast<std::size_t>(size);
        for (std::size_t i = 0; i < served_count; ++i) {
            velocity[i] = momentum * velocity[i] + sum[i] / size;
            x[i] -= rate * velocity[i];
        }
    }
    return x;
}

/// The time at which worker 0 of four has made 12 updates. One worker takes twenty times as long to
/// compute.
un::nanoseconds time_of_the_fast(int backups) {
    un::nanoseconds end = 0;
    un::simulate(5, network(1), [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::BackupWorkers{.backups = backups}};
        for (int i = 0; i < 12 && world.rank() < 4; ++i) {
            world.endpoint().compute(world.rank() == 2 ? 2'000'000 : 100'000);
            trainer.step(i);
        }
        if (world.rank() == 0) end = world.endpoint().now();
        trainer.synchronise();
    });
    return end;
}

} // namespace

BOOST_AUTO_TEST_CASE(backup_workers_are_their_formula) {
    for (const std::uint64_t seed : {1u, 2u})
        for (const int backups : {1, 2}) {
            const Course course = trained(5, 12, seed, un::BackupWorkers{.backups = backups});
            BOOST_TEST(course.told.size() == 48u);
            std::size_t late = 0;
            for (const Told& one : course.told) {
                BOOST_TEST(one.report.committed != one.report.late);
                late += one.report.late ? 1 : 0;
            }
            BOOST_TEST(late >= 3u); // the last worker takes four times as long as the first
            const auto expected = replayed_together(course.told);
            for (const auto& end : course.ends) BOOST_TEST(apart(end, expected) <= 1e-12);
            BOOST_TEST((course.ends == trained(5, 12, seed, un::BackupWorkers{.backups = backups}).ends));
        }
    BOOST_TEST((trained(5, 12, 1, un::BackupWorkers{.backups = 0}).ends ==
                trained(5, 12, 1, un::BoundedStaleness{.staleness = 0}).ends));
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_a_slow_backup) {
    const un::nanoseconds with = time_of_the_fast(1), without = time_of_the_fast(0);
    BOOST_TEST(without >= 12 * 2'000'000);
    BOOST_TEST(with <= without / 5);
}

BOOST_AUTO_TEST_CASE(servers_that_choose_differently_do_not_wait_for_each_other) {
    bool differed = false;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const int servers = 2 + static_cast<int>(seed % 2), backups = 1 + static_cast<int>(seed % 3);
        un::SimulationOptions options = network(seed);
        options.jitter_ns = 400'000;
        un::simulate(5 + servers, options, [&](auto& world) {
            Bowl<double> model;
            un::Trainer trainer{world, model, un::Buckets{.first_bytes = 80, .bytes = 200},
                                un::BackupWorkers{.backups = backups, .servers = servers}};
            for (int i = 0; i < 10 + 7 * world.rank() && world.rank() < 5; ++i) {
                world.endpoint().compute(20'000 * (1 + (i + world.rank()) % 3));
                const auto report = trainer.step(i);
                // Another server dropped it.
                differed = differed || (report.committed && report.staleness != 0);
            }
            trainer.synchronise();
            trainer.verify_replicas();
        });
    }
    BOOST_TEST(differed); // otherwise this tests nothing
}

BOOST_AUTO_TEST_CASE(
    // Ho et al. 2013: all of clocks up to c - s - 1, and its own.
    a_reader_sees_what_the_bound_promises) {
    for (const std::uint64_t seed : {1u, 2u, 3u})
        for (const int servers : {1, 2}) {
            BOOST_TEST_CONTEXT("seed " << seed << ", " << servers << " servers") {
                for (const std::uint64_t s : {1u, 3u}) {
                    const Seen bounded = seen(un::BoundedStaleness{.staleness = s, .servers = servers}, seed);
                    BOOST_TEST(bounded.own_all);
                    // The slow worker makes them reach it.
                    BOOST_TEST(bounded.most_behind == static_cast<double>(s));
                    BOOST_TEST(bounded.most_ahead == s);
                    BOOST_TEST(bounded.description.find(" clocks ahead, of 56 gradients") != std::string::npos);
                }
                const Seen free = seen(un::BoundedStaleness{.staleness = 1000, .servers = servers}, seed);
                BOOST_TEST(free.own_all);
                BOOST_TEST(free.most_behind > 3);
            }
        }
}

BOOST_AUTO_TEST_CASE(a_rank_that_crashes_ends_the_training_of_all) {
    for (const int rank : {1, 3}) { // a worker, a server
        check_crash(4, un::Asynchronous{}, rank);
        check_crash(4, un::BoundedStaleness{.staleness = 0, .servers = 2}, rank);
    }
    for (const int rank : {0, 2}) check_crash(3, un::Hogwild{}, rank);
}

namespace {

/// A batch is the gradient of parameter 1. The gradient of parameter 0 is small.
struct Slopes {
    std::vector<float> first = std::vector<float>(40), second = std::vector<float>(3);
    std::vector<float> first_gradient = std::vector<float>(40), second_gradient = std::vector<float>(3);
    std::array<std::span<float>, 2> parameters() { return {first, second}; }
    std::array<std::span<float>, 2> gradients() { return {first_gradient, second_gradient}; }
    double operator()(const double& slope, un::Pass&) {
        for (float& x : first_gradient) x += 0.5F;
        for (float& x : second_gradient) x += static_cast<float>(slope);
        return 1;
    }
};

} // namespace

// The square of a gradient may overflow. This does not matter if the gradient is not stale;
// otherwise it is skipped.
BOOST_AUTO_TEST_CASE(a_compensation_that_is_not_finite_changes_nothing) {
    for (const int servers : {1, 2})
        for (const un::OnOffence action : {un::OnOffence::skip, un::OnOffence::stop}) {
            const un::DelayCompensated update{.lambda = 1, .servers = servers};
            std::string told;
            const auto train = [&](auto& world) {
                Slopes model;
                un::Trainer trainer{world,
                                    model,
                                    un::Sgd{.learning_rate = 1},
                                    update,
                                    un::FiniteGuard{action},
                                    un::Buckets{.bytes = 64}};
                if (world.rank() == 0) {
                    // Before the other's first gradient arrives.
                    BOOST_TEST(trainer.step(2.0).committed);
                    BOOST_TEST(trainer.step(1e30).committed);
                    BOOST_TEST(model.second[0] < -1e29F);
                } else if (world.rank() == 1) {
                    world.endpoint().compute(10'000'000);
                    const auto report = trainer.step(1e20);
                    BOOST_TEST(!report.committed);
                    BOOST_TEST(report.offender_parameter == 1);
                }
                trainer.synchronise();
                trainer.verify_replicas();
                for (const float x : model.first) BOOST_TEST(std::isfinite(x));
                for (const float x : model.second) BOOST_TEST(std::isfinite(x));
            };
            try {
                un::simulate(2 + servers, network(1), train);
            } catch (const un::error& failed) {
                BOOST_TEST((failed.code() == un::ErrorCode::not_finite));
                told = failed.what();
            }
            const bool says = told.find("the sum of the gradients of parameter 1") != std::string::npos;
            BOOST_TEST(says == (action == un::OnOffence::stop), told);
        }
}

// The counts of a training that went back do not include what it has undone.
BOOST_AUTO_TEST_CASE(common_parameters_go_back_to_fresh_ones) {
    constexpr int workers = 3;
    un::simulate(workers, network(3), [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate}, un::Hogwild{}};
        const auto train = [&](int count) {
            std::uint64_t most = 0;
            for (int i = 0; i < count; ++i) {
                world.endpoint().compute(20'000);
                const auto report = trainer.step(seed_of(i, world.rank()));
                most = std::max({most, report.staleness, report.ahead});
            }
            return most;
        };
        train(4);
        trainer.synchronise();
        const auto kept = model.pieces;
        const auto progress = trainer.progress();
        const auto synchronisations = trainer.state().update_run().synchronisations();
        train(3 + 5 * world.rank());
        for (std::size_t i = 0; i < kept.size(); ++i) std::copy(kept[i].begin(), kept[i].end(), model.spans[i].begin());
        trainer.state().update_run().restore(synchronisations);
        trainer.restore(progress);
        BOOST_TEST(train(1) < static_cast<std::uint64_t>(workers)); // each of them makes one update
        trainer.synchronise();
        const un::Staleness& counted = trainer.state().update_run().staleness().last();
        BOOST_TEST(counted.gradients == static_cast<std::uint64_t>(workers));
        BOOST_TEST(counted.most < static_cast<std::uint64_t>(workers));
        BOOST_TEST(counted.most_ahead <= 1u);
    });
}

BOOST_AUTO_TEST_SUITE_END()
