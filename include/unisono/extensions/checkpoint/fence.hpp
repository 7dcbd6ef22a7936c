#pragma once

/// \file
/// The right to write into a folder of checkpoints, which one training has.
///
/// A training that is not elastic holds an exclusive lock of the folder as long as it lives. It
/// also locks a file in it, named as those below with job 0: on NFS the lock of a folder holds on
/// one host only, that of a file on all.
///
/// In an elastic world the writer of an older membership may live on, stopped or cut off, when the
/// next membership wants to write. So its writers hold a shared lock of the folder, and the latest
/// membership writes: its writer makes a file `.writer-<job>-<term>`, which no older one can
/// prevent, and locks that file. A writer that finds a file with a higher term of its job, or does
/// not find its own file, writes no more. A locked file of another job belongs to a training that
/// lives. No writer waits for another one of its job, since that may be stopped at any moment.
///
/// Between a writer's look and its step a later membership may have begun. So the later one first
/// makes its file, and then takes away the folders of unfinished checkpoints by renaming them
/// (CheckpointFolder::clean). The step that completes a checkpoint renames the same folder. One of
/// the two fails. The names of these folders contain the term, so no writer takes away those of a
/// later one.

#include "unisono/extensions/checkpoint/file.hpp"

#include <cstdint>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The writer of checkpoints. Job 0: a training that is not elastic.
struct CheckpointWriter {
    std::uint64_t job = 0, term = 0; ///< of an elastic world: its number, and the epoch of its membership
    friend bool operator==(const CheckpointWriter&, const CheckpointWriter&) = default;
};

/// "0000000000000007-3" of job 7 in membership 3.
std::string writer_text(const CheckpointWriter& writer);
/// Returns false if it is not the text of a writer.
bool parse_writer(const std::string& text, CheckpointWriter& found);

class CheckpointFence {
public:
    /// Makes the folder, and keeps others from writing there during this object's lifetime, or
    /// until a later membership takes it. If the file system has no locks, says so once on standard
    /// error. \throws error refused: another training, another object of this rank, or a later
    /// membership writes there
    void take(const std::string& path, const CheckpointWriter& writer);
    /// \throws error refused: a later membership writes there
    void check() const;
    [[nodiscard]] bool is_shared() const { return writer_.job != 0; }
    [[nodiscard]] const CheckpointWriter& writer() const { return writer_; }
    [[nodiscard]] const Descriptor& folder() const { return folder_; }

private:
    static std::string name_of(const CheckpointWriter& writer) { return ".writer-" + writer_text(writer); }
    /// Returns false if it is not the name of such a file.
    static bool parse(const std::string& name, CheckpointWriter& found) {
        return name.starts_with(".writer-") && parse_writer(name.substr(8), found);
    }
    /// Returns false if another process, or another object of this one, holds the lock.
    static bool lock(int file, int how, const std::string& path);
    /// `file`: that of the other training, if it is known; `why`: it cannot be opened.
    [[noreturn]] static void refuse(const std::string& path, const std::string& file = {}, int why = 0);
    static void check_term(const Descriptor& folder, const CheckpointWriter& writer);
    /// Removes the files of trainings that have ended, and of older memberships.
    /// \throws error refused: another training lives
    static void remove_others(const Descriptor& folder, const CheckpointWriter& writer);

