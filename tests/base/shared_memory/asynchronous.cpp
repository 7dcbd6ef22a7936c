// Updates that ranks make without waiting for each other, with processes: by servers, and in memory
// that all have in common. Bits are those of threads, no update is lost, and ranks are killed.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../trainer/outcomes.hpp"
#include "../trainer/served.hpp"
#include "support/skip.hpp"

#include <unisono/trainer/trainer.hpp>
#include <unisono/updates.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using namespace unisono_test;

namespace {

using End = std::array<double, served_count>;

/// For any parameters, each gradient is minus 1, 2 or 4, by the rank: a lost update of any worker,
/// or one that was applied twice, shows in the sum.
struct Steady {
    std::vector<double> weights = std::vector<double>(1000), gradient = std::vector<double>(1000);
    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return gradient; }
    double operator()(const int& rank, un::Pass&) {
        for (double& g : gradient) g -= 1 << rank;
        return 0;
    }
};

/// The parameters of three workers after six updates each.
template <class Update>
End trained(int ranks, const Update& update) {
    const test::Shared<End> end;
    check_clean(outcomes(ranks, [&](auto& world) {
        Bowl<double> model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.05, .momentum = 0.5}, update};
        for (int i = 0; i < 6 && world.rank() < 3; ++i) trainer.step(10 * i + world.rank());
        trainer.synchronise();
        trainer.verify_replicas();
        const auto values = model.values();
        if (world.rank() == 0) std::copy(values.begin(), values.end(), end->begin());
    }));
    return *end;
}

/// Ranks 0, 1 and 2 are workers. Memory that other ranks may still see is not reused by a later
/// trainer.
template <class Update>
void expect_all_updates(int ranks, const Update& update) {
    constexpr int updates = 200;
    check_clean(outcomes(ranks, [&](auto& world) {
        for (int life = 0; life < 3; ++life) {
            Steady model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, update};
            for (int i = 0; i < updates && world.rank() < 3; ++i) trainer.step(world.rank());
            trainer.synchronise();
            trainer.verify_replicas();
            for (const double weight : model.weights)
                if (weight != (1 + 2 + 4) * updates) throw std::runtime_error("found " + std::to_string(weight));
        }
    }));
}

/// Rank 3 is a server, and is killed before its first update.
template <class Update>
void expect_a_death_ends_all(int ranks, std::initializer_list<int> deaths, const Update& update) {
    for (const int killed : deaths) {
        const auto told = outcomes(ranks, [&](auto& world) {
            Steady model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, update};
            for (int i = 0; i < 1000; ++i) {
                if (world.rank() == killed && (i == 7 || killed == 3)) ::kill(::getpid(), SIGKILL);
                trainer.step(world.rank());
            }
            trainer.synchronise();
        });
        for (int rank = 0; rank < ranks; ++rank) {
            if (rank == killed) continue;
            const Outcome& one = told[static_cast<std::size_t>(rank)];
            BOOST_TEST((one.failed && one.ours), one.what);
            BOOST_TEST((one.code == un::ErrorCode::peer_lost), one.what);
            BOOST_TEST(one.says("rank " + std::to_string(killed)), one.what);
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(asynchronous)

BOOST_AUTO_TEST_CASE(no_staleness_is_synchronous_to_the_bit) {
    BOOST_TEST((trained(5, un::BoundedStaleness{.staleness = 0, .servers = 2}) == trained(3, un::Synchronous{})));
}

BOOST_AUTO_TEST_CASE(no_update_is_lost) {
    expect_all_updates(5, un::BoundedStaleness{.staleness = 1000, .servers = 2});
    expect_all_updates(3, un::Hogwild{});
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_ends_the_training_of_all) {
    if (!test::on_processes) return test::skip("ranks are threads here");
    expect_a_death_ends_all(4, {0, 3}, un::BoundedStaleness{.staleness = 2});
    expect_a_death_ends_all(3, {0, 2}, un::Hogwild{}); // rank 0 has the parameters
}

BOOST_AUTO_TEST_SUITE_END()
