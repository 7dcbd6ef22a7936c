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

} // namespace test
