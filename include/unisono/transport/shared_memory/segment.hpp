#pragma once

/// \file
/// A segment of memory that the processes of a world map: a memfd, which has no name and ends with
/// the last process that holds it, however that ends. It is large and sparse; a page exists once it
/// is backed.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/number.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The bytes that a rank may allocate if the program does not say it: UNISONO_SHARED_MEMORY_MIB,
/// else what the machine has. Less under Valgrind, whose leak check reads all of a mapping, and so
/// gives pages to all of its holes.
[[gnu::cold]] std::size_t arena_of_process();
inline constexpr std::size_t arena_under_valgrind = std::size_t{128} << 20;

[[noreturn, gnu::cold]] void refuse_shared_memory(const std::string& what, int code);

class SharedSegment {
public:
    SharedSegment() = default;
    SharedSegment(SharedSegment&& other) noexcept
        : file_(std::move(other.file_)), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment() {
        if (base_ != nullptr) ::munmap(base_, bytes_);
    }

    /// A new segment of zeros; only this user may open it. Errors: refused.
    static SharedSegment create(std::size_t bytes);

    /// Another process's segment, by a path to it (/proc/PID/fd/N). Errors: refused.
    static SharedSegment open(const std::string& path);

    [[nodiscard]] std::byte* base() const { return base_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] int file() const { return file_.get(); }

    /// Gets pages for a range now, so that lack of memory is an error here, not a signal at the
    /// first access.
    void back(std::size_t offset, std::size_t bytes) const;

    /// Gives the pages of a range back; it reads as zeros until it is backed again.
    void give_back(std::size_t offset, std::size_t bytes) const noexcept;

private:
    void map(std::size_t bytes);

    FileDescriptor file_ = {};
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::noinline]] UNISONO_DEFINITION void refuse_shared_memory(const std::string& what, int code) {
    const bool filtered = code == EPERM || code == ENOSYS;
    throw error(ErrorCode::refused,
                concat({"shared memory: ", what, code != 0 ? ": " : "",
                        code != 0 ? std::generic_category().message(code) : std::string(),
                        filtered ? " (does a filter of system calls, such as a container's seccomp profile, forbid it? "
                                   "Allow memfd_create, fallocate and mmap, or use Tcp)"
                                 : ""}));
}

[[gnu::cold]] UNISONO_DEFINITION std::size_t arena_of_process() {
    const char* const name = "UNISONO_SHARED_MEMORY_MIB";
    const char* const said = std::getenv(name); // NOLINT(concurrency-mt-unsafe): nothing here changes it
    constexpr std::size_t most = std::size_t{1} << 25;
    std::size_t mebibytes = 0;
    if (said != nullptr && !parse_number(said, 1, most, mebibytes))
        refuse_input({name, " must be a number from 1 to ", most, ", found ", detail::quoted(said)});
    if (said != nullptr) return mebibytes << 20;
    const char* const preloaded = std::getenv("LD_PRELOAD"); // NOLINT(concurrency-mt-unsafe)
    if (preloaded != nullptr && std::strstr(preloaded, "vgpreload_") != nullptr) return arena_under_valgrind;
    const auto pages = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_PHYS_PAGES)));
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

UNISONO_DEFINITION SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

UNISONO_DEFINITION SharedSegment SharedSegment::create(std::size_t bytes) {
    SharedSegment made;
    made.file_ = FileDescriptor(::memfd_create("unisono", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made.file_.valid()) refuse_shared_memory("no memory file (memfd_create)", errno);
    if (::fchmod(made.file(), 0600) != 0) refuse_shared_memory("its memory file cannot be made private", errno);
    // Beyond that limit a signal would end the process without a message.
    if (rlimit most{}; ::getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur)
        refuse_shared_memory(concat({"no memory file of ", bytes_text(bytes), " (sparse): a file may have at most ",
                                     bytes_text(most.rlim_cur), " (see `ulimit -f`)"}),
                             0);
    if (::ftruncate(made.file(), static_cast<off_t>(bytes)) != 0)
        refuse_shared_memory(concat({"no memory file of ", bytes_text(bytes), " (sparse)"}), errno);
    // A file that became shorter would kill a process that accesses the missing range.
    static_cast<void>(::fcntl(made.file(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    made.map(bytes);
    return made;
}

UNISONO_DEFINITION SharedSegment SharedSegment::open(const std::string& path) {
    SharedSegment opened;
    opened.file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    const int failed = errno;
    const bool forbidden = !opened.file_.valid() && (failed == EACCES || failed == EPERM);
    if (forbidden)
        refuse_shared_memory(concat({"cannot open ", path,
                                     " of rank 0's process, which is another user's, or not dumpable: programs are not "
                                     "after prctl(PR_SET_DUMPABLE, 0), after setuid, or with set-user-ID or file "
                                     "capabilities; let rank 0 call prctl(PR_SET_DUMPABLE, 1) before, or use Tcp"}),
                             EACCES);
    if (!opened.file_.valid()) refuse_shared_memory(concat({"cannot open ", path, " of rank 0's process"}), failed);
    struct stat facts {};
    if (::fstat(opened.file(), &facts) != 0) refuse_shared_memory(concat({"cannot examine ", path}), errno);
    if (!S_ISREG(facts.st_mode) || facts.st_size <= 0)
        refuse_shared_memory(concat({path, " is not a segment of shared memory"}), 0);
    opened.map(static_cast<std::size_t>(facts.st_size));
    return opened;
}

UNISONO_DEFINITION void SharedSegment::back(std::size_t offset, std::size_t bytes) const {
    int failed = 0;
    do {
        failed = ::fallocate(file(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed != 0) refuse_shared_memory(concat({"no memory for ", bytes_text(bytes)}), failed);
}

UNISONO_DEFINITION void SharedSegment::give_back(std::size_t offset, std::size_t bytes) const noexcept {
    static_cast<void>(::fallocate(file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                  static_cast<off_t>(bytes)));
}

// A program that called mlockall(MCL_FUTURE) would get all pages of the segment here: it is mapped
// without access, and unlocked first.
UNISONO_DEFINITION void SharedSegment::map(std::size_t bytes) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file(), 0);
    if (mapped == MAP_FAILED && errno == EAGAIN) // NOLINT: a macro of the system
        refuse_shared_memory(concat({"no room for ", bytes_text(bytes),
                                     " (sparse): the program locks its memory by mlockall(MCL_FUTURE), and `ulimit -l` "
                                     "is lower; call mlockall(MCL_CURRENT) instead, or set JoinOptions::arena_bytes"}),
                             EAGAIN);
    if (mapped == MAP_FAILED) // NOLINT: a macro of the system
        refuse_shared_memory(concat({"no room for ", bytes_text(bytes), " of addresses (is `ulimit -v` lower?)"}),
                             errno);
    static_cast<void>(::munlock(mapped, bytes));
    if (::mprotect(mapped, bytes, PROT_READ | PROT_WRITE) != 0) {
        const int failed = errno;
        ::munmap(mapped, bytes);
        refuse_shared_memory(concat({"no access to ", bytes_text(bytes), " of addresses"}), failed);
    }
    base_ = static_cast<std::byte*>(mapped);
    bytes_ = bytes;
    static_cast<void>(::madvise(mapped, bytes, MADV_DONTDUMP));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
