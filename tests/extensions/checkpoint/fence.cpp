// Who may write into a folder of checkpoints, if several processes want to: trainings, and the
// writers of successive memberships of one elastic world.
#include "../../support/folder.hpp"
#include "renames.hpp"

#include <unisono/extensions/checkpoint/folder.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using unisono_test::before_a_rename;
using unisono_test::Folder;

namespace {
enum class Locks { all, of_files, none } locks = Locks::all;
} // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" // a struct has the same name
/// In place of the C library's.
extern "C" int flock(int file, int how) noexcept {
    struct stat facts {};
    if (locks == Locks::none) return errno = ENOLCK, -1;
    if (locks == Locks::of_files && ::fstat(file, &facts) == 0 && S_ISDIR(facts.st_mode)) return 0;
    return static_cast<int>(::syscall(SYS_flock, file, how));
}
#pragma GCC diagnostic pop

namespace {

using un::detail::CheckpointFolder;

template <class Call>
void expect_refused(Call call, const std::string& words) {
    std::string why = "nothing was refused";
    try {
        call();
    } catch (const un::error& failed) {
        if (failed.code() == un::ErrorCode::refused) why = failed.why().message;
    }
    BOOST_TEST(why.find(words) != std::string::npos, why << "; expected: " << words);
}

const std::string first = un::detail::checkpoint_name(1, 5), second = un::detail::checkpoint_name(2, 7);

/// The name of a checkpoint of job 7 that is not complete.
std::string writing(const std::string& name, int term) {
    return name + ".0000000000000007-" + std::to_string(term) + ".writing";
}

bool has(const Folder& folder, const std::string& name) {
    const auto names = folder.names();
    return std::find(names.begin(), names.end(), name) != names.end();
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_fence)

/// The writer of an older membership lives on, stopped or cut off, and holds the folder.
BOOST_AUTO_TEST_CASE(the_next_membership_takes_the_folder) {
    const Folder folder;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 1});
    older.make_writing(first);
    newer.lock({7, 3});
    newer.clean();
    BOOST_TEST(!has(folder, writing(first, 1)));
    const std::string why = "is written by membership 3 of this elastic world; this rank is in membership 1";
    expect_refused([&] { older.finish_writing(first); }, why);
    expect_refused([&] { older.make_writing(second); }, why);
    expect_refused([&] { older.prune(1); }, why);
    for (const std::uint64_t term : {1u, 2u}) expect_refused([&] { older.lock({7, term}); }, "membership 3");
    newer.make_writing(second);
    newer.finish_writing(second);
    BOOST_TEST(has(folder, second));
    newer.lock({7, 3}); // again, and in a later membership with the same writer
    newer.lock({7, 4});
    newer.make_writing(first);
    newer.finish_writing(first);
    BOOST_TEST(has(folder, first));
}

/// The older writer is stopped between its look at the folder and the step that completes its
/// checkpoint. The newer one takes the unfinished checkpoint away, so that step fails.
BOOST_AUTO_TEST_CASE(an_older_checkpoint_is_complete_before_or_never) {
    const Folder folder;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 0});
    older.make_writing(first);
    newer.lock({7, 1});
    newer.clean();
    const auto here = un::detail::open_folder(folder.path());
    expect_refused([&] { un::detail::move_in(here, writing(first, 0), first); }, "No such file");
    BOOST_TEST(!has(folder, first));
}

/// The older writer completes its checkpoint when the newer one is about to take it away. Then the
/// newer one's has the next number, since `resume` takes the greatest.
BOOST_AUTO_TEST_CASE(a_number_is_given_once) {
    const Folder folder;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 0});
    BOOST_TEST(older.begin(950) == un::detail::checkpoint_name(1, 950));
    newer.lock({7, 1});
    before_a_rename([&] {
        std::filesystem::rename(folder / writing(un::detail::checkpoint_name(1, 950), 0),
                                folder / un::detail::checkpoint_name(1, 950));
    });
    const std::string name = newer.begin(1000);
    newer.finish_writing(name);
    BOOST_TEST(name == un::detail::checkpoint_name(2, 1000));
    BOOST_TEST(newer.all().back() == name);
}

/// As earlier versions may have left them.
BOOST_AUTO_TEST_CASE(equal_numbers_are_ordered_by_updates) {
    const Folder folder;
    const auto name = [](std::uint64_t updates) { return un::detail::checkpoint_name(1, updates); };
    for (const std::uint64_t updates : {1000u, 950u, 1010u}) std::filesystem::create_directory(folder / name(updates));
    BOOST_TEST((CheckpointFolder(folder.path()).all() == std::vector{name(950), name(1000), name(1010)}));
}

/// What a crash has left of a checkpoint that was being taken away is removed later.
BOOST_AUTO_TEST_CASE(remains_of_a_crash) {
    for (const un::detail::CheckpointWriter writer : {un::detail::CheckpointWriter{}, {7, 2}}) {
        const Folder folder;
        {
            CheckpointFolder crashed(folder.path());
            crashed.lock({7, 1});
            crashed.make_writing(first);
            crashed.make_writing(second);
        }
        const auto here = un::detail::open_folder(folder.path());
        un::detail::move_in(here, writing(first, 1), writing(first, 1) + ".taken");
        CheckpointFolder next(folder.path());
        next.lock(writer);
        next.clean();
        BOOST_TEST(folder.names().empty());
    }
}

