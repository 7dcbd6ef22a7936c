#pragma once

/// \file
/// The traces of others that a launcher removes: processes that ranks have left, and variables.

#include "unisono/launch/environment.hpp"
#include "unisono/launch/host.hpp"

#include <algorithm>
#include <csignal>
#include <dirent.h>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Kills processes that ranks have started in sessions of their own and left behind: all children
/// of this process, which must be a subreaper (PR_SET_CHILD_SUBREAPER).
inline void kill_orphans() {
    for (int attempt = 0; attempt < 100; ++attempt) {
        bool found = false;
        DIR* all = ::opendir("/proc");
        if (all == nullptr) return;
        while (const dirent* entry = ::readdir(all)) {
            int pid = 0;
            if (!parse_count(entry->d_name, 1 << 30, pid) || process_field(pid, 4) != std::to_string(::getpid()))
                continue;
            found = true;
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        ::closedir(all);
        if (!found) return; // a child's children are ours only after its end: look again
    }
}

/// Variables that name a process or its meeting point; other variables of the library are settings
/// (such as UNISONO_INTERFACE), which ranks keep.
inline bool says_who_a_process_is(std::string_view name) {
    constexpr std::string_view known[] = {
        "UNISONO_RANK",  "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_RANK",      "UNISONO_LOCAL_WORLD_SIZE", "UNISONO_HUB",
        "UNISONO_TOKEN", "UNISONO_TOKEN_FILE", "UNISONO_MASTER",          "UNISONO_FOLDER",           "UNISONO_JOB",
        "UNISONO_HOST",  "UNISONO_LAUNCHER",   "UNISONO_LAUNCHER_PROCESS"};
    return std::find(std::begin(known), std::end(known), name) != std::end(known) ||
           name.starts_with("TORCHELASTIC_") || name.starts_with("PET_");
}

} // namespace detail
UNISONO_NAMESPACE_END
