#pragma once

/// \file
/// Ends processes that ranks have left behind.

#include "unisono/launch/environment.hpp"
#include "unisono/launch/host.hpp"

#include <csignal>
#include <dirent.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Reaps processes that ranks have left behind and that have ended: children of this process, which
/// is a subreaper, that are not `owned(pid)`. Never waits. An owned child that has ended hides
/// those that ended later, until its owner has reaped it: then call again.
template <class Owned>
void reap_orphans(Owned owned) {
    for (;;) {
        siginfo_t info = {};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 || owned(info.si_pid))
            return;
        ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
}

/// Kills processes that ranks have started in separate sessions and left behind: all children of
/// this process, which must be a subreaper (PR_SET_CHILD_SUBREAPER).
inline void kill_orphans() {
    for (int attempt = 0; attempt < 100; ++attempt) {
        bool found = false;
        DIR* all = ::opendir("/proc");
        if (all == nullptr) return;
        while (const dirent* entry = ::readdir(all)) { // NOLINT(concurrency-mt-unsafe): of this stream alone
            int pid = 0;
            if (!parse_count(entry->d_name, 1 << 30, pid) || process_field(pid, 4) != std::to_string(::getpid()))
                continue;
            found = true;
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        ::closedir(all);
        if (!found) return; // a grandchild becomes a child only after its parent's end: look again
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
