#pragma once

/// \file
/// The words of errors about threads and processes that the system does not make: what it said,
/// which limits there are, and what to do.

#include "unisono/core/config.hpp"

#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The limits on threads and processes that apply to this process, for messages.
[[gnu::cold]] std::string limits_of_threads();

/// A message: the part of the library has no thread, since pthread_create returned `failed`.
[[gnu::cold]] std::string no_thread_for(std::string_view part, int failed);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/text.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/resource.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first line of a file of the system; empty if there is none.
[[gnu::cold]] inline std::string first_line(const std::string& path) {
    char line[512] = {};
    if (std::FILE* const file = std::fopen(path.c_str(), "re")) {
        if (std::fgets(line, sizeof line, file) != nullptr) line[std::strcspn(line, "\n")] = '\0';
        static_cast<void>(std::fclose(file));
    }
    return line;
}

/// The narrowest pids.max of this process's control groups, with the number in use: "64 (64 in
/// use)". Empty if none limits it.
[[gnu::cold]] inline std::string limit_of_control_group() {
    std::string path; // the group for pids, or the one for all
    if (std::FILE* const file = std::fopen("/proc/self/cgroup", "re")) {
        for (char line[512]; std::fgets(line, sizeof line, file) != nullptr;) {
            std::string_view text(line, std::strcspn(line, "\n"));
            const bool own = text.find(":pids:") != std::string_view::npos;
            const bool all = text.starts_with("0::");
            if (!own && !all) continue;
            text.remove_prefix(text.find('/') == std::string_view::npos ? text.size() : text.find('/'));
            path = concat({own ? "/sys/fs/cgroup/pids" : "/sys/fs/cgroup", text});
            if (own) break;
        }
        static_cast<void>(std::fclose(file));
    }
    std::string narrowest;
    long least = -1;
    for (std::string_view at = path; at.size() >= std::strlen("/sys/fs/cgroup"); at = at.substr(0, at.rfind('/'))) {
        if (at.ends_with('/')) at.remove_suffix(1); // the root
        const std::string most = first_line(concat({at, "/pids.max"}));
        if (most.empty() || most == "max") continue;
        const long number = std::strtol(most.c_str(), nullptr, 10);
        if (least >= 0 && number >= least) continue;
        least = number;
        narrowest = concat({most, " (", first_line(concat({at, "/pids.current"})), " in use)"});
    }
    return narrowest;
}

[[gnu::cold]] UNISONO_DEFINITION std::string limits_of_threads() {
    std::string text;
    const auto add = [&](std::initializer_list<TextPart> parts) {
        text += text.empty() ? "" : ", ";
        text += concat(parts);
    };
    rlimit limit = {};
    if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        add({"ulimit -u is ", limit.rlim_cur, " for all threads and processes of user ", ::geteuid()});
    if (const std::string group = limit_of_control_group(); !group.empty())
        add({"pids.max of the container or control group is ", group});
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        add({"ulimit -v is ", limit.rlim_cur / 1024, " KiB of address space, which stacks take, too"});
    if (text.empty()) add({"kernel.threads-max is ", first_line("/proc/sys/kernel/threads-max")});
    return text;
}

[[gnu::cold]] UNISONO_DEFINITION std::string no_thread_for(std::string_view part, int failed) {
    const char* const why = std::strerror(failed); // NOLINT(concurrency-mt-unsafe)
    return concat({"no thread for ", part, ": ", why, " (", limits_of_threads(),
                   "; raise the limit, or start fewer ranks and threads)"});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
