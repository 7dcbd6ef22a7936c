#pragma once

/// \file
/// The folder of a run's checkpoints: their names, which of them are complete, and the removal of
/// old ones.
///
///     checkpoint-000007-update-1200            complete: renamed when all files were durable
///     checkpoint-000008-update-1350.writing    being written, or the remains of a crash; in an
///                                              elastic world its writer comes before `.writing`
///
/// The first number counts the checkpoints in this folder: the newest has the greatest number, also
/// if a training continued from an older one. Only entries with such names are looked at, and only
/// files that a training makes are removed. A link or a file with such a name was not made by a
/// training: it is never followed, read, written to or removed, and its name is not used.

#include "unisono/core/path.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/checkpoint/fence.hpp"
#include "unisono/extensions/checkpoint/file.hpp"

#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline constexpr std::string_view writing_suffix = ".writing";
inline constexpr std::string_view taken_suffix = ".writing.taken"; ///< from the writer of an older membership

std::string checkpoint_name(std::uint64_t number, std::uint64_t updates);

/// The first number of a checkpoint's name; 0 if it is not such a name.
std::uint64_t checkpoint_number(std::string_view name);

class CheckpointFolder {
public:
    /// `refuses`: an entry that no training made is an error; otherwise it is reported once on
    /// standard error.
    explicit CheckpointFolder(const std::string& path, bool refuses = false)
        : path_(absolute_path(path)), refuses_(refuses) {}

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string path_of(std::string_view name) const { return concat({path_, "/", name}); }

    /// The names from the oldest to the newest, complete or not.
    [[nodiscard]] std::vector<std::string> all() const;
    [[nodiscard]] bool is_whole(const std::string& name) const;
    /// Opens a checkpoint for reading. \throws error refused: it is missing, or a link
    [[nodiscard]] Descriptor open_checkpoint(const std::string& name) const {
        return open_in(open_folder(path_), name, O_RDONLY | O_DIRECTORY, "open");
    }

    /// Sets the writer, which is part of the names of unfinished checkpoints; called on each rank.
    void set_writer(const CheckpointWriter& writer) { writer_ = writer; }
    /// Makes the folder, and prevents other trainings from writing here during this object's
    /// lifetime, and older memberships of this elastic world for ever. Sets the writer.
    /// \throws error refused: another training, or a later membership, writes here
    void lock(const CheckpointWriter& writer = {}) {
        fence_.take(path_, writer);
        writer_ = writer;
    }
    /// Removes the remains of crashes and failures. Call `lock` before, and call it only while no
    /// checkpoint is being written. \throws error refused: see `refuses`
    void clean();
    /// Returns an unused name for a new checkpoint; call `lock` before.
    [[nodiscard]] std::string next(std::uint64_t updates) const;
    /// Calls `clean`, `next` and `make_writing` in the only order that is right: until `clean` has
    /// taken the unfinished checkpoint of an older membership away, that one may complete it, and
    /// its number is taken. Returns the name.
    [[nodiscard]] std::string begin(std::uint64_t updates) {
        clean();
        std::string name = next(updates);
        make_writing(name);
        return name;
    }
    /// Makes the folder in which the checkpoint is written; call `lock` before. \throws error
    /// refused: the name has been taken in the meantime
    void make_writing(const std::string& name) const;
    /// Opens that folder; called on each rank.
    [[nodiscard]] Descriptor open_writing(const std::string& name) const { return open_checkpoint(writing_name(name)); }
    /// Renames the written folder to its final name, durably; call `lock` before. \throws error
    /// refused: a later membership writes here
    void finish_writing(const std::string& name) const;

    /// Removes all but the newest `keep` complete checkpoints. Removes the manifest first, so that
    /// a partly removed checkpoint does not count as complete.
    void prune(std::size_t keep);

