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
#include <vector>

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

/// A connection to a port of this host, or to a rank's.
inline un::detail::FileDescriptor connected_to(int port) {
    std::string why;
    const auto addresses = un::detail::resolve("127.0.0.1", static_cast<std::uint16_t>(port), why);
    return un::detail::connect_to(addresses.at(0), un::steady_now() + 5'000'000'000, why);
}
inline un::detail::FileDescriptor connected_to(const Group& rank) {
    return connected_to(port_of(rank.endpoint().address()));
}

/// A fault of rank 0 of two: it blames rank 1, and mentions all these words. `what`: for messages.
inline void expect_fault(const un::Fault& found, un::ErrorCode code, const std::vector<std::string>& words = {},
                         const std::string& what = {}) {
    BOOST_TEST((found.code == code && found.peer == 1), what << found.message);
    BOOST_TEST(mentions(found.message, words), what << found.message);
}

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
