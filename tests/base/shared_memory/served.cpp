// Updates that servers make, with processes: the bits are those of threads. Also tests ranks that
// are killed.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../trainer/served.hpp"
#include "../trainer/outcomes.hpp"
#include "support/skip.hpp"

#include <unisono/trainer/trainer.hpp>
#include <unisono/updates.hpp>

#include <boost/test/unit_test.hpp>

#include <csignal>
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
    std::vector<double> weights = std::vector<double>(served_count), gradient = std::vector<double>(served_count);
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
    for (const auto& one : outcomes(ranks, [&](auto& world) {
             Bowl<double> model;
             un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.05, .momentum = 0.5}, update};
             for (int i = 0; i < 6 && world.rank() < 3; ++i) trainer.step(10 * i + world.rank());
             trainer.synchronise();
             trainer.verify_replicas();
             const auto values = model.values();
             if (world.rank() == 0) std::copy(values.begin(), values.end(), end->begin());
         }))
        BOOST_TEST(!one.failed, one.what);
    return *end;
}

} // namespace

BOOST_AUTO_TEST_SUITE(served_updates)

BOOST_AUTO_TEST_CASE(no_staleness_is_synchronous_to_the_bit) {
    BOOST_TEST((trained(5, un::BoundedStaleness{.staleness = 0, .servers = 2}) == trained(3, un::Synchronous{})));
}

BOOST_AUTO_TEST_CASE(processes_train_asynchronously) {
    constexpr int updates = 50;
    for (const auto& one : outcomes(5, [&](auto& world) {
             Steady model;
             un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1},
                                 un::BoundedStaleness{.staleness = 1000, .servers = 2}};
             for (int i = 0; i < updates && world.rank() < 3; ++i) trainer.step(world.rank());
             trainer.synchronise();
             trainer.verify_replicas();
             for (const double weight : model.weights) // of three workers, in any order
                 if (weight != (1 + 2 + 4) * updates) throw std::runtime_error("found " + std::to_string(weight));
         }))
        BOOST_TEST(!one.failed, one.what);
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_ends_the_training_of_all) {
    if (!test::on_processes) return test::skip("ranks are threads here");
    for (const int killed : {0, 3}) { // a worker, a server
        const auto told = outcomes(4, [&](auto& world) {
            Bowl<double> model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.05, .momentum = 0.5},
                                un::BoundedStaleness{.staleness = 2}};
            for (int i = 0; i < 1000; ++i) {
                if (world.rank() == killed && (i == 7 || killed == 3)) ::kill(::getpid(), SIGKILL);
                trainer.step(i);
            }
            trainer.synchronise();
        });
        for (int rank = 0; rank < 4; ++rank) {
            if (rank == killed) continue;
            const Outcome& one = told[static_cast<std::size_t>(rank)];
            BOOST_TEST((one.failed && one.ours), one.what);
            BOOST_TEST((one.code == un::ErrorCode::peer_lost), one.what);
            BOOST_TEST(one.says("rank " + std::to_string(killed)), one.what);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