    /// Removes the training's files in the checkpoint, and then the folder, unless it contains
    /// other files.
    void remove(const std::string& name);

private:
    [[nodiscard]] std::string writing_name(const std::string& name) const {
        return concat({name, writer_.job == 0 ? std::string() : "." + writer_text(writer_), writing_suffix});
    }
    /// Takes an unfinished checkpoint from the writer of an older membership, and returns its name.
    /// Empty: that writer has completed or removed it.
    [[nodiscard]] std::string take_away(const std::string& name);
    /// Reports a foreign entry: once for each name, or as an error each time if `refuses`.
    void note_foreign(const std::string& name, std::string_view what);

    std::string path_;
    bool refuses_;
    std::vector<std::string> noted_; ///< names of foreign entries
    CheckpointFence fence_;
    CheckpointWriter writer_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/error.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string checkpoint_name(std::uint64_t number, std::uint64_t updates) {
    char text[96];
    static_cast<void>(std::snprintf(text, sizeof text, "checkpoint-%06llu-update-%llu",
                                    static_cast<unsigned long long>(number), static_cast<unsigned long long>(updates)));
    return text;
}

UNISONO_DEFINITION std::uint64_t checkpoint_number(std::string_view name) {
    constexpr std::string_view begin = "checkpoint-", middle = "-update-";
    std::uint64_t number = 0, updates = 0;
    if (name.substr(0, begin.size()) != begin) return 0;
    const char* const end = name.data() + name.size();
    const auto first = std::from_chars(name.data() + begin.size(), end, number);
    const std::string_view rest(first.ptr, static_cast<std::size_t>(end - first.ptr));
    if (first.ec != std::errc{} || rest.substr(0, middle.size()) != middle) return 0;
    const auto second = std::from_chars(first.ptr + middle.size(), end, updates);
    return second.ec == std::errc{} && name == checkpoint_name(number, updates) ? number : 0;
}

UNISONO_DEFINITION std::vector<std::string> CheckpointFolder::all() const {
    std::vector<std::string> found;
    for (std::string& name : names_in(path_))
        if (checkpoint_number(name) != 0) found.push_back(std::move(name));
    std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
        const std::uint64_t first = checkpoint_number(a), second = checkpoint_number(b);
        if (first != second) return first < second;
        return a.size() != b.size() ? a.size() < b.size() : a < b; // by updates, which have no leading zeros
    });
    return found;
}

UNISONO_DEFINITION bool CheckpointFolder::is_whole(const std::string& name) const {
    return is_folder(path_of(name)) && exists(concat({path_of(name), "/", manifest_name}));
}

/// The name of a checkpoint that is not complete, and its writer; false: no such name.
inline bool parse_unfinished(std::string_view name, CheckpointWriter& writer, bool& is_taken) {
    is_taken = name.ends_with(taken_suffix);
    if (!is_taken && !name.ends_with(writing_suffix)) return false;
    name.remove_suffix(is_taken ? taken_suffix.size() : writing_suffix.size());
    const std::size_t dot = name.find('.');
    writer = {};
    if (dot != std::string_view::npos && !parse_writer(std::string(name.substr(dot + 1)), writer)) return false;
    return checkpoint_number(name.substr(0, dot)) != 0;
}

UNISONO_DEFINITION std::string CheckpointFolder::take_away(const std::string& name) {
    std::string taken = name.substr(0, name.size() - writing_suffix.size()) + std::string(taken_suffix);
    for (const bool again : {false, true}) {
        const int folder = fence_.folder().number();
        if (::renameat(folder, name.c_str(), folder, taken.c_str()) == 0) return taken;
        const int why = errno;
        if (why == ENOENT) return {};
        if (!exists_in(fence_.folder(), taken)) refuse_path(concat({"rename to '", taken, "'"}), path_of(name), why);
        if (again) break;
        remove(taken); // of a crash
    }
    throw error(
        ErrorCode::refused,
        concat({"'", path_of(taken), "' contains files that no training has made, so the unfinished checkpoint '", name,
                "' cannot be taken from the writer of an older membership; remove the first one"}));
}

