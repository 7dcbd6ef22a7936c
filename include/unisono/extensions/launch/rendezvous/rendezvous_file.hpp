#pragma once

/// \file
/// The file by which ranks find rank 0: one line with its address and the job's token, which only
/// this user can read.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_rules.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <cerrno>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Parses the line "unisono1 <port> <token> <host>". Returns false for anything else.
inline bool parse_rendezvous_line(std::string_view line, RendezvousPoint& point) {
    const auto word = [&] { return take_until(line, ' '); };
    int port = 0;
    if (!line.ends_with('\n') || word() != "unisono1" || !parse_count(word(), 65535, port) || port == 0) return false;
    const std::string_view token = word();
    if (token.size() != 2 * JobToken::bytes || token.find_first_not_of("0123456789abcdef") != token.npos) return false;
    line.remove_suffix(1);
    if (!is_host_word(line)) return false;
    point.port = static_cast<std::uint16_t>(port);
    point.token = JobToken::parse(token);
    point.host = line;
    return true;
}

inline std::string rendezvous_path(const RendezvousPoint& point) {
    return concat({point.folder, "/", point.job, ".meet"});
}

/// Reads address and token from the file. Returns false if the file does not exist yet. Errors:
/// refused for a file of another user, or one that others may read or write.
inline bool read_rendezvous_file(RendezvousPoint& point) {
    const std::string path = rendezvous_path(point);
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file.valid()) {
        if (errno == ENOENT) return false;
        throw error(ErrorCode::refused, concat({"cannot read ", path, ": ", errno_text(errno)}));
    }
    struct stat about = {};
    if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != ::geteuid() ||
        (about.st_mode & 077) != 0) {
        throw error(ErrorCode::refused, concat({path, " is not a file that this user alone can read and write",
                                                whose(about), "; set UNISONO_FOLDER to another folder"}));
    }
    char text[512];
    const ssize_t got = ::read(file.get(), text, sizeof text);
    return got > 0 && parse_rendezvous_line(std::string_view(text, static_cast<std::size_t>(got)), point);
}

/// Makes the folder if it does not exist. A folder with a well-known name must belong to this user.
inline void make_rendezvous_folder(const std::string& folder, bool own) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        throw error(ErrorCode::refused, concat({"cannot make the folder ", folder, ", where the ranks meet: ",
                                                errno_text(errno), "; set UNISONO_FOLDER to another one"}));
    struct stat about = {};
    if (::lstat(folder.c_str(), &about) != 0) return; // it was removed in the meantime: the caller tries again
    if (!own) return;
    if (!S_ISDIR(about.st_mode) || about.st_uid != ::geteuid() || (about.st_mode & 077) != 0)
        throw error(ErrorCode::refused, concat({folder, " is not a folder that this user alone can enter", whose(about),
                                                "; set UNISONO_FOLDER to another one"}));
}

/// True for the name of a rendezvous file, "<job>.meet", or of its draft, which has the writer's
/// pid appended. False for the file of an elastic world, which may live for long.
inline bool is_rendezvous_file_name(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    int pid = 0;
    if (dot != name.npos && parse_count(name.substr(dot + 1), 1 << 30, pid)) name = name.substr(0, dot);
    constexpr std::string_view ending = ".meet";
    if (!name.ends_with(ending)) return false;
    name.remove_suffix(ending.size());
    return is_file_name(name) && !name.ends_with(".elastic");
}

