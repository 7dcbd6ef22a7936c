// A training that was stopped and resumed gets the bits of one that was not.
#include "support/fails.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/folder.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>

namespace un = unisono;
using namespace unisono_test;

namespace {

/// Without hidden ones.
std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> found;
    for (const auto& one : std::filesystem::directory_iterator(folder))
        if (const std::string name = one.path().filename(); name.front() != '.') found.push_back(name);
    std::sort(found.begin(), found.end());
    return found;
}

/// All ranks end like the undisturbed training.
void ends_alike(const std::vector<Outcome>& all, Which optimizer = Which::adam) {
    for (const Outcome& one : all) {
        BOOST_TEST(one.refused == "");
        BOOST_TEST((one.hash == undisturbed(optimizer).back()));
        BOOST_TEST(one.updates == updates_in_all);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_resuming)

BOOST_AUTO_TEST_CASE(the_undisturbed_training) { // the reference of all other tests
    BOOST_TEST(undisturbed(Which::adam).size() == updates_in_all);
    BOOST_TEST((undisturbed(Which::adam)[5] != undisturbed(Which::adam).back()));
    ends_alike(train({.ranks = 3, .sharded = true}));
}

BOOST_AUTO_TEST_CASE(with_every_optimizer_within_an_epoch) {
    for (const Which optimizer : every_optimizer)
        for (const bool sharded : {false, true}) {
            BOOST_TEST_CONTEXT("optimizer " << static_cast<int>(optimizer) << ", sharded " << sharded) {
                const Folder folder;
                Case how{.ranks = 2, .sharded = sharded, .optimizer = optimizer, .folder = folder.path()};
                how.save_every = 6;
                how.stop_after = 6;
                const auto saved = train(how);
                BOOST_TEST_REQUIRE(saved[0].saved.size() == 1u);
                BOOST_TEST(saved[0].saved[0] == "checkpoint-000001-update-6");
                BOOST_TEST(saved[1].saved == saved[0].saved);
                how.resume = true;
                how.stop_after = 0;
                how.save_every = 0;
                const auto all = train(how);
                BOOST_TEST(all[1].resumed);
                BOOST_TEST(all[1].from.updates == 6u);
                BOOST_TEST((all[1].from.position == un::Position{un::Epoch{1}, 24}));
                ends_alike(all, optimizer);
            }
        }
}

// Saved by 1 to 4 ranks, each of which updates everything or its slices, and resumed by 1 to 4
// ranks of either kind.
BOOST_AUTO_TEST_CASE(on_other_ranks_with_other_sharding) {
    int ways = 0;
    for (const int before : {1, 2, 3, 4})
        for (const bool was_sharded : {false, true}) {
            const Folder folder;
            Case how{.ranks = before, .sharded = was_sharded, .folder = folder.path()};
            how.save_every = 6;
            how.stop_after = 6;
            train(how);
            how.resume = true;
            how.stop_after = 0;
            how.save_every = 0;
            for (how.ranks = 1; how.ranks <= 4; ++how.ranks)
                for (const bool sharded : {false, true}) {
                    how.sharded = sharded;
                    BOOST_TEST_CONTEXT("from " << before << " ranks, sharded " << was_sharded << ", to " << how.ranks
                                               << ", sharded " << sharded) {
                        const auto all = train(how);
                        BOOST_TEST(all[0].from.world == before);
                        ends_alike(all);
                        ++ways;
                    }
                }
        }
    BOOST_TEST(ways == 64);
}

BOOST_AUTO_TEST_CASE(at_any_update) {
    const Folder folder;
    Case how{.ranks = 2, .sharded = true, .folder = folder.path()};
    how.checkpoints.keep = 100;
    how.save_every = 1;
    const auto saved = train(how);
    ends_alike(saved);
    BOOST_TEST_REQUIRE(saved[0].saved.size() == updates_in_all);
    how.resume = true;
    how.save_every = 0;
    how.ranks = 3;
    for (std::size_t i = 0; i < updates_in_all; ++i) {
        how.name = saved[0].saved[i];
        const auto all = train(how);
        BOOST_TEST(all[0].from.updates == i + 1);
        BOOST_TEST(all[0].from.name == how.name);
        ends_alike(all);
    }
}

BOOST_AUTO_TEST_CASE(nothing_to_resume) {
    const Folder folder;
    const auto all = train({.ranks = 2, .folder = folder / "not/there", .resume = true});
    BOOST_TEST(!all[0].resumed);
    ends_alike(all);
    BOOST_TEST(!std::filesystem::exists(folder / "not")); // nothing was saved
}

BOOST_AUTO_TEST_CASE(in_the_background) {
    for (const int ranks : {1, 3}) {
        const Folder folder;
        Case how{
            .ranks = ranks, .sharded = true, .folder = folder / "a/b", .checkpoints = {.keep = 2, .background = true}};
        how.save_every = 2; // the parameters change while a thread writes
        ends_alike(train(how));
        BOOST_TEST(entries(how.folder) ==
                   (std::vector<std::string>{"checkpoint-000005-update-10", "checkpoint-000006-update-12"}));
        how.resume = true;
        how.save_every = 0;
        how.name = "checkpoint-000005-update-10";
        const auto all = train(how);
        BOOST_TEST(all[0].from.updates == 10u);
        ends_alike(all);
    }
}

BOOST_AUTO_TEST_CASE(some_are_kept) {
    const Folder folder;
    Case how{.ranks = 2, .folder = folder.path(), .checkpoints = {.keep = 2}};
    how.save_every = 5;
    // Not one of the library.
    std::filesystem::create_directory(folder / "checkpoint-000001-update-5.old");
    std::filesystem::create_directories(folder / "checkpoint-000009-update-5.writing");
    std::ofstream(folder / "checkpoint-000009-update-5.writing/rank-1.json") << "what a crash has left";
    std::filesystem::create_directories(folder / "checkpoint-000003-update-5");
    std::ofstream(folder / "checkpoint-000003-update-5/model-00001-of-00001.safetensors") << "half removed";
    std::filesystem::create_directories(folder / "checkpoint-000004-update-7");
    std::ofstream(folder / "checkpoint-000004-update-7/manifest.json") << "the oldest of all";
    std::ofstream(folder / "checkpoint-000004-update-7/notes.txt") << "a user's";
    train(how);
    BOOST_TEST(entries(folder.path()) ==
               (std::vector<std::string>{"checkpoint-000001-update-5.old", "checkpoint-000004-update-7",
                                         "checkpoint-000005-update-5", "checkpoint-000006-update-10"}));
    BOOST_TEST(entries(folder / "checkpoint-000004-update-7") == std::vector<std::string>{"notes.txt"});
    // After a resume from an older checkpoint, the newest one is the one saved last.
    how.resume = true;
    how.name = "checkpoint-000005-update-5";
    how.save_every = 7;
    how.stop_after = 7;
    train(how);
    how.name = "";
    how.save_every = how.stop_after = 0;
    const auto all = train(how);
    BOOST_TEST(all[0].from.name == "checkpoint-000007-update-7");
    ends_alike(all);
}

BOOST_AUTO_TEST_CASE(what_else_is_given_back) {
    const Folder folder;
    Case how{.ranks = 2, .folder = folder.path()};
    how.save_every = how.stop_after = 8; // the end of an epoch
    how.note = "line 1\n\"two\" \\ \xc3\xa4 \x01";
    const auto saved = train(how);
    how.resume = true;
    how.save_every = 0;
    how.ranks = 1;
    const auto all = train(how);
    BOOST_TEST(all[0].from.note == how.note);
    BOOST_TEST(all[0].from.seed == 5u);
    BOOST_TEST((all[0].from.position == un::Position{un::Epoch{2}, 0}));
    BOOST_TEST(all[0].from.policies.find("any of them") != std::string::npos);
    BOOST_TEST(all[0].buffer == saved[0].buffer); // rank 0's
    BOOST_TEST(all[0].buffer != 0);
    BOOST_TEST((all[0].hash == saved[0].hash));
    BOOST_TEST((all[0].hash == undisturbed(Which::adam)[7]));
}

BOOST_AUTO_TEST_CASE(what_must_be_as_it_was) {
    const Folder folder;
    const Case first{.ranks = 2, .folder = folder.path(), .save_every = 2, .stop_after = 8};
    train(first);
    Case how = first;
    how.resume = true;
    how.save_every = how.stop_after = 0;
    const auto refused = [&](const Case& one, const std::string& words) {
        try {
            for (const Outcome& rank : train(one)) {
                test::says(rank.refused, words);
                BOOST_TEST((rank.code == un::ErrorCode::bad_input || rank.code == un::ErrorCode::refused));
            }
        } catch (const un::error& failed) { // by `fit`: the world's
            BOOST_TEST(std::string(failed.what()).find(words) != std::string::npos, failed.what());
        }
    };
    const auto with = [&](auto change, const std::string& words) {
        Case one = how;
        change(one);
        refused(one, words);
        for (const Outcome& rank :
             one.resume&& one.seed == 5 && one.samples == 45 ? train(one) : std::vector<Outcome>())
            BOOST_TEST(rank.untouched);
    };
    with([](Case& one) { one.optimizer = Which::rmsprop; },
         "found the optimizer's state of any of them [exp_avg, exp_avg_sq]; expected that of any of them [square_avg, "
         "momentum_buffer, grad_avg]");
    with([](Case& one) { one.inputs = 7; }, "found parameter \"hidden.weight\" of F32 [5,6]; expected F32 [5,7]");
    with([](Case& one) { one.names_parameters = false; },
         "found parameter 0 with the name \"hidden.weight\"; expected \"hidden.weights\"");
    with([](Case& one) { one.name = "checkpoint-000009-update-6"; }, "checkpoint-000009-update-6': No such");
    with([](Case& one) { one.name = "../../etc"; }, "'../../etc' is no checkpoint's name");
    const auto inside = [&](auto change, const std::string& words) {
        with([&](Case& one) { one.name = "checkpoint-000003-update-6", change(one); }, words);
    };
    inside([](Case& one) { one.sampler_seed = 4; },
           "its position is sample 24 of epoch 1 in the order of DistributedSampler "
           "(seed 3, shuffled); expected the order of this trainer's "
           "DistributedSampler (seed 4, shuffled)");
    inside([](Case& one) { one.seed = 6; }, "FitOptions.seed is 6; expected 5");
    inside([](Case& one) { one.samples = 44; }, "data.size() is 44; expected 45");
    // Between epochs the order may change. The seed of random numbers may not.
    how.sampler_seed = 4;
    BOOST_TEST(train(how)[0].refused == "");
    how.sampler_seed = 3;
    with([](Case& one) { one.seed = 6; }, "FitOptions.seed is 6; expected 5");
    ends_alike(train(how));
}

BOOST_AUTO_TEST_CASE(a_folder_has_one_training) {
    const Folder folder;
    un::detail::CheckpointFolder other(folder.path());
    other.lock();
    for (const bool background : {false, true}) {
        const auto all =
            train({.ranks = 2, .folder = folder.path(), .checkpoints = {.background = background}, .save_every = 3});
        for (const Outcome& one : all)
            test::says(one.refused, "rank 0: '" + folder.path() + "' is in use by another training");
    }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_told_to_all) {
    for (const bool background : {false, true}) {
        const Folder folder;
        Case how{.ranks = 3,
                 .sharded = true,
                 .folder = folder.path(),
                 .checkpoints = {.background = background, .refuse_foreign = true},
                 .save_every = 3};
        // After the first save, a file appears where rank 0 wants to make a folder. (kills.cpp has
        // a rank whose disk is full.)
        const auto all = train(how, [&](int rank, const std::string&) {
            if (rank != 1) return;
            const std::string next = folder / "checkpoint-000002-update-6.writing";
            std::ofstream{next};
        });
        for (const Outcome& one : all) {
            test::says(one.refused, "rank 0: '");
            test::says(one.refused, "checkpoint-000002-update-6.writing");
            BOOST_TEST(one.saved.size() == 1u);
        }
        std::filesystem::remove(folder / "checkpoint-000002-update-6.writing");
        how.resume = true;
        how.save_every = 4;
        const auto on = train(how);
        BOOST_TEST(on[0].from.updates == 3u);
        ends_alike(on);
    }
}

BOOST_AUTO_TEST_SUITE_END()
