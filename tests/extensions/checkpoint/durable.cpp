// What is on disk when a checkpoint gets its name. The program's own fsync and rename, which the
// library calls instead of the system's, record it, and may answer as other file systems do.
#include "heard.hpp"
#include "renames.hpp"
#include "support/fails.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/checkpoints.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace un = unisono;
namespace fs = std::filesystem;
using namespace unisono_test;

namespace {

std::set<std::string> names_in(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& one : fs::directory_iterator(folder)) names.insert(one.path().filename());
    return names;
}

std::string path_of(int descriptor) { return fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor)); }

/// What the file system has on disk. It forgets everything else if the machine loses power.
class Disk {
public:
    std::atomic<bool> watches = false;
    std::atomic<int> folders = 0; ///< the error of fsync of a folder

    void synced(int descriptor, const struct stat& facts) {
        const std::lock_guard lock(mutex_);
        if (S_ISDIR(facts.st_mode)) names_[path_of(descriptor)] = names_in(path_of(descriptor));
        else files_[facts.st_ino] = facts.st_size;
    }
    /// A checkpoint gets its name.
    void renamed(const std::string& folder) {
        const std::lock_guard lock(mutex_);
        ++renames_;
        for (const std::string& name : names_in(folder)) {
            struct stat facts {};
            if (::stat((folder + "/" + name).c_str(), &facts) != 0) lost_.push_back(name + " itself");
            const auto file = files_.find(facts.st_ino);
            if (file == files_.end() || file->second != facts.st_size) lost_.push_back("the contents of " + name);
            if (!names_[folder].contains(name)) lost_.push_back("the name of " + name);
        }
    }
    [[nodiscard]] std::set<std::string> names(const std::string& folder) {
        const std::lock_guard lock(mutex_);
        return names_[folder];
    }
    /// What the checkpoints would have lost.
    [[nodiscard]] std::vector<std::string> lost() {
        const std::lock_guard lock(mutex_);
        return lost_;
    }
    [[nodiscard]] std::size_t renames() {
        const std::lock_guard lock(mutex_);
        return renames_;
    }
    void forget() {
        const std::lock_guard lock(mutex_);
        files_.clear(), names_.clear(), lost_.clear();
        renames_ = 0;
    }

private:
    std::mutex mutex_;
    std::map<ino_t, off_t> files_;                       ///< sizes
    std::map<std::string, std::set<std::string>> names_; ///< of the entries of folders
    std::vector<std::string> lost_;
    std::size_t renames_ = 0;
};
Disk disk;

/// During its life the disk is watched.
struct Watched {
    explicit Watched(int folders = 0) {
        disk.forget();
        disk.folders = folders;
        disk.watches = true;
    }
    Watched(const Watched&) = delete;
    ~Watched() { disk.watches = false; }
};

std::function<void()> waiting; ///< see before_a_rename

} // namespace

void unisono_test::before_a_rename(std::function<void()> call) { waiting = std::move(call); }

extern "C" int fsync(int descriptor) {
    struct stat facts {};
    const bool watches = disk.watches && ::fstat(descriptor, &facts) == 0;
    if (watches && S_ISDIR(facts.st_mode) && disk.folders != 0) return errno = disk.folders, -1;
    if (::syscall(SYS_fsync, descriptor) != 0) return -1;
    if (watches) disk.synced(descriptor, facts);
    return 0;
}

extern "C" int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
    if (waiting) std::exchange(waiting, nullptr)();
    if (disk.watches && std::string_view(from).ends_with(".writing")) disk.renamed(path_of(from_folder) + "/" + from);
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}

BOOST_AUTO_TEST_SUITE(checkpoint_durable)

BOOST_AUTO_TEST_CASE(all_is_on_disk_before_a_checkpoint_gets_its_name_and_the_name_before_save_returns) {
    for (const bool background : {false, true}) {
        const Folder folder;
        const std::string path = folder / "new/folder";
        const Watched watched;
        const auto all = train({.ranks = 2,
                                .sharded = true,
                                .folder = path,
                                .checkpoints = {.keep = 9, .background = background},
                                .save_every = 3},
                               [&](int rank, const std::string& name) {
                                   if (rank != 0 || background) return;
                                   const auto names = disk.names(path);
                                   BOOST_TEST(names.contains(name));
                                   BOOST_TEST(!names.contains(name + ".writing"));
                               });
        BOOST_TEST(all[0].refused == "");
        BOOST_TEST(all[0].saved.size() == 4u);
        BOOST_TEST(disk.renames() == 4u);
        BOOST_TEST(disk.lost() == std::vector<std::string>{}, boost::test_tools::per_element());
        for (const std::string& name : all[0].saved) BOOST_TEST(disk.names(path).contains(name));
        // So are the folders above.
        BOOST_TEST(disk.names(folder.path()).contains("new"));
        BOOST_TEST(disk.names(folder / "new").contains("folder"));
    }
}