BOOST_AUTO_TEST_CASE(a_folder_belongs_to_one_job) {
    const Folder folder;
    const std::string why = "' is in use by another training";
    std::optional<CheckpointFolder> elastic(folder.path()), other(folder.path()), plain(folder.path());
    elastic->lock({7, 5});
    expect_refused([&] { other->lock({8, 9}); }, why);
    expect_refused([&] { plain->lock(); }, why);
    elastic.reset(); // it has ended
    other->lock({8, 0});
    expect_refused([&] { plain->lock(); }, why);
    elastic.emplace(folder.path());
    expect_refused([&] { elastic->lock({7, 6}); }, why);
    other.reset();
    plain->lock();
    expect_refused([&] { elastic->lock({7, 6}); }, why);
    BOOST_TEST(un::detail::names_in(folder.path()) == std::vector<std::string>{".writer-0000000000000000-0"});
    plain.reset();
    elastic->lock({7, 6});
}

/// A file that cannot be opened, as that of another user: here a link, which is not followed. Its
/// training may live, so its file stays. The error names the file.
BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_opened_is_not_removed) {
    for (const std::string job : {"3", "9"}) {
        const Folder folder;
        const std::string file = ".writer-000000000000000" + job + "-5";
        std::filesystem::create_symlink("nothing", folder / file);
        CheckpointFolder other(folder.path());
        expect_refused(
            [&] {
                other.lock({7, 0});
            },
            "in use by another training; expected a folder of its own for each training. It has the file '" +
                (folder / file) + "' (open: ");
        BOOST_TEST(un::detail::names_in(folder.path()) == std::vector<std::string>{file});
        std::filesystem::remove(folder / file);
        other.lock({7, 0});
    }
}

/// A server of files may keep the lock of a host that has died.
BOOST_AUTO_TEST_CASE(the_error_names_the_file_that_is_locked) {
    const Folder folder;
    const std::string file = ".writer-0000000000000007-5";
    CheckpointFolder dead(folder.path()), next(folder.path());
    dead.lock({7, 5});
    expect_refused(
        [&] {
            next.lock({8, 0});
        },
        "It has the file '" + (folder / file) + "'; if its host has died, remove that file");
    BOOST_TEST_REQUIRE(std::filesystem::remove(folder / file));
    next.lock({8, 0});
    expect_refused([&] { dead.make_writing(first); }, "in use by another training");
    next.make_writing(first);
}

/// Two objects of one rank write to the same folder.
BOOST_AUTO_TEST_CASE(two_objects_of_one_rank) {
    const Folder folder;
    std::optional<CheckpointFolder> one(folder.path()), other(folder.path());
    one->lock({7, 1});
    expect_refused([&] { other->lock({7, 1}); }, "another Checkpoints object of this rank writes to");
    one->make_writing(first);
    one->finish_writing(first);
    one.reset();
    other->lock({7, 1});
    other->make_writing(second);
    other->finish_writing(second);
    BOOST_TEST(has(folder, second));
}

/// The older writer stops when it is about to remove what crashes have left, and goes on later.
BOOST_AUTO_TEST_CASE(an_older_writer_removes_nothing_of_a_later_one) {
    const Folder folder;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 1});
    newer.lock({7, 3});
    newer.clean();
    newer.make_writing(first);
    older.clean();
    newer.finish_writing(first);
    BOOST_TEST(has(folder, first));
}

BOOST_AUTO_TEST_CASE(names_that_others_have_taken) {
    const Folder folder;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 1});
    older.make_writing(first);
    const std::string taken = writing(first, 1) + ".taken";
    std::filesystem::create_directory(folder / taken);
    std::ofstream(folder / (taken + "/notes.txt")) << "mine";
    newer.lock({7, 3});
    expect_refused([&] { newer.clean(); }, "' contains files that no training has made");
    std::filesystem::remove_all(folder / taken);
    newer.clean();
    newer.make_writing(second);
    std::filesystem::create_directory(folder / second);
    expect_refused([&] { newer.finish_writing(second); }, "' has appeared while this training wrote");
}

/// On NFS the lock of a folder holds on one host only. Trainings on two hosts see each other by
/// their files.
BOOST_AUTO_TEST_CASE(a_folder_on_several_hosts) {
    const Folder folder;
    const std::string why = "' is in use by another training";
    locks = Locks::of_files;
    std::optional<CheckpointFolder> plain(folder.path()), other(folder.path()), elastic(folder.path());
    plain->lock();
    plain->make_writing(first);
    expect_refused([&] { other->lock(); }, why);
    expect_refused([&] { elastic->lock({7, 1}); }, why);
    plain->finish_writing(first);
    plain.reset(); // it has ended
    other->lock();
    expect_refused([&] { elastic->lock({7, 1}); }, why);
    other.reset();
    elastic->lock({7, 1});
    plain.emplace(folder.path());
    expect_refused([&] { plain->lock(); }, why);
    elastic->make_writing(second);
    elastic->finish_writing(second);
    elastic.reset();
    plain->lock();
    locks = Locks::all;
}

/// A file system without locks is no reason to refuse, and the latest membership still writes.
BOOST_AUTO_TEST_CASE(without_locks) {
    const Folder folder;
    locks = Locks::none;
    CheckpointFolder older(folder.path()), newer(folder.path());
    older.lock({7, 1});
    newer.lock({7, 3});
    expect_refused([&] { older.make_writing(first); }, "is written by membership 3 of this elastic world");
    CheckpointFolder plain(folder.path());
    plain.lock();
    locks = Locks::all;
}

BOOST_AUTO_TEST_SUITE_END()
