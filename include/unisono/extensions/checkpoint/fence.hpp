#pragma once

/// \file
/// The right to write into a folder of checkpoints, which one training has.
///
/// A training that is not elastic holds an exclusive lock of the folder as long as it lives. In an
/// elastic world the writer of an older membership may live on, stopped or cut off, when the next
/// membership wants to write. So the lock belongs to the job: its writers hold a shared one. Among
/// them the latest membership writes: it makes a file `.writer-<job>-<term>`, which nothing can
/// prevent, and a writer that finds one with a higher term writes no more. No step waits for
/// another writer, since that may be stopped at any moment.
///
/// Between a writer's look and its step a later membership may have begun. So the later one first
/// makes its file, and then takes away the folders of unfinished checkpoints by renaming them
/// (CheckpointFolder::clean). The step that completes a checkpoint renames the same folder. One of
/// the two fails.

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

class CheckpointFence {
public:
    /// Makes the folder, and keeps others from writing there during this object's lifetime, or
    /// until a later membership takes it. \throws error refused: another training or a later
    /// membership writes there
    void take(const std::string& path, const CheckpointWriter& writer);
    /// \throws error refused: a later membership writes there
    void check() const;
    [[nodiscard]] bool is_shared() const { return writer_.job != 0; }
    [[nodiscard]] const Descriptor& folder() const { return folder_; }

private:
    [[nodiscard]] std::string name_of(const CheckpointWriter& writer) const;
    /// Returns false if it is not the name of such a file.
    static bool parse(const std::string& name, CheckpointWriter& found);
    [[noreturn]] static void refuse(const std::string& path);
    void check(const Descriptor& folder, const CheckpointWriter& writer, bool alone) const;

    Descriptor folder_;
    CheckpointWriter writer_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string CheckpointFence::name_of(const CheckpointWriter& writer) const {
    char text[64];
    static_cast<void>(std::snprintf(text, sizeof text, ".writer-%016llx-%llu",
                                    static_cast<unsigned long long>(writer.job),
                                    static_cast<unsigned long long>(writer.term)));
    return text;
}
UNISONO_DEFINITION bool CheckpointFence::parse(const std::string& name, CheckpointWriter& found) {
    unsigned long long job = 0, term = 0;
    if (std::sscanf(name.c_str(), ".writer-%16llx-%llu", &job, &term) != 2) return false;
    found = {job, term};
    return CheckpointFence().name_of(found) == name;
}
UNISONO_DEFINITION void CheckpointFence::refuse(const std::string& path) {
    throw error(ErrorCode::refused,
                concat({"'", path, "' is in use by another training; expected a folder of its own for each training"}));
}

UNISONO_DEFINITION void CheckpointFence::take(const std::string& path, const CheckpointWriter& writer) {
    if (folder_.is_open() && writer == writer_) return check();
    if (writer.job != writer_.job) folder_ = {};
    const bool is_first = !folder_.is_open();
    if (is_first) make_durable_folders(path);
    Descriptor folder = open_folder(path);
    // A file system without locks is no reason to refuse.
    const auto lock = [&](int how) { return ::flock(folder.number(), how | LOCK_NB) == 0 || errno != EWOULDBLOCK; };
    bool alone = is_first && lock(LOCK_EX);
    if (writer.job == 0 && !alone) refuse(path);
    if (!alone) // another writer of this job, or the first moment of one of another job
        for (int attempt = 0; !lock(LOCK_SH); ++attempt) {
            if (attempt == 50) refuse(path);
            sleep_for(2'000'000);
        }
    check(folder, writer, alone);
    if (writer.job != 0) {
        const FileDescriptor made(
            ::openat(folder.number(), name_of(writer).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
        if (!made.valid()) refuse_path("make", concat({path, "/", name_of(writer)}), errno);
        folder.sync();
        check(folder, writer, alone);
    }
    CheckpointWriter other;
    for (const std::string& name : names_in(folder))
        if (parse(name, other) && !(other == writer) &&
            (other.job == writer.job ? other.term < writer.term : alone)) // a later membership's stays
            static_cast<void>(remove_in(folder, name));
    if (alone && writer.job != 0 && !lock(LOCK_SH)) refuse(path);
    folder_ = std::move(folder);
    writer_ = writer;
    check();
}

UNISONO_DEFINITION void CheckpointFence::check() const {
    if (!is_shared()) return;
    check(folder_, writer_, false);
    if (!exists_in(folder_, name_of(writer_))) refuse(folder_.path());
}
UNISONO_DEFINITION void CheckpointFence::check(const Descriptor& folder, const CheckpointWriter& writer,
                                               bool alone) const {
    CheckpointWriter other;
    for (const std::string& name : names_in(folder)) {
        if (!parse(name, other)) continue;
        if (other.job != writer.job && !alone) refuse(folder.path());
        if (other.job == writer.job && other.term > writer.term)
            throw error(ErrorCode::refused, concat({"'", folder.path(), "' is written by membership ", other.term,
                                                    " of this elastic world; this rank is in membership ", writer.term,
                                                    ", which that one has left behind"}));
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