/// Shares of other computers and file systems in user space may answer so. One line says it.
BOOST_AUTO_TEST_CASE(a_file_system_that_cannot_sync_folders_has_checkpoints) {
    std::size_t lines = 0;
    for (const int answer : {EINVAL, ENOSYS, ENOTSUP}) {
        const Folder folder;
        Heard heard;
        {
            const Watched watched(answer);
            const auto all = train({.ranks = 2, .sharded = true, .folder = folder.path(), .save_every = 3});
            BOOST_TEST(all[0].refused == "");
            BOOST_TEST(all[0].saved.size() == 4u);
        }
        const std::string text = heard.end();
        lines += times(text, "unisono: warning: the file system cannot write '" + folder.path());
        BOOST_TEST(
            (train({.ranks = 3, .folder = folder.path(), .resume = true})[0].hash == undisturbed(Which::adam).back()));
    }
    BOOST_TEST(lines == 1u);
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_is_an_error) {
    const Folder folder;
    const Watched watched(EIO);
    for (const Outcome& one : train({.ranks = 2, .folder = folder.path(), .save_every = 3})) {
        test::says(one.refused, "cannot write to disk '" + folder.path());
        BOOST_TEST(one.saved.empty());
    }
}

/// A rank that writes too little, or what another rank writes, makes no checkpoint, and no older
/// one is removed.
BOOST_AUTO_TEST_CASE(a_checkpoint_without_some_numbers_replaces_nothing) {
    using namespace un::detail;
    const Folder folder;
    CheckpointFolder checkpoints(folder.path());
    checkpoints.lock();
    const std::vector<float> numbers(8);
    const un::Tensor whole{.name = "w", .type = "F32", .shape = {8}};
    const auto part = [&](std::uint64_t first, std::uint64_t count) {
        return StatePart{.saved = {.tensor = "w" + std::to_string(first), .first = first, .count = count},
                         .data = {.tensor = {.name = "w" + std::to_string(first), .type = "F32", .shape = {count}},
                                  .data = numbers.data()}};
    };
    const auto write = [&](const std::string& name, std::vector<StatePart> parts) {
        checkpoints.make_writing(name);
        Manifest head;
        head.parameters = {whole};
        CheckpointWriting writing(checkpoints, std::move(head), 0, std::move(parts), {});
        writing.set_name(name);
        writing.write_own();
        writing.commit(1, std::chrono::seconds(1));
    };
    const std::string good = checkpoint_name(1, 0);
    write(good, {part(0, 3), part(3, 5)});
    const auto refused = [&](std::vector<StatePart> parts, const std::string& words) {
        test::fails({words}, [&] { write(checkpoint_name(2, 0), std::move(parts)); });
        BOOST_TEST(checkpoints.all() == std::vector<std::string>{good});
        BOOST_TEST(checkpoints.is_whole(good));
        checkpoints.clean();
    };
    refused({part(0, 3)}, "found a gap or a repetition at element 3 of 8");
    refused({part(0, 3), part(4, 4)}, "found a gap or a repetition at element 3 of 8");
    refused({part(0, 4), part(3, 5)}, "found a gap or a repetition at element 4 of 8");
}

/// A relative path belongs to the folder in which the program was when the object was made.
BOOST_AUTO_TEST_CASE(the_program_changes_its_folder) {
    for (const bool background : {false, true}) {
        const Folder folder, other;
        const std::string before = fs::current_path();
        fs::current_path(folder.path());
        const auto all =
            train({.ranks = 2, .folder = "relative", .checkpoints = {.background = background}, .save_every = 3},
                  [&](int rank, const std::string&) {
                      if (rank == 0) fs::current_path(other.path());
                  });
        fs::current_path(before);
        BOOST_TEST(all[0].refused == "");
        BOOST_TEST(other.is_empty());
        BOOST_TEST(un::Checkpoints(folder / "relative").list().size() == 3u); // CheckpointOptions.keep
    }
}

BOOST_AUTO_TEST_SUITE_END()
