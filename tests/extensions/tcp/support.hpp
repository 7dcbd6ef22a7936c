// Shared by the tests of ranks over sockets.
#pragma once

#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Tcp
#include "support/joined.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <dirent.h>
#include <string>
#include <sys/socket.h>

namespace test {

namespace un = unisono;

inline std::size_t open_files() {
    std::size_t count = 0;
    DIR* const opened = ::opendir("/proc/self/fd");
    if (opened == nullptr) return 0;
    while (::readdir(opened) != nullptr) ++count;
    ::closedir(opened);
    return count;
}

/// Expects that all sockets are closed again.
class NoSocketLeft {
public:
    ~NoSocketLeft() { BOOST_TEST(open_files() == files_); }

private:
    std::size_t files_ = open_files();
};

/// The port of "127.0.0.1:40000 (interface lo)".
inline int port_of(const std::string& address) { return std::atoi(address.c_str() + address.find(':') + 1); }

/// The greeting of a rank that has the world's key, by hand: from rank 1 to rank 0 of two, unless
/// given. Calls `progress()` until the other side has answered. False: it does not accept.
template <class Progress>
bool greet(int fd, const un::JobToken& key, Progress progress, int connection = 0, int from = 1, int to = 0,
           int ranks = 2) {
    using Answer = un::detail::TcpCall::Answer;
    un::detail::TcpCall call(from, to, ranks, connection);
    if (::send(fd, call.hello().data(), call.hello().size(), MSG_NOSIGNAL) != static_cast<ssize_t>(call.hello().size()))
        return false;
    Answer answer = Answer::waits;
    for (const un::nanoseconds until = un::steady_now() + 10'000'000'000;
         answer == Answer::waits && un::steady_now() < until;) {
        progress();
        answer = call.look(fd, key);
    }
    return answer == Answer::accepted;
}

} // namespace test
