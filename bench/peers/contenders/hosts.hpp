#pragma once

// The place of a rank: on the loopback, or on one of the hosts, which are network namespaces. The
// script makes them and lists them in BENCH_HOSTS as "FILE ADDRESS FILE ADDRESS ...". Consecutive
// ranks share a host.

#include "support/driver.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace bench {

struct Host {
    std::string space; ///< the file of its namespace; empty: this program's own
    std::string address;
};

inline const std::vector<Host>& hosts() {
    static const std::vector<Host> all = [] {
        std::vector<Host> found;
        const char* const text = std::getenv("BENCH_HOSTS");
        std::istringstream words(text != nullptr ? text : "");
        for (Host one; words >> one.space >> one.address;) found.push_back(one);
        if (found.empty()) found.push_back({"", "127.0.0.1"});
        return found;
    }();
    return all;
}
inline const Host& host_of(int rank, int ranks) {
    return hosts()[static_cast<std::size_t>(rank) * hosts().size() / static_cast<std::size_t>(ranks)];
}

/// Moves this process, which has one thread, there.
inline void enter_host(int rank, int ranks) {
    const Host& host = host_of(rank, ranks);
    if (host.space.empty()) return;
    const int file = ::open(host.space.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::setns(file, CLONE_NEWNET) != 0)
        give_up("cannot enter the host '" + host.space + "': " + std::strerror(errno));
    ::close(file);
}

} // namespace bench
