#pragma once

// A program whose ranks take turns under a script (contenders.py): how it starts, and its
// connection to the script.

#include "meeting.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bench {

[[noreturn]] inline void give_up(const std::string& why) {
    std::fprintf(stderr, "contender, process %d: %s\n", static_cast<int>(getpid()), why.c_str());
    std::fflush(stderr);
    // A library's destructors may wait for peers that are still working.
    _exit(1);
}

/// The command line of a contender: where the script listens, and the number of ranks.
struct Invitation {
    std::string place; ///< a directory
    int ranks = 0;
    std::string variant; ///< its meaning is the contender's own
};

/// Call this first: it records the cores of the program before ranks bind themselves to one.
inline Invitation invitation(int argc, char** argv) {
    cores();
    if (argc < 3) give_up("usage: PROGRAM DIRECTORY RANKS [VARIANT]; started by a script");
    return {argv[1], std::atoi(argv[2]), argc > 3 ? argv[3] : ""};
}

/// The connection to the script. Each rank first sends "hello RANK", then answers each line with
/// one line.
class Driver {
public:
    Driver(const std::string& place, int rank) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = place + "/driver";
        if (path.size() >= sizeof address.sun_path) give_up("the path '" + path + "' is too long for a socket");
        std::memcpy(address.sun_path, path.c_str(), path.size());
        if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
            give_up("cannot connect to '" + path + "': " + std::strerror(errno));
        say("hello " + std::to_string(rank));
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    ~Driver() { ::close(socket_); }

    void say(std::string line) const {
        line += '\n';
        for (std::size_t sent = 0; sent < line.size();) {
            const ssize_t some = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
            if (some <= 0) give_up("the script has gone");
            sent += static_cast<std::size_t>(some);
        }
    }
    /// Sleeps until there is a line. Returns "quit" when the script has ended.
    [[nodiscard]] std::string hear() {
        for (;;) {
            if (const auto end = heard_.find('\n'); end != std::string::npos) {
                std::string line = heard_.substr(0, end);
                heard_.erase(0, end + 1);
                return line;
            }
            char some[512];
            const ssize_t length = ::read(socket_, some, sizeof some);
            if (length < 0 && errno == EINTR) continue;
            if (length <= 0) return "quit";
            heard_.append(some, static_cast<std::size_t>(length));
        }
    }

private:
    int socket_;
    std::string heard_;
};

/// The ranks' barrier between repetitions. It is the same for every contender, so that no contender
/// is measured by its own barrier.
inline void* common_page(const std::string& place) {
    const int file = ::open((place + "/meeting").c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) give_up("cannot open the ranks' meeting place in '" + place + "'");
    void* const page = mmap(nullptr, Meeting::page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) give_up("cannot map the ranks' meeting place");
    ::close(file);
    return page;
}

} // namespace bench
