#pragma once

/// \file
/// Files and folders by POSIX calls, so that writes can be made durable. Every error names the path
/// and the reason.

#include "unisono/core/descriptor.hpp"
#include "unisono/extensions/checkpoint/checksum.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// \throws error refused: names the attempted operation and the system's answer
[[noreturn, gnu::cold]] void refuse_path(std::string_view tried, const std::string& path, int number);

/// An open file or folder.
class Descriptor {
public:
    Descriptor() = default;
    Descriptor(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
    [[nodiscard]] int number() const { return file_.get(); }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool is_open() const { return file_.valid(); }

    /// Makes the contents durable. If the file system has no such operation, says so once on
    /// standard error.
    void sync() const;
    void close() { // some file systems report a full disk only on close
        if (::close(file_.release()) != 0 && errno != EINTR) refuse_path("close", path_, errno);
    }

private:
    FileDescriptor file_;
    std::string path_;
};

Descriptor open_path(const std::string& path, int flags, std::string_view tried);
/// Opens an entry of an open folder, even if another folder has been put at its path. Refuses
/// links.
Descriptor open_in(const Descriptor& folder, const std::string& name, int flags, std::string_view tried);
inline Descriptor open_folder(const std::string& path) { return open_path(path, O_RDONLY | O_DIRECTORY, "open"); }

/// A new file that is written from the beginning to the end. Counts its length and computes its
/// checksum.
class NewFile {
public:
    explicit NewFile(const std::string& path) : file_(open_path(path, O_WRONLY | O_CREAT | O_EXCL, "create")) {}
    NewFile(const Descriptor& folder, const std::string& name)
        : file_(open_in(folder, name, O_WRONLY | O_CREAT | O_EXCL, "create")) {}

    void add(const void* data, std::size_t count);
    /// Makes the contents durable, but not the name.
    void finish() {
        flush();
        file_.sync();
        file_.close();
    }
    /// Closes the file without making it durable.
    void close() {
        flush();
        file_.close();
    }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t checksum() const { return sum_.value(); }

private:
    void flush() { write(buffer_.data(), std::exchange(used_, 0)); }
    void write(const char* from, std::size_t count);

    Descriptor file_;
    Xxh64 sum_;
    std::uint64_t bytes_ = 0;
    std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 18);
    std::size_t used_ = 0;
};

/// An existing file, open for reading.
class OldFile {
public:
    /// \throws error refused: it cannot be opened, or is not a regular file
    explicit OldFile(const std::string& path) : OldFile(open_path(path, O_RDONLY | O_NONBLOCK, "open")) {}
    OldFile(const Descriptor& folder, const std::string& name)
        : OldFile(open_in(folder, name, O_RDONLY | O_NONBLOCK, "open")) {}
    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    void read(std::uint64_t at, void* to, std::size_t count) const;
    [[nodiscard]] std::uint64_t checksum() const;

private:
    explicit OldFile(Descriptor file);

    Descriptor file_;
    std::uint64_t bytes_ = 0;
};

/// Reads small pieces that follow one another with few system calls.
class ReadAhead {
public:
    explicit ReadAhead(const OldFile& file) : file_(&file) {}
    void read(std::uint64_t at, void* to, std::size_t count);

private:
    static constexpr std::size_t most = std::size_t{1} << 18;
    const OldFile* file_;
    std::uint64_t at_ = 0; ///< the position of `held_`
    std::vector<char> held_;
};

/// Reads a file of at most `most` bytes.
std::string read_text(const OldFile& file, std::uint64_t most);

/// The three below are false if there is no such entry, or it cannot be reached (ELOOP, EACCES).
/// \throws error refused: the entry may exist, for instance on a disk that fails
bool exists(const std::string& path);
/// False for a link to a folder.
bool is_folder(const std::string& path);
bool exists_in(const Descriptor& folder, const std::string& name);
/// Removes an entry itself, never its target. Returns false if there is none.
bool remove_in(const Descriptor& folder, const std::string& name);
void move_in(const Descriptor& folder, const std::string& from, const std::string& to);

/// Makes a folder and its missing parents, each of them durable.
void make_durable_folders(const std::string& path);

