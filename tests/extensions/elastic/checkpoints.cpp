// Checkpoints of an elastic training, saved by `collectively` after each epoch. Ranks die and
// processes join meanwhile. The training ends with the hash of an undisturbed run, and its last
// checkpoint exists.
#include "ranks.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>

#include <algorithm>

using namespace unisono_test;

namespace {

constexpr std::uint64_t updates_of_epoch = 6, all_updates = epochs * updates_of_epoch;

template <class World, class OnUpdate>
Result train_and_save(World& world, const std::string& folder, bool background, OnUpdate on_update) {
    static const std::vector<float> values = un::torch_rand(5, 210 * Layer::width);
    const un::RowData<float> data(values, Layer::width);
    Layer model;
    un::Trainer trainer{world,
                        model,
                        un::Replicas{replicas},
                        un::DistributedSampler{.shuffle = true, .seed = 3},
                        un::Reproducible{},
                        un::Accumulate{.steps = 2},
                        un::AdamW{.learning_rate = 0.01}};
    const auto together = [&](auto call) {
        if constexpr (requires { trainer.now(); }) return trainer.collectively([&](auto& now) { return call(now); });
        else return call(trainer);
    };
    un::Checkpoints checkpoints(folder, {.keep = 9, .background = background});
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
        trainer.fit(data, {.batch_size = 3, .seed = 7, .progress = false}, on_update);
        together([&](auto& now) { return checkpoints.save(now); });
    }
    together([&](auto& now) {
        while (!checkpoints.wait(now)) checkpoints.save(now);
        return true;
    });
    Result result;
    result.updates = trainer.updates();
    result.hash = together([](auto& now) { return un::state_hash(now); });
    return result;
}
const Result& undisturbed_and_saved() {
    static const Result one = [] {
        const Folder folder;
        un::Group<un::SharedMemory> alone;
        return train_and_save(alone, folder.path(), false, [](const un::UpdateReport&) {});
    }();
    return one;
}

/// `strikes`: with `after_us` 0, within `on_update`. `one_comes`: another process joins once the
/// first checkpoint is there, for which the others wait.
struct Saving {
    int ranks = 3;
    bool background = false;
    std::vector<Strike> strikes = {};
    bool one_comes = false;
};

template <class Transport>
void save_through(const Saving& how) {
    const Folder folder, saved;
    const Shared told;
    un::Processes processes;
    const auto body = [&](int who) {
        return [&, who](auto& world) {
            return train_and_save(world, saved.path(), how.background, [&, who](const un::UpdateReport& report) {
                for (const Strike& one : how.strikes)
                    if (one.rank == who && one.update == report.number) {
                        if (one.after_us == 0) ::kill(::getpid(), SIGKILL);
                        strike_after(one);
                    }
                bool waits = how.one_comes && who < how.ranks;
                for (const un::WorldChange& change : world.changes()) waits = waits && change.joined.empty();
                ::usleep(waits ? 400'000 : 300);
            });
        };
    };
    start_ranks<Transport>(processes, how.ranks, folder, patient(), told, body);
    if (how.one_comes) {
        for (int i = 0; saved.names().empty() && i < 3000; ++i) ::usleep(10'000);
        processes.start(
            [&] { return be_rank<Transport>(-1, 0, folder.path(), patient(), told[how.ranks], body(how.ranks)); });
    }
    await_end(processes);
    for (int who = 0; who < how.ranks + (how.one_comes ? 1 : 0); ++who) {
        const bool struck =
            std::any_of(how.strikes.begin(), how.strikes.end(), [&](const Strike& one) { return one.rank == who; });
        BOOST_TEST_CONTEXT(Transport::name << (how.background ? ", in the background" : "") << ", process " << who
                                           << " of " << how.ranks << ": " << told[who].text) {
            if (!struck) BOOST_TEST(told[who].done);
            if (told[who].done) BOOST_TEST((told[who].result == undisturbed_and_saved()));
            BOOST_TEST(std::string(told[who].text) == "");
        }
    }
    std::vector<std::string> names = saved.names();
    std::sort(names.begin(), names.end());
    BOOST_REQUIRE(!names.empty());
    BOOST_TEST(names.back().ends_with("-update-" + std::to_string(all_updates)), names.back());
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_checkpoints)

BOOST_AUTO_TEST_CASE(a_rank_that_comes_saves_nothing_that_others_have_saved) {
    if (too_slow()) return;
    for (const bool background : {false, true})
        save_through<un::SharedMemory>({.background = background, .one_comes = true});
}

/// The writer is stopped, and holds the folder. A majority continues, and saves. When the writer
/// wakes, it changes nothing.
BOOST_AUTO_TEST_CASE(the_writer_is_stopped) {
    for (const bool background : {false, true}) {
        const Folder saved;
        const Shared told;
        std::vector<std::string> names;
        run_ranks<un::Tcp>(
            3, impatient(), told,
            [&](int rank) {
                return [&, rank](auto& world) {
                    return train_and_save(world, saved.path(), background, [rank](const un::UpdateReport& report) {
                        if (rank == 0 && report.number == updates_of_epoch + 1) ::kill(::getpid(), SIGSTOP);
                    });
                };
            },
            [&](const un::Processes& processes) {
                if (processes.running() != 1) return;
                if (names.empty()) names = saved.names();
                processes.signal_all(SIGCONT);
            });
        for (int rank = 0; rank < 3; ++rank) BOOST_TEST_CONTEXT("rank " << rank << ": " << told[rank].text) {
                BOOST_TEST(told[rank].done == (rank != 0));
                if (rank != 0) BOOST_TEST((told[rank].result == undisturbed_and_saved()));
            }
        std::vector<std::string> later = saved.names();
        for (std::vector<std::string>* const each : {&names, &later}) std::sort(each->begin(), each->end());
        BOOST_TEST(later == names, boost::test_tools::per_element());
        BOOST_REQUIRE(!names.empty());
        BOOST_TEST(names.back().ends_with("-update-" + std::to_string(all_updates)), names.back());
    }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_in_the_background_of_which_a_rank_is_lost) {
    for (const int rank : {0, 1, 2})
        for (const std::uint64_t epoch : {1u, 3u}) // after the last one the ranks wait
            save_through<un::SharedMemory>({.background = true,
                                            .strikes = {{rank, SIGKILL, epoch * updates_of_epoch + (epoch == 3 ? 0 : 1),
                                                         epoch == 3 ? 1500u : 0u}}});
}

BOOST_AUTO_TEST_CASE(killed_while_they_save) {
    for (unsigned seed = 0; seed < 12; ++seed) {
        std::mt19937 random(seed);
        Saving how{.ranks = 2 + static_cast<int>(random() % 3), .background = random() % 2 == 0};
        const auto lost = static_cast<unsigned>(how.ranks);
        how.strikes = {{static_cast<int>(random() % lost), SIGKILL, updates_of_epoch * (1 + random() % 3),
                        static_cast<unsigned>(1 + random() % 4'000)}};
        BOOST_TEST_CONTEXT("seed " << seed) {
            save_through<un::SharedMemory>(how);
            if (seed % 3 == 0) save_through<un::Tcp>(how);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
