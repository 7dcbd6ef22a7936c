#pragma once

/// \file
/// Facts about this host and its processes, as the system reports them.

#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/number.hpp"
#include "unisono/core/threads.hpp"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The start of a small file, such as those in /proc; empty if there is no such file.
inline std::string read_small_file(const std::string& path) {
    std::string text;
    if (std::FILE* file = std::fopen(path.c_str(), "re")) {
        char buffer[4096];
        text.assign(buffer, std::fread(buffer, 1, sizeof buffer, file));
        static_cast<void>(std::fclose(file));
    }
    return text;
}

/// Names one boot of one kernel, and a name space (pid, net) of this process there.
inline std::string name_space(const char* kind) {
    std::string text = read_small_file("/proc/sys/kernel/random/boot_id");
    char space[64];
    if (const ssize_t length = ::readlink(concat({"/proc/self/ns/", kind}).c_str(), space, sizeof space); length > 0)
        text.append(space, static_cast<std::size_t>(length));
    return text;
}
inline std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// Equal for processes that see each other's pids: one boot of one kernel, one pid name space.
inline std::uint64_t host_number() { return fnv1a(fnv_basis, name_space("pid") + host_name()); }
/// Equal for processes that may see each other's pids, whatever the names of their hosts. Use it as
/// a first test before `host_number`.
inline std::uint64_t process_space() { return fnv1a(fnv_basis, name_space("pid")); }
/// Equal for processes that reach each other over the loopback.
inline std::uint64_t network_space() { return fnv1a(fnv_basis, name_space("net") + host_name()); }

/// A field of /proc/<pid>/stat, counted as in its manual (3: the state, 22: the start time); empty
/// if there is none.
inline std::string process_field(int pid, int field) {
    const std::string stat = read_small_file(concat({"/proc/", pid, "/stat"}));
    std::string_view rest = stat;
    const std::size_t name_end = rest.rfind(')'); // the name, field 2, may contain any character
    if (name_end == std::string_view::npos) return {};
    rest.remove_prefix(name_end + 1);
    for (int at = 3; !rest.empty(); ++at) {
        rest.remove_prefix(1);
        const std::string_view value = rest.substr(0, rest.find_first_of(" \n"));
        if (at == field) return std::string(value);
        rest.remove_prefix(value.size());
    }
    return {};
}

/// True if a signal or a debugger has stopped the process.
inline bool is_stopped(int pid) {
    const std::string state = process_field(pid, 3);
    return state == "T" || state == "t";
}

/// The state of a process of this user on this host.
enum class ProcessFate : std::uint8_t {
    runs,
    stopped,    ///< stopped by a signal or a debugger
    ended_well, ///< ended with status 0
    ended,      ///< ended with another status, by abort(), or in an unknown way
    killed,     ///< killed by another signal
};
inline ProcessFate fate_of(int pid) {
    const std::string state = process_field(pid, 3);
    if (state == "T" || state == "t") return ProcessFate::stopped;
    if (state.empty()) return ProcessFate::ended;
    if (state != "Z" && state != "X" && state != "x") return ProcessFate::runs;
    int status = -1; // as from waitpid; 0 if the process is another user's
    if (!parse_number(process_field(pid, 52), 0, 0xffff, status)) return ProcessFate::ended;
    if (status == 0) return ProcessFate::ended_well;
    const int signal = status & 0x7f;
    return signal == 0 || signal == SIGABRT ? ProcessFate::ended : ProcessFate::killed;
}

/// The number of threads of this process; 1 if the system does not tell.
inline int count_threads() {
    const std::string field = process_field(::getpid(), 20);
    int threads = 1;
    static_cast<void>(parse_number(field, 1, std::numeric_limits<int>::max(), threads));
    return threads;
}

} // namespace detail

/// Refuses to continue if this process has other threads: a forked child has only the thread that
/// forks, and locks that other threads held stay locked in it for ever. CUDA and thread pools make
/// threads when they are first used. Errors: refused, with the number of threads.
inline void refuse_other_threads(const std::string& who) {
    constexpr int own = UNISONO_UNDER_THREAD_SANITIZER ? 2 : 1; // the sanitizer has one thread
    // A thread that was just joined may be counted for a moment.
    int threads = detail::count_threads();
    for (int attempt = 0; threads > own && attempt < 50; ++attempt) {
        detail::sleep_for(1'000'000);
        threads = detail::count_threads();
    }
    if (threads <= own) return;
    throw error(ErrorCode::refused,
                concat({who, " forks, but this process has ", threads - own + 1,
                        " threads already: start the ranks before anything that makes threads (a thread "
                        "pool, OpenMP, CUDA, a control plane), or use unisono-run"}));
}

UNISONO_NAMESPACE_END