UNISONO_DEFINITION void CheckpointFolder::clean() {
    for (std::string name : names_in(path_)) {
        CheckpointWriter writer;
        bool is_taken = false;
        if (!parse_unfinished(name, writer, is_taken)) continue;
        if (fence_.is_shared() && !is_taken) {
            if (writer.job == writer_.job && writer.term > writer_.term) continue; // this one is older itself
            // Its writer may complete it at this moment: one of the two fails.
            name = is_folder(path_of(name)) ? take_away(name) : name;
            if (name.empty()) continue;
        }
        remove(name);
    }
    const std::vector<std::string> found = all();
    for (const std::string& name : found)
        if (!is_whole(name) && name != found.back()) remove(name); // an interrupted removal
}

UNISONO_DEFINITION std::string CheckpointFolder::next(std::uint64_t updates) const {
    const std::vector<std::string> found = all(), entries = names_in(path_);
    for (std::uint64_t number = found.empty() ? 0 : checkpoint_number(found.back());;) {
        if (++number == 0)
            throw error(ErrorCode::refused, concat({"'", path_of(found.back()),
                                                    "' has the greatest possible number; expected a smaller one"}));
        std::string name = checkpoint_name(number, updates);
        const auto is_of = [&](const std::string& entry) { return entry == name || entry.starts_with(name + "."); };
        if (std::none_of(entries.begin(), entries.end(), is_of)) return name;
    }
}

UNISONO_DEFINITION void CheckpointFolder::make_writing(const std::string& name) const {
    fence_.check();
    const std::string made = writing_name(name);
    if (::mkdirat(fence_.folder().number(), made.c_str(), 0777) != 0)
        refuse_path("make the folder", path_of(made), errno);
    fence_.folder().sync();
}

UNISONO_DEFINITION void CheckpointFolder::finish_writing(const std::string& name) const {
    fence_.check();
    if (exists_in(fence_.folder(), name))
        throw error(ErrorCode::refused,
                    concat({"'", path_of(name),
                            "' has appeared while this training wrote a checkpoint of this name, so "
                            "another training writes here; expected a folder of its own for each"}));
    move_in(fence_.folder(), writing_name(name), name);
    fence_.folder().sync();
}

UNISONO_DEFINITION void CheckpointFolder::prune(std::size_t keep) {
    fence_.check();
    std::vector<std::string> whole;
    for (const std::string& name : all())
        if (is_whole(name)) whole.push_back(name);
    for (std::size_t i = 0; i + keep < whole.size(); ++i) remove(whole[i]);
}

UNISONO_DEFINITION void CheckpointFolder::remove(const std::string& name) {
    const Descriptor all = open_folder(path_);
    struct stat facts {};
    if (::fstatat(all.number(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return;
        refuse_path("examine", path_of(name), errno);
    }
    if (!S_ISDIR(facts.st_mode)) return note_foreign(name, S_ISLNK(facts.st_mode) ? "a symbolic link" : "a file");
    // Refused if it has become a link.
    Descriptor folder;
    try {
        folder = open_in(all, name, O_RDONLY | O_DIRECTORY, "open");
    } catch (const error&) {
        if (exists_in(all, name)) throw;
        return; // the writer of another membership has removed it
    }
    if (remove_in(folder, std::string(manifest_name))) folder.sync();
    for (const std::string& file : names_in(folder))
        if (file.ends_with(".safetensors") || file.starts_with("rank-")) static_cast<void>(remove_in(folder, file));
    if (::unlinkat(all.number(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOTEMPTY && errno != EEXIST &&
        errno != ENOENT)
        refuse_path("remove", path_of(name), errno);
}

UNISONO_DEFINITION void CheckpointFolder::note_foreign(const std::string& name, std::string_view what) {
    const std::string text =
        concat({"'", path_of(name), "' is ", what, "; expected a checkpoint's folder; it was not changed"});
    if (refuses_) throw error(ErrorCode::refused, text);
    if (std::find(noted_.begin(), noted_.end(), name) != noted_.end()) return;
    noted_.push_back(name);
    static_cast<void>(std::fputs(concat({"unisono: ", text, "\n"}).c_str(), stderr));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