/// The names in a folder, in no order; empty if there is no such folder.
std::vector<std::string> names_in(const std::string& path);
std::vector<std::string> names_in(const Descriptor& folder);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <sys/stat.h>
#include <system_error>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void refuse_path(std::string_view tried, const std::string& path, int number) {
    const bool squashed = (number == EACCES || number == EPERM) && ::geteuid() == 0;
    throw error(ErrorCode::refused,
                concat({"cannot ", tried, " '", path, "': ", std::generic_category().message(number),
                        squashed ? " (this process is root: a network file system with root_squash takes root for "
                                   "nobody; run as the folder's owner, or use a folder elsewhere)"
                                 : ""}));
}

UNISONO_DEFINITION void Descriptor::sync() const {
    while (::fsync(number()) != 0) {
        const int why = errno;
        if (why == EINTR) continue;
        // Such file systems exist, often for folders alone: SMB shares and some in user space.
        if (why != EINVAL && why != ENOSYS && why != ENOTSUP) refuse_path("write to disk", path_, why);
        static std::atomic<bool> told = false;
        if (!told.exchange(true))
            static_cast<void>(std::fputs(concat({"unisono: warning: the file system cannot write '", path_,
                                                 "' to disk when asked (fsync: ", std::generic_category().message(why),
                                                 "); checkpoints are complete if a process dies, but the newest may be "
                                                 "lost if the machine does\n"})
                                             .c_str(),
                                         stderr));
        return;
    }
}

/// Opens an entry of an open folder. `path`: for messages.
inline Descriptor open_at(int folder, const std::string& name, const std::string& path, int flags,
                          std::string_view tried) {
    for (;;) {
        FileDescriptor file(::openat(folder, name.c_str(), flags | O_CLOEXEC, 0666));
        if (file.valid()) return {std::move(file), path};
        const int why = errno;
        struct stat facts {};
        if ((flags & O_NOFOLLOW) != 0 && (why == ELOOP || why == ENOTDIR) &&
            ::fstatat(folder, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode))
            throw error(ErrorCode::refused,
                        concat({"cannot ", tried, " '", path, "': it is a symbolic link; expected the ",
                                (flags & O_DIRECTORY) != 0 ? "folder" : "file", " itself"}));
        if (why != EINTR) refuse_path(tried, path, why);
    }
}
UNISONO_DEFINITION Descriptor open_path(const std::string& path, int flags, std::string_view tried) {
    return open_at(AT_FDCWD, path, path, flags, tried);
}
UNISONO_DEFINITION Descriptor open_in(const Descriptor& folder, const std::string& name, int flags,
                                      std::string_view tried) {
    return open_at(folder.number(), name, concat({folder.path(), "/", name}), flags | O_NOFOLLOW, tried);
}

UNISONO_DEFINITION void NewFile::add(const void* data, std::size_t count) {
    sum_.add(data, count);
    bytes_ += count;
    const auto* from = static_cast<const char*>(data);
    if (count > buffer_.size() - used_) {
        flush();
        if (count >= buffer_.size()) return write(from, count);
    }
    std::copy_n(from, count, buffer_.data() + used_);
    used_ += count;
}

UNISONO_DEFINITION void NewFile::write(const char* from, std::size_t count) {
    while (count != 0) {
        const ssize_t done = ::write(file_.number(), from, std::min(count, std::size_t{1} << 30));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) refuse_path("write", file_.path(), errno);
        from += done;
        count -= static_cast<std::size_t>(done);
    }
}

UNISONO_DEFINITION void OldFile::read(std::uint64_t at, void* to, std::size_t count) const {
    auto* into = static_cast<char*>(to);
    while (count != 0) {
        const ssize_t done =
            ::pread(file_.number(), into, std::min(count, std::size_t{1} << 30), static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) refuse_path("read", path(), errno);
        if (done == 0) refuse_input({"'", path(), "' ends after ", at, " bytes; expected ", count, " more"});
        into += done;
        at += static_cast<std::uint64_t>(done);
        count -= static_cast<std::size_t>(done);
    }
}

UNISONO_DEFINITION void ReadAhead::read(std::uint64_t at, void* to, std::size_t count) {
    if (count == 0) return;
    if (at < at_ || at + count > at_ + held_.size()) {
        if (count >= most || at + count > file_->bytes()) return file_->read(at, to, count);
        held_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(most, file_->bytes() - at)));
        file_->read(at_ = at, held_.data(), held_.size());
    }
    std::copy_n(held_.data() + (at - at_), count, static_cast<char*>(to));
}

