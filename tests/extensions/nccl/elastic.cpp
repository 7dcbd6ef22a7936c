// Elastic worlds over NCCL. The ranks are threads, since the stand-in for NCCL is within a process.
// So none is killed: a rank ends because its device fails, and its peers wait for it in NCCL's
// collectives. The others end with the bits of an undisturbed training on the host.
#include "support.hpp"

#include "extensions/device/elastic_model.hpp"
#include "extensions/elastic/forks.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>
#include <unisono/master_weights.hpp>

#include <atomic>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace unisono_test;
using namespace std::chrono_literals;

struct Ended {
    bool done = false;
    Result result = {};
    int code = -1;
    std::string text = {};
    std::vector<un::WorldChange> changes = {};
};

/// Of `ranks` ranks, one loses its device before one of its micro-batches. Another rank may come.
/// `bad_starts`: communicators of later memberships that report an error when they begin.
std::vector<Ended> lose_a_device(int ranks, int loser, int batch, bool another, int bad_starts = 0) {
    const Folder folder;
    std::optional<stand_in::Scene> lost;
    std::vector<Ended> ends(static_cast<std::size_t>(ranks) + (another ? 1 : 0));
    std::vector<std::thread> threads;
    for (int who = 0; who < static_cast<int>(ends.size()); ++who)
        threads.emplace_back([&, who] {
            Ended& mine = ends[static_cast<std::size_t>(who)];
            un::ElasticOptions options;
            options.join.timeout = 20s;
            options.join.rendezvous.timeout = 20s;
            options.patience = 10s;
            options.give_up = 20s;
            options.folder = folder.path();
            options.joins = who == ranks;
            std::optional<un::ElasticWorld<un::Nccl>> world;
            try {
                if (options.joins) world.emplace(un::join<un::Elastic<un::Nccl>>(options, {.device = 7}));
                else
                    world.emplace(un::join<un::Elastic<un::Nccl>>(
                        un::rendezvous(un::identity_of(who, ranks), {.folder = folder.path()}, options.join.rendezvous),
                        options));
                int batches = 0;
                const int device = world->group().endpoint().device();
                before_batch = [&, who] {
                    if (who == loser && ++batches == batch)
                        lost.emplace(stand_in::Behaviour{.bad_starts = bad_starts, .lost_device = device});
                };
                mine.result = train(*world, [&](const un::UpdateReport&) {
                    bool added = !another;
                    for (const un::WorldChange& change : world->changes()) added = added || !change.joined.empty();
                    std::this_thread::sleep_for(added || who == ranks ? 1ms : 400ms);
                });
                mine.done = true;
            } catch (const un::error& failed) {
                mine.code = static_cast<int>(failed.code());
                mine.text = failed.what();
            }
            before_batch = [] {};
            if (world) mine.changes = world->changes();
        });
    for (std::thread& one : threads) one.join();
    return ends;
}

void expect_all_but(int loser, const std::vector<Ended>& ends, std::size_t changes) {
    const std::vector<std::string> words = {un::concat({"rank ", loser, ", device ", loser, ": "}),
                                            "cudaErrorLaunchFailure"};
    for (int who = 0; who < static_cast<int>(ends.size()); ++who) {
        const Ended& one = ends[static_cast<std::size_t>(who)];
        BOOST_TEST_CONTEXT("rank " << who << ": " << one.text) {
            BOOST_TEST(one.done == (who != loser));
            if (who == loser) {
                BOOST_TEST(one.code == static_cast<int>(un::ErrorCode::aborted));
                BOOST_TEST(test::mentions(one.text, words));
                continue;
            }
            BOOST_TEST((one.result == undisturbed()), "another result than undisturbed");
            if (changes == 1) {
                BOOST_REQUIRE(one.changes.size() == 1);
                BOOST_TEST(one.changes[0].lost == std::vector<int>{loser});
            }
        }
    }
}

/// Pulls its weights, in 16 bits, to the row.
struct Pulled {
    static constexpr std::size_t width = 12;
    std::vector<un::bfloat16> weights{width, un::bfloat16(0.1f)}, slopes{width, un::bfloat16()};
    std::array<std::span<un::bfloat16>, 1> parameters() { return {weights}; }
    std::array<std::span<un::bfloat16>, 1> gradients() { return {slopes}; }
    double operator()(const un::RowBatch<float>& batch, un::Pass&) {
        double loss = 0;
        for (std::size_t i = 0; i < width; ++i) {
            const float error = static_cast<float>(weights[i]) - batch.row(0)[i];
            slopes[i] = un::bfloat16(static_cast<float>(slopes[i]) + error);
            loss += static_cast<double>(error * error);
        }
        return loss;
    }
};