    Descriptor folder_;
    FileDescriptor made_; ///< this writer's file, locked
    CheckpointWriter writer_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string writer_text(const CheckpointWriter& writer) {
    char text[64];
    static_cast<void>(std::snprintf(text, sizeof text, "%016llx-%llu", static_cast<unsigned long long>(writer.job),
                                    static_cast<unsigned long long>(writer.term)));
    return text;
}
UNISONO_DEFINITION bool parse_writer(const std::string& text, CheckpointWriter& found) {
    unsigned long long job = 0, term = 0;
    if (std::sscanf(text.c_str(), "%16llx-%llu", &job, &term) != 2) return false;
    found = {job, term};
    return writer_text(found) == text;
}
UNISONO_DEFINITION bool CheckpointFence::lock(int file, int how, const std::string& path) {
    while (::flock(file, how | LOCK_NB) != 0) {
        const int why = errno;
        if (why == EINTR) continue;
        if (why == EWOULDBLOCK) return false;
        static std::atomic<bool> told = false;
        if (!told.exchange(true))
            static_cast<void>(std::fputs(concat({"unisono: warning: the file system cannot lock '", path,
                                                 "' (flock: ", std::generic_category().message(why),
                                                 "); nothing keeps two trainings from writing checkpoints there, so "
                                                 "give each a folder of its own\n"})
                                             .c_str(),
                                         stderr));
        break;
    }
    return true;
}
UNISONO_DEFINITION void CheckpointFence::refuse(const std::string& path, const std::string& file, int why) {
    const std::string reason =
        why == 0 ? std::string() : concat({" (open: ", std::generic_category().message(why), ")"});
    const std::string holder =
        file.empty() ? file
                     : concat({". It has the file '", file, "'", reason, "; if its host has died, remove that file"});
    throw error(
        ErrorCode::refused,
        concat({"'", path, "' is in use by another training; expected a folder of its own for each training", holder}));
}

UNISONO_DEFINITION void CheckpointFence::take(const std::string& path, const CheckpointWriter& writer) {
    if (folder_.is_open() && writer == writer_) return check();
    if (writer.job != writer_.job) *this = {};
    if (!folder_.is_open()) make_durable_folders(path);
    Descriptor folder = open_folder(path);
    if (!lock(folder.number(), writer.job == 0 ? LOCK_EX : LOCK_SH, path)) refuse(path);
    check_term(folder, writer);
    const std::string name = name_of(writer), where = concat({path, "/", name});
    constexpr int flags = O_CLOEXEC | O_NOFOLLOW;
    FileDescriptor made(::openat(folder.number(), name.c_str(), O_RDWR | O_CREAT | flags, 0666));
    if (!made.valid() && errno == EACCES) // another user's, of a training before
        made = FileDescriptor(::openat(folder.number(), name.c_str(), O_RDONLY | flags));
    if (!made.valid()) refuse_path("make", where, errno);
    if (!lock(made.get(), LOCK_EX, where)) {
        if (writer.job == 0) refuse(path, where);
        throw error(ErrorCode::refused, concat({"another Checkpoints object of this rank writes to '", path,
                                                "'; expected one object for each folder, or a folder of its own for "
                                                "each"}));
    }
    folder.sync();
    check_term(folder, writer);
    try {
        remove_others(folder, writer);
    } catch (...) {
        if (writer.job != 0) static_cast<void>(remove_in(folder, name));
        throw;
    }
    folder_ = std::move(folder);
    made_ = std::move(made);
    writer_ = writer;
    check();
}

UNISONO_DEFINITION void CheckpointFence::check() const {
    if (!is_shared()) return;
    check_term(folder_, writer_);
    if (!exists_in(folder_, name_of(writer_))) refuse(folder_.path());
}
UNISONO_DEFINITION void CheckpointFence::check_term(const Descriptor& folder, const CheckpointWriter& writer) {
    CheckpointWriter other;
    for (const std::string& name : names_in(folder))
        if (parse(name, other) && other.job == writer.job && other.term > writer.term)
            throw error(ErrorCode::refused, concat({"'", folder.path(), "' is written by membership ", other.term,
                                                    " of this elastic world; this rank is in membership ", writer.term,
                                                    ", which that one has left behind"}));
}
UNISONO_DEFINITION void CheckpointFence::remove_others(const Descriptor& folder, const CheckpointWriter& writer) {
    int why = 0;
    const auto lives = [&](const std::string& name) {
        why = 0;
        const FileDescriptor file(::openat(folder.number(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (file.valid()) return !lock(file.get(), LOCK_SH, concat({folder.path(), "/", name}));
        why = errno;
        return why != ENOENT;
    };
    CheckpointWriter other;
    for (const std::string& name : names_in(folder)) {
        if (!parse(name, other) || other == writer) continue;
        if (other.job == writer.job) {
            if (other.term < writer.term) static_cast<void>(remove_in(folder, name)); // a later one's stays
            continue;
        }
        // If two trainings begin at the same time, the one with the higher number gives way.
        for (int attempt = 0; lives(name); ++attempt) {
            if (why != EINTR && (attempt >= 50 || other.job < writer.job))
                refuse(folder.path(), concat({folder.path(), "/", name}), why);
            sleep_for(2'000'000);
        }
        static_cast<void>(remove_in(folder, name));
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
