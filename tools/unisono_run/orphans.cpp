#include "orphans.hpp"

#include "names.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/host.hpp"

#include <csignal>
#include <dirent.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace unisono_run {

void kill_orphans() {
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

} // namespace unisono_run
