// Parameters that processes update in common: no update is lost. Also tests ranks that are killed.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../trainer/outcomes.hpp"
#include "../trainer/served.hpp"
#include "support/skip.hpp"

#include <unisono/extensions/updates/hogwild.hpp>
#include <unisono/trainer/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <stdexcept>
#include <unistd.h>

namespace un = unisono;
using namespace unisono_test;

namespace {

/// For any parameters, each gradient is -1.
struct Ones {
    std::vector<double> weights = std::vector<double>(1000), gradient = std::vector<double>(1000);
    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return gradient; }
    double operator()(const int&, un::Pass&) {
        for (double& g : gradient) g -= 1;
        return 0;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(hogwild)

BOOST_AUTO_TEST_CASE(no_update_is_lost) {
    constexpr int updates = 200;
    for (const auto& one : outcomes(3, [&](auto& world) {
             // Memory that other ranks may still see is not reused.
             for (int life = 0; life < 3; ++life) {
                 Ones model;
                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, un::Hogwild{}};
                 for (int i = 0; i < updates; ++i) trainer.step(i);
                 trainer.synchronise();
                 trainer.verify_replicas();
                 for (const double weight : model.weights)
                     if (weight != 3 * updates) throw std::runtime_error("an update was lost");
             }
         }))
        BOOST_TEST(!one.failed, one.what);
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_ends_the_training_of_all) {
    if (!test::on_processes) return test::skip("ranks are threads here");
    for (const int killed : {0, 2}) { // rank 0 has the parameters
        const auto told = outcomes(3, [&](auto& world) {
            Ones model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, un::Hogwild{}};
            for (int i = 0; i < 1000; ++i) {
                if (world.rank() == killed && i == 7) ::kill(::getpid(), SIGKILL);
                trainer.step(i);
            }
            trainer.synchronise();
        });
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == killed) continue;
            const Outcome& one = told[static_cast<std::size_t>(rank)];
            BOOST_TEST((one.failed && one.ours), one.what);
            BOOST_TEST((one.code == un::ErrorCode::peer_lost), one.what);
            BOOST_TEST(one.says("rank " + std::to_string(killed)), one.what);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