/// True if the file in the open folder begins as a rendezvous file does.
inline bool begins_as_rendezvous_file(int folder, const char* name) {
    const FileDescriptor file(::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    constexpr std::string_view mark = "unisono1 ";
    char text[mark.size()];
    return file.valid() && ::read(file.get(), text, sizeof text) == static_cast<ssize_t>(sizeof text) &&
           std::string_view(text, sizeof text) == mark;
}

/// Removes files that rank 0 of killed jobs has left, since they contain tokens: this user's files
/// that are a day old. No job waits for its ranks that long. Only in the library's own folder;
/// files in a folder that the user has named are not touched.
inline void sweep_rendezvous_folder(const std::string& folder) {
    constexpr std::time_t old = std::time_t{24} * 3600;
    DIR* const opened = ::opendir(folder.c_str());
    if (opened == nullptr) return;
    const std::time_t now = std::time(nullptr);
    for (int looks = 0; looks < 10'000; ++looks) {
        const dirent* const entry = ::readdir(opened); // NOLINT(concurrency-mt-unsafe): of this stream alone
        if (entry == nullptr) break;
        const std::string_view name = entry->d_name;
        struct stat about = {};
        if (!is_rendezvous_file_name(name) ||
            ::fstatat(::dirfd(opened), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        const bool left = S_ISREG(about.st_mode) && about.st_uid == ::geteuid() && about.st_mtime < now - old;
        if (left && begins_as_rendezvous_file(::dirfd(opened), entry->d_name))
            ::unlinkat(::dirfd(opened), entry->d_name, 0);
    }
    ::closedir(opened);
}

/// Rank 0's file during the rendezvous. It appears at once and complete, and is removed with this
/// object, unless another process has replaced it. In a forked child of the process it does
/// nothing.
class RendezvousFile {
public:
    RendezvousFile() = default;
    explicit RendezvousFile(const RendezvousPoint& point)
        : path_(rendezvous_path(point)), folder_(point.own_folder ? point.folder : ""),
          line_(concat({"unisono1 ", point.port, " ", point.token.text(), " ", point.host, "\n"})) {
        const std::string draft = concat({path_, ".", ::getpid()});
        for (int attempt = 0;; ++attempt) {
            make_rendezvous_folder(point.folder, point.own_folder);
            if (attempt == 0 && point.own_folder) sweep_rendezvous_folder(point.folder);
            ::unlink(draft.c_str());
            const FileDescriptor file(
                ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
            if (file.valid() && ::write(file.get(), line_.data(), line_.size()) == static_cast<ssize_t>(line_.size()) &&
                ::rename(draft.c_str(), path_.c_str()) == 0) {
                return;
            }
            const int failed = errno;
            ::unlink(draft.c_str());
            // Rank 0 of another job may just have removed the empty folder.
            if (failed != ENOENT || attempt == 10)
                throw error(ErrorCode::refused, concat({"cannot write ", path_, ", by which the ranks find rank 0: ",
                                                        errno_text(failed), "; set UNISONO_FOLDER to another folder"}));
        }
    }
    RendezvousFile(RendezvousFile&& other) noexcept
        : path_(std::exchange(other.path_, {})), folder_(std::exchange(other.folder_, {})),
          line_(std::exchange(other.line_, {})), owner_(other.owner_) {}
    /// Removes the former file, unless the new one has replaced it.
    RendezvousFile& operator=(RendezvousFile&& other) noexcept {
        if (this == &other) return *this;
        if (path_ != other.path_) remove();
        path_ = std::exchange(other.path_, {});
        folder_ = std::exchange(other.folder_, {});
        line_ = std::exchange(other.line_, {});
        owner_ = other.owner_;
        return *this;
    }
    ~RendezvousFile() {
        const NotCancelled whole;
        remove();
    }

private:
    void remove() const {
        if (path_.empty() || owner_ != ::getpid()) return;
        if (is_mine()) ::unlink(path_.c_str());
        if (!folder_.empty()) ::rmdir(folder_.c_str()); // unless another job's file is there
    }
    /// Compares the contents, since the system may give the number of a removed file to a later
    /// one.
    [[nodiscard]] bool is_mine() const {
        const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        char text[512];
        const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
        return got > 0 && line_ == std::string_view(text, static_cast<std::size_t>(got));
    }

    std::string path_;
    std::string folder_; ///< the folder to remove, unless another job's file is there
    std::string line_;
    int owner_ = ::getpid();
};

} // namespace detail
UNISONO_NAMESPACE_END
