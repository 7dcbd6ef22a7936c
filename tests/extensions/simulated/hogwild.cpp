// Parameters that ranks update in common, in virtual time: compared with the formula, and replayed
// from a seed.
#include "../../base/trainer/served.hpp"

#include <unisono/extensions/updates/hogwild.hpp>
#include <unisono/simulate.hpp>
#include <unisono/trainer/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace un = unisono;
using namespace unisono_test;

namespace {

constexpr double rate = 0.03, momentum = 0.6;
constexpr int workers = 3, updates = 12;

un::SimulationOptions network(std::uint64_t seed) {
    un::SimulationOptions options;
    options.seed = seed;
    options.link = {.latency_ns = 10'000, .bytes_per_second = 1e8};
    options.jitter_ns = 40'000;
    return options;
}

int seed_of(int update, int worker) { return 10 * update + worker; }

struct Told {
    int worker = 0;
    int update = 0;
    un::UpdateReport report = {};
};
struct Course {
    std::vector<Told> told = {}; ///< of all workers, by number
    std::vector<std::vector<double>> ends = {};
    un::SimulationReport simulation = {};
};

/// `updates` of each worker. Rank r takes r + 1 times as long to compute.
Course trained(std::uint64_t seed, bool loses_none = true) {
    Course course;
    course.ends.resize(workers);
    course.simulation = un::simulate(workers, network(seed), [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum},
                            un::Hogwild{loses_none}};
        for (int i = 0; i < updates; ++i) {
            world.endpoint().compute(20'000 * (world.rank() + 1));
            course.told.push_back({world.rank(), i, trainer.step(seed_of(i, world.rank()))});
        }
        trainer.synchronise();
        trainer.verify_replicas();
        course.ends[static_cast<std::size_t>(world.rank())] = model.values();
    });
    std::sort(course.told.begin(), course.told.end(),
              [](const Told& a, const Told& b) { return a.report.number < b.report.number; });
    return course;
}

/// x becomes x - rate v, where v is the worker's own momentum of gradients at the x that it read.
std::vector<double> replayed(const std::vector<Told>& told) {
    std::vector<std::vector<double>> x(1, std::vector<double>(served_count));
    for (std::size_t i = 0; i < served_count; ++i) x[0][i] = served_initial(i);
    std::vector<std::vector<double>> velocity(workers, std::vector<double>(served_count));
    for (std::size_t n = 0; n < told.size(); ++n) {
        BOOST_REQUIRE_EQUAL(told[n].report.number, n + 1);
        const std::size_t read = n - told[n].report.staleness;
        std::vector<double> next = x[n];
        for (std::size_t i = 0; i < served_count; ++i) {
            double& v = velocity[static_cast<std::size_t>(told[n].worker)][i];
            v = momentum * v + served_slope(seed_of(told[n].update, told[n].worker), i, x[read][i]);
            next[i] -= rate * v;
        }
        x.push_back(std::move(next));
    }
    return x.back();
}

} // namespace

BOOST_AUTO_TEST_SUITE(hogwild)

BOOST_AUTO_TEST_CASE(is_its_formula) {
    for (const bool loses_none : {true, false}) {
        const Course course = trained(1, loses_none);
        BOOST_TEST(course.told.size() == static_cast<std::size_t>(workers * updates));
        const auto expected = replayed(course.told);
        std::uint64_t most = 0, ahead = 0;
        for (const Told& one : course.told) {
            most = std::max(most, one.report.staleness);
            ahead = std::max(ahead, one.report.ahead);
        }
        BOOST_TEST(most >= 2u); // otherwise this tests nothing
        BOOST_TEST(ahead >= 2u);
        for (const auto& end : course.ends) {
            double worst = 0;
            for (std::size_t i = 0; i < end.size(); ++i) worst = std::max(worst, std::abs(end[i] - expected[i]));
            BOOST_TEST(worst <= 1e-12);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_seed_replays_the_run_and_another_has_another_order) {
    const Course first = trained(5), again = trained(5), other = trained(6);
    const auto order = [](const Course& course) {
        std::vector<int> by;
        for (const Told& one : course.told) by.push_back(one.worker);
        return by;
    };
    BOOST_TEST((first.simulation == again.simulation));
    BOOST_TEST((first.ends == again.ends));
    BOOST_TEST(order(first) == order(again));
    BOOST_TEST(order(first) != order(other));
    BOOST_TEST((first.ends != other.ends));
}

BOOST_AUTO_TEST_CASE(a_rank_that_crashes_ends_the_training_of_all) {
    for (const int crashed : {0, 2}) {
        un::SimulationOptions options = network(3);
        options.crashes = {{.rank = crashed, .at_ns = 900'000}};
        int heard = 0;
        BOOST_CHECK_THROW(
            un::simulate(3, options,
                         [&](auto& world) {
                             Bowl<double> model;
                             try {
                                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum},
                                                     un::Hogwild{}};
                                 for (int i = 0; i < 1000; ++i) trainer.step(i);
                                 trainer.synchronise();
                             } catch (const un::error& failed) {
                                 heard += failed.code() == un::ErrorCode::peer_lost && failed.peer() == crashed;
                                 throw;
                             }
                         }),
            un::error);
        BOOST_TEST(heard == 2);
    }
}

// The counts of a training that went back do not include what it has undone.
BOOST_AUTO_TEST_CASE(goes_back_to_fresh_parameters) {
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
