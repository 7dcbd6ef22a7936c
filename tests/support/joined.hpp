// Shared by the tests of networks: temporary environment variables, texts, and ranks that are
// processes. The ranks join, fail, and report their errors.
#pragma once

#include "../base/collective/findings.hpp"
#include "../base/collective/oracle.hpp"

#include <unisono/extensions/launch/sockets/fork_run.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// Sets a variable for the time of a test, in this process and in those that it forks.
class Variable {
public:
    Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { ::unsetenv(name_); }

private:
    const char* name_;
};

inline bool mentions(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words)
        if (text.find(word) == std::string::npos) return false;
    return true;
}

template <class Family>
void check_all_reduce(Group& group, Findings& findings, std::size_t count, const Family& family) {
    std::vector<float> data = oracle::contribution<float>(group.rank(), count);
    unisono::all_reduce(group, data, unisono::Sum{}, family);
    findings.expect(oracle::equal(data, oracle::reduced<float>(group.size(), count, unisono::Sum{})),
                    std::string(Family::name) + " of " + std::to_string(count) + " on " + std::to_string(group.size()));
}

/// A rank's report at its end. Code: 0 if it succeeded, -1 if it was killed.
struct Told {
    int code = -1;
    int peer = -1;
    char text[700] = {};
};
using AllTold = std::array<Told, 8>;

/// Each rank calls join(plane), then body(world, the process IDs of all ranks). Records the error
/// that either throws. A process that ends otherwise was killed by the test.
template <class Join, class Body>
void run_joined(int ranks, AllTold& told, Join join, Body body) {
    try {
        unisono::fork_run(ranks,
                          [&](unisono::ControlPlane& plane) {
                              Told& mine = told.at(static_cast<std::size_t>(plane.rank()));
                              std::vector<int> pids;
                              for (int rank = 0; rank < plane.size(); ++rank) pids.push_back(plane.pid_of(rank));
                              try {
                                  auto world = join(std::move(plane));
                                  body(world, pids);
                                  mine.code = 0;
                              } catch (const unisono::error& failed) {
                                  mine.code = static_cast<int>(failed.code());
                                  mine.peer = failed.peer();
                                  std::string(failed.what()).copy(mine.text, sizeof mine.text - 1);
                              }
                          },
                          {.timeout = std::chrono::seconds(60), .grace = std::chrono::seconds(20)});
    } catch (const unisono::error&) { // a rank that was killed
    }
}

/// Expects that all ranks but the victim (-1: none) failed with this code, blame the victim, and
/// mention all these words.
inline void expect(const AllTold& told, int ranks, int victim, unisono::ErrorCode code,
                   const std::vector<std::string>& words) {
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == victim) continue;
        const Told& one = told.at(static_cast<std::size_t>(rank));
        BOOST_TEST(one.code == static_cast<int>(code), "rank " << rank << ": " << one.text);
        if (code == unisono::ErrorCode::peer_lost || code == unisono::ErrorCode::timeout)
            BOOST_TEST(one.peer == victim, "rank " << rank << ": " << one.text);
        BOOST_TEST(mentions(one.text, words), "rank " << rank << ": " << one.text);
    }
}

} // namespace test