UNISONO_DEFINITION std::uint64_t OldFile::checksum() const {
    std::vector<char> buffer(std::size_t{1} << 18);
    Xxh64 sum;
    for (std::uint64_t at = 0; at < bytes_;) {
        const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes_ - at));
        read(at, buffer.data(), some);
        sum.add(buffer.data(), some);
        at += some;
    }
    return sum.value();
}

UNISONO_DEFINITION OldFile::OldFile(Descriptor file) : file_(std::move(file)) {
    struct stat facts {};
    if (::fstat(file_.number(), &facts) != 0) refuse_path("examine", path(), errno);
    if (!S_ISREG(facts.st_mode)) throw error(ErrorCode::refused, concat({"'", path(), "' is not a regular file"}));
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
}

UNISONO_DEFINITION std::string read_text(const OldFile& file, std::uint64_t most) {
    if (file.bytes() > most)
        refuse_input({"'", file.path(), "' has ", file.bytes(), " bytes; expected at most ", most});
    std::string text(file.bytes(), '\0');
    file.read(0, text.data(), text.size());
    return text;
}

/// Evaluates a system call that looked for an entry.
inline bool is_found(int result, const std::string& path) {
    if (result == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EACCES) refuse_path("examine", path, errno);
    return false;
}

UNISONO_DEFINITION bool exists(const std::string& path) {
    struct stat facts {};
    return is_found(::lstat(path.c_str(), &facts), path);
}

UNISONO_DEFINITION bool is_folder(const std::string& path) {
    struct stat facts {};
    return is_found(::lstat(path.c_str(), &facts), path) && S_ISDIR(facts.st_mode);
}

UNISONO_DEFINITION bool exists_in(const Descriptor& folder, const std::string& name) {
    struct stat facts {};
    return is_found(::fstatat(folder.number(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW),
                    concat({folder.path(), "/", name}));
}

UNISONO_DEFINITION bool remove_in(const Descriptor& folder, const std::string& name) {
    if (::unlinkat(folder.number(), name.c_str(), 0) == 0) return true;
    if (errno != ENOENT) refuse_path("remove", concat({folder.path(), "/", name}), errno);
    return false;
}

UNISONO_DEFINITION void move_in(const Descriptor& folder, const std::string& from, const std::string& to) {
    if (::renameat(folder.number(), from.c_str(), folder.number(), to.c_str()) != 0)
        refuse_path(concat({"rename to '", to, "'"}), concat({folder.path(), "/", from}), errno);
}

UNISONO_DEFINITION void make_durable_folders(const std::string& path) {
    if (path.empty() || exists(path)) return;
    const std::size_t slash = path.find_last_of('/');
    const std::string above = slash == std::string::npos ? "." : (slash == 0 ? "/" : path.substr(0, slash));
    make_durable_folders(above);
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) refuse_path("make the folder", path, errno);
    open_folder(above).sync(); // the name of the new one
}

/// Closes the folder.
inline std::vector<std::string> names_of(DIR* folder, const std::string& path) {
    std::vector<std::string> names;
    int problem = 0;
    for (;;) {
        errno = 0;
        const dirent* const one = ::readdir(folder); // NOLINT(concurrency-mt-unsafe): each has one reader
        problem = errno;
        if (one == nullptr) break;
        const std::string_view name = one->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    ::closedir(folder);
    if (problem != 0) refuse_path("list", path, problem);
    return names;
}

UNISONO_DEFINITION std::vector<std::string> names_in(const std::string& path) {
    DIR* const folder = ::opendir(path.c_str());
    if (folder != nullptr) return names_of(folder, path);
    if (errno != ENOENT) refuse_path("list", path, errno);
    return {};
}

UNISONO_DEFINITION std::vector<std::string> names_in(const Descriptor& folder) {
    FileDescriptor again(::openat(folder.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR* const listed = again.valid() ? ::fdopendir(again.get()) : nullptr;
    if (listed == nullptr) refuse_path("list", folder.path(), errno);
    again.release(); // it is the list's
    return names_of(listed, folder.path());
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
