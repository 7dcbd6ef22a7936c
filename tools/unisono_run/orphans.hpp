#pragma once

/// \file
/// Ends processes that ranks have left behind.

#include <sys/wait.h>

namespace unisono_run {

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
void kill_orphans();

} // namespace unisono_run