/// How often the 16-bit weights on a device are not those that its float weights round to.
template <class Master, class Model>
int stale(Master& master, Model& model) {
    const std::vector<un::bfloat16> low = model.values();
    const std::vector<float> weights = test::download(master.parameters()[0]);
    int found = 0;
    for (std::size_t i = 0; i < low.size(); ++i)
        found += static_cast<float>(low[i]) != static_cast<float>(un::bfloat16(weights[i]));
    return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(nccl_elastic)

/// A rank that is added makes the first call alone, and undoes its changes: also in the 16-bit
/// weights, with which the model computes. The floats and the 16 bits outlive the memberships.
BOOST_AUTO_TEST_CASE(sixteen_bits_follow_the_floats) {
    const test::Clean clean;
    const Folder folder;
    static const std::vector<float> values = un::torch_rand(5, 40 * Pulled::width);
    const un::RowData<float> data(values, Pulled::width);
    const un::FitOptions options{.epochs = 3, .batch_size = 1, .progress = false};
    std::atomic<int> wrong = 0, added = 0, done = 0;
    std::array<un::StateHash, 2> hashes = {};
    un::StateHash undisturbed = {};
    std::array<std::string, 2> texts;
    std::vector<std::thread> threads;
    for (int who = 0; who < 2; ++who)
        threads.emplace_back([&, who] {
            un::ElasticOptions elastic;
            elastic.join.timeout = elastic.join.rendezvous.timeout = elastic.give_up = 20s;
            elastic.patience = 10s;
            elastic.folder = folder.path();
            elastic.joins = who == 1;
            try {
                auto world =
                    elastic.joins
                        ? un::join<un::Elastic<un::Nccl>>(elastic, {.device = 1})
                        : un::join<un::Elastic<un::Nccl>>(
                              un::rendezvous(un::identity_of(0, 1), {.folder = folder.path()}, elastic.join.rendezvous),
                              elastic, {.device = 0});
                const un::detail::CudaDeviceGuard here(world.group().endpoint().device());
                Pulled pulled;
                test::OnDevice model(world.group(), pulled);
                un::MasterWeights master(world, model);
                un::Trainer trainer{world, master, un::Replicas{2}, un::Reproducible{}, un::Sgd{.learning_rate = 0.1}};
                trainer.collectively([&](auto& now) { // as if it resumed from a checkpoint
                    test::copy_to_device(master.parameters()[0], std::vector<float>(Pulled::width, 2.0f));
                    master.refresh();
                    return now.updates();
                });
                wrong += stale(master, model);
                trainer.fit(data, options, [&](const un::UpdateReport&) {
                    for (const un::WorldChange& change : world.changes()) added += !change.joined.empty();
                    std::this_thread::sleep_for(added > 0 || who == 1 ? 1ms : 300ms);
                });
                wrong += stale(master, model);
                hashes[static_cast<std::size_t>(who)] =
                    trainer.collectively([](auto& now) { return un::state_hash(now); });
                ++done;
            } catch (const std::exception& failed) {
                texts[static_cast<std::size_t>(who)] = failed.what();
            }
        });
    for (std::thread& one : threads) one.join();
    un::run<un::InProcess>(1, [&](auto& world) {
        Pulled pulled;
        un::MasterWeights master(pulled);
        un::Trainer trainer{world, master, un::Replicas{2}, un::Reproducible{}, un::Sgd{.learning_rate = 0.1}};
        std::ranges::fill(master.parameters()[0], 2.0f);
        trainer.fit(data, options);
        undisturbed = un::state_hash(trainer);
    });
    BOOST_TEST(done == 2, texts[0] << texts[1]);
    BOOST_TEST(added > 0);
    BOOST_TEST(wrong == 0);
    for (const un::StateHash& one : hashes) BOOST_TEST((one == undisturbed), "another result than undisturbed");
}

BOOST_AUTO_TEST_CASE(a_device_fails) {
    const test::Clean clean;
    const stand_in::Counts before = stand_in::counts();
    for (const int loser : {0, 2}) expect_all_but(loser, lose_a_device(3, loser, 9, false), 1);
    BOOST_TEST(stand_in::counts().revoked - before.revoked >= 4); // those of the ranks that are left
}
/// NCCL cannot begin the next membership at once: the ranks form it again.
BOOST_AUTO_TEST_CASE(nccl_fails_between_memberships) {
    const test::Clean clean;
    for (const int bad_starts : {1, 3}) expect_all_but(1, lose_a_device(3, 1, 9, false, bad_starts), 1);
}
/// The state comes from a device, and goes to a device.
BOOST_AUTO_TEST_CASE(a_device_fails_and_another_rank_comes) {
    if (too_slow()) return;
    const test::Clean clean;
    expect_all_but(1, lose_a_device(3, 1, 9, true), 2);
}
/// UNISONO_ELASTIC_KILLS=100 tries that number of seeds.
BOOST_AUTO_TEST_CASE(devices_fail) {
    const test::Clean clean;
    const char* const wanted = std::getenv("UNISONO_ELASTIC_KILLS");
    const unsigned seeds = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : 3;
    for (unsigned seed = 0; seed < seeds; ++seed) {
        std::mt19937 random(seed);
        const int ranks = 2 + static_cast<int>(random() % 4),
                  loser = static_cast<int>(random() % static_cast<unsigned>(ranks));
        const int batch = 1 + static_cast<int>(random() % 25);
        BOOST_TEST_CONTEXT("seed " << seed << ": rank " << loser << " of " << ranks << ", batch " << batch)
        expect_all_but(loser, lose_a_device(ranks, loser, batch, false), 1);
    }
}

BOOST_AUTO_TEST_SUITE_END()
