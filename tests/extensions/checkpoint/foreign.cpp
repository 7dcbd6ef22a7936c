// Files with a checkpoint's name that no training made. A planted link is not followed, and its
// target is not touched.
#include "heard.hpp"
#include "support/fails.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/checkpoints.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace un = unisono;
namespace fs = std::filesystem;
using namespace unisono_test;

namespace {

/// A folder of another user, with the files that a checkpoint has.
struct Victim {
    Folder folder;
    std::vector<std::string> files = {"manifest.json", "model-00001-of-00002.safetensors", "rank-0.json", "thesis.tex"};

    Victim() {
        for (const std::string& file : files) std::ofstream(folder / file) << "precious";
    }
    void check() const {
        std::vector<std::string> found;
        for (const auto& one : fs::directory_iterator(folder.path())) found.push_back(one.path().filename());
        std::sort(found.begin(), found.end());
        BOOST_TEST(found == files, boost::test_tools::per_element());
        for (const std::string& file : files) BOOST_TEST(fs::file_size(folder / file) == 8u, file);
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_foreign)

BOOST_AUTO_TEST_CASE(a_link_where_a_checkpoint_is_to_be_written_is_not_followed) {
    for (const bool background : {false, true}) {
        const Victim victim;
        const Folder folder;
        // The name of the first save, and a name that looks like the remains of a crash.
        const std::vector<std::string> planted = {"checkpoint-000001-update-3.writing",
                                                  "checkpoint-000077-update-5.writing"};
        for (const std::string& name : planted) fs::create_directory_symlink(victim.folder.path(), folder / name);
        Heard heard;
        const auto all = train({.ranks = 2,
                                .sharded = true,
                                .folder = folder.path(),
                                .checkpoints = {.background = background},
                                .save_every = 3});
        const std::string text = heard.end();
        victim.check();
        for (const Outcome& one : all) {
            BOOST_TEST(one.refused == "");
            BOOST_TEST(one.saved.size() > 1u);
            BOOST_TEST(one.saved[0] == "checkpoint-000002-update-3");
        }
        BOOST_TEST((all[0].hash == undisturbed(Which::adam).back()));
        for (const std::string& name : planted) {
            BOOST_TEST(fs::is_symlink(folder / name));
            BOOST_TEST(times(text, "'" + (folder / name) + "' is a symbolic link") == 1u,
                       text); // once, whatever is saved
        }
        BOOST_TEST(
            (train({.ranks = 3, .folder = folder.path(), .resume = true})[0].hash == undisturbed(Which::adam).back()));
        victim.check();
    }
}

BOOST_AUTO_TEST_CASE(an_old_checkpoint_that_is_a_link_is_not_emptied) {
    const Victim victim;
    const Folder folder;
    fs::create_directory_symlink(victim.folder.path(), folder / "checkpoint-000001-update-1");
    Heard heard;
    const auto all = train({.ranks = 2, .folder = folder.path(), .checkpoints = {.keep = 1}, .save_every = 3});
    const std::string text = heard.end();
    victim.check();
    BOOST_TEST(all[0].refused == "");
    BOOST_TEST(fs::is_symlink(folder / "checkpoint-000001-update-1"));
    BOOST_TEST(times(text, "checkpoint-000001-update-1' is a symbolic link") == 1u, text);
    // Checkpoints of the training are pruned as before.
    BOOST_TEST(!fs::exists(folder / all[0].saved.at(0)));
    BOOST_TEST(fs::exists(folder / all[0].saved.back()));
}

BOOST_AUTO_TEST_CASE(it_is_an_error_on_all_ranks_where_that_is_asked) {
    const Victim victim;
    const Folder folder;
    fs::create_directory_symlink(victim.folder.path(), folder / "checkpoint-000001-update-3.writing");
    const auto all =
        train({.ranks = 2, .folder = folder.path(), .checkpoints = {.refuse_foreign = true}, .save_every = 3});
    for (const Outcome& one : all) {
        test::says(one.refused, "checkpoint-000001-update-3.writing' is a symbolic link");
        test::says(one.refused, "rank 0");
        BOOST_TEST(one.saved.empty());
    }
    victim.check();
}

// Nothing outside of the folder is read: neither a checkpoint nor a file in it may be a link, also
// if its target is a good file.
BOOST_AUTO_TEST_CASE(a_link_is_not_read) {
    const Folder folder, elsewhere;
    const auto all = train({.ranks = 2, .sharded = true, .folder = folder.path(), .save_every = 6, .stop_after = 6});
    const std::string name = all[0].saved.at(0), path = folder / name;
    std::vector<std::string> files = {""}; // the folder itself
    for (const auto& one : fs::directory_iterator(path)) files.push_back("/" + one.path().filename().string());
    BOOST_TEST(files.size() == 6u);
    for (const std::string& file : files) {
        fs::rename(path + file, elsewhere / "away");
        if (file.empty()) fs::create_directory_symlink(elsewhere / "away", path);
        else fs::create_symlink(elsewhere / "away", path + file);
        for (const std::string& wanted : {std::string(), name})
            for (const Outcome& one : train({.ranks = 3, .folder = folder.path(), .resume = true, .name = wanted})) {
                test::says(one.refused, "cannot open '" + path + file + "': it is a symbolic link; expected the ");
                BOOST_TEST((one.code == un::ErrorCode::refused));
                BOOST_TEST(one.untouched);
            }
        BOOST_TEST(un::Checkpoints(folder.path()).list().size() == (file.empty() ? 0u : 1u));
        fs::remove(path + file);
        fs::rename(elsewhere / "away", path + file);
    }
    // The user's own folder may be a link.
    fs::create_directory_symlink(folder.path(), elsewhere / "link");
    BOOST_TEST(train({.ranks = 3, .folder = elsewhere / "link", .resume = true})[0].refused == "");
}

// The folder is opened before it is written to. Another folder in its place gets nothing.
BOOST_AUTO_TEST_CASE(a_link_inside_of_the_folder_is_not_written_through) {
    const Victim victim;
    const Folder folder;
    const std::string leftover = folder / "checkpoint-000005-update-9.writing";
    fs::create_directory(leftover);
    fs::create_symlink(victim.folder / "thesis.tex", leftover + "/rank-1.json");
    fs::create_symlink(victim.folder / "thesis.tex", leftover + "/model-00001-of-00002.safetensors");
    const auto all = train({.ranks = 2, .folder = folder.path(), .save_every = 3});
    BOOST_TEST(all[0].refused == "");
    BOOST_TEST(!fs::exists(leftover)); // the links are removed, and their targets stay
    victim.check();
}

BOOST_AUTO_TEST_SUITE_END()
