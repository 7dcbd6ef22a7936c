// Shared by the tests of networks: temporary environment variables, texts, and ranks that are
// processes. The ranks join, fail, and report their errors.
#pragma once

#include "../base/collective/findings.hpp"
#include "../base/collective/oracle.hpp"

#include <unisono/extensions/launch/sockets/fork_run.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
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

/// Compares the collectives but all_reduce with their definitions, with each rank as the root.
template <class World>
void check_others(World& group, Findings& findings, std::size_t count) {
    const int ranks = group.size();
    const auto p = static_cast<std::size_t>(ranks);
    const std::string where = " of " + std::to_string(count) + " on " + std::to_string(ranks);
    const auto mine = oracle::contribution<int>(group.rank(), count);
    std::vector<int> all(p * count), expected, part(count);
    for (int peer = 0; peer < ranks; ++peer) {
        const auto theirs = oracle::contribution<int>(peer, count);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    unisono::all_gather(group, mine, all);
    findings.expect(all == expected, "all_gather" + where);
    unisono::reduce_scatter(group, expected, part);
    std::vector<int> sums = mine;
    for (int& sum : sums) sum *= ranks;
    findings.expect(part == sums, "reduce_scatter" + where);
    for (int root = 0; root < ranks; ++root) {
        unisono::scatter(group, group.rank() == root ? expected : std::vector<int>(), part, root);
        findings.expect(part == mine, "scatter" + where);
        std::fill(all.begin(), all.end(), 0);
        unisono::gather(group, mine, all, root);
        findings.expect(group.rank() != root || all == expected, "gather" + where);
        std::vector<int> from_root = mine;
        unisono::broadcast(group, from_root, root);
        findings.expect(from_root == oracle::contribution<int>(root, count), "broadcast" + where);
        std::vector<int> total(count);
        unisono::reduce(group, mine, total, root);
        findings.expect(group.rank() != root ||
                            oracle::equal(total, oracle::reduced<int>(ranks, count, unisono::Sum{})),
                        "reduce" + where);
    }
    std::vector<int> send(p * count), received(p * count);
    for (std::size_t peer = 0; peer < p; ++peer)
        std::fill_n(send.begin() + static_cast<std::ptrdiff_t>(peer * count), count,
                    10 * group.rank() + static_cast<int>(peer));
    unisono::all_to_all(group, send, received);
    for (std::size_t peer = 0; peer < p; ++peer)
        findings.expect(count == 0 || received[peer * count] == 10 * static_cast<int>(peer) + group.rank(),
                        "all_to_all" + where);
    unisono::barrier(group);
}

/// All-reduces in flight in a group and in a group of some of its ranks, waited for in another
/// order on rank 1.
template <class World>
void check_several_in_flight(World& group, World& half, Findings& findings) {
    std::vector<std::vector<float>> data;
    for (std::size_t i = 0; i < 30; ++i)
        data.push_back(oracle::contribution<float>(i % 2 == 0 ? group.rank() : half.rank(), 10 + i * 3000));
    std::vector<unisono::Operation> pending;
    for (std::size_t i = 0; i < data.size(); ++i)
        pending.push_back(unisono::start_all_reduce(i % 2 == 0 ? group : half, data[i]));
    for (std::size_t i = 0; i < pending.size(); ++i) pending[group.rank() == 1 ? pending.size() - 1 - i : i].wait();
    for (std::size_t i = 0; i < data.size(); ++i)
        findings.expect(oracle::equal(data[i], oracle::reduced<float>(i % 2 == 0 ? group.size() : half.size(),
                                                                      data[i].size(), unisono::Sum{})),
                        "operation " + std::to_string(i));
}

/// What a rank has sent arrives though it has ended, and another one ended before.
template <class World = Group>
void check_sent_before_leaving(std::size_t count) {
    on_ranks(3, [&](World& group, Findings& findings) {
        std::vector<float> data(count, 2.0f);
        if (group.rank() == 0) return unisono::send(group, data, 2); // and ends
        if (group.rank() == 1) return;                               // immediately
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::vector<float> in(data.size());
        unisono::receive(group, in, 0);
        findings.expect(in == data, "received");
    });
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

// Cases of ranks that are processes. `run(ranks, told, body)` runs them, and takes a time limit.

template <class Run>
void check_join_and_leave(int ranks, Run run) {
    const Shared<AllTold> told;
    run(ranks, *told, [&](auto& world, const std::vector<int>&) {
        for (const std::size_t count : {1u, 1000u, 200'000u}) {
            std::vector<float> data(count, 1.0f);
            unisono::all_reduce(world, data);
            if (data[count - 1] != static_cast<float>(ranks))
                throw unisono::error(unisono::ErrorCode::aborted, "wrong sum");
        }
        std::vector<float> last(300'000, 5.0f); // the root of a broadcast ends soon
        unisono::broadcast(world, last, 0);
        if (last[299'999] != 5.0f) throw unisono::error(unisono::ErrorCode::aborted, "wrong last");
    });
    expect(*told, ranks, -1, unisono::ErrorCode::none, {});
}

/// All name the killed rank, whichever it is.
template <class Run>
void check_killed(Run run) {
    for (int victim = 0; victim < 3; ++victim) {
        const Shared<AllTold> told;
        run(3, *told, [&](auto& world, const std::vector<int>&) {
            std::vector<float> data(50'000, 1.0f);
            for (int i = 0; i < 1000; ++i) {
                if (i == 20 && world.rank() == victim) ::raise(SIGKILL);
                unisono::all_reduce(world, data);
            }
        });
        expect(*told, 3, victim, unisono::ErrorCode::peer_lost, {"rank " + std::to_string(victim)});
    }
}

/// All name the stopped rank at the deadline.
template <class Run>
void check_stopped(Run run) {
    const Shared<AllTold> told;
    const auto body = [](auto& world, const std::vector<int>& pids) {
        std::vector<float> data(50'000, 1.0f);
        unisono::all_reduce(world, data);
        if (world.rank() == 1) ::raise(SIGSTOP);
        try {
            unisono::all_reduce(world, data);
        } catch (const unisono::error&) {
            if (world.rank() == 0) ::kill(pids[1], SIGKILL);
            throw;
        }
    };
    run(3, *told, body, std::chrono::seconds(2));
    expect(*told, 3, 1, unisono::ErrorCode::timeout, {"rank 1", "stopped"});
}

} // namespace test
