// A fault of a rank or its launcher must not hold up the other ranks, which report what happened.
// outside.py makes many such faults at random times. Each test here shows one rule.

#include "../../extensions/launch/command.hpp"
#include "../../support/folder.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <memory>
#include <thread>

namespace un = unisono;
using test::Command;
using test::Result;
using namespace std::chrono_literals;

namespace {

const std::string rank_program = UNISONO_FAULTY_RANK;

/// Ranks as processes that meet in a folder. Rank 0 keeps the hub.
class ByHand {
public:
    ByHand(int ranks, std::vector<std::string> mode) {
        mode.insert(mode.begin(), rank_program);
        for (int rank = 0; rank < ranks; ++rank)
            commands_.push_back(std::make_unique<Command>(
                mode, std::map<std::string, std::string>{{"UNISONO_FOLDER", folder_.path()},
                                                         {"UNISONO_RANK", std::to_string(rank)},
                                                         {"UNISONO_WORLD_SIZE", std::to_string(ranks)}}));
    }
    ByHand(const ByHand&) = delete;
    ByHand& operator=(const ByHand&) = delete;
    ~ByHand() { BOOST_TEST(folder_.is_empty(), "something is left in " << folder_.path()); }

    Command& operator[](int rank) { return *commands_[static_cast<std::size_t>(rank)]; }

private:
    unisono_test::Folder folder_;
    std::vector<std::unique_ptr<Command>> commands_;
};

std::string pid_of(const std::string& said, int rank) {
    const std::string before = "[" + std::to_string(rank) + "] ready ";
    const std::size_t at = said.find(before);
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, said);
    return said.substr(at + before.size(), said.find('\n', at) - at - before.size());
}

bool has_ended(int pid) {
    const std::string state = un::detail::process_field(pid, 3);
    return state.empty() || state == "Z";
}

} // namespace

BOOST_AUTO_TEST_SUITE(worlds_outside)

// Rank 0 keeps the hub, so it leaves last. If a rank is stopped, rank 0 does not leave minutes
// after the others.
BOOST_AUTO_TEST_CASE(nobody_waits_for_the_goodbye_of_a_stopped_rank) {
    for (const std::string transport : {"tcp", "memory"}) {
        ByHand ranks(4, {transport, "2000", "leave", "2"});
        BOOST_TEST(ranks[2].says("ready"));
        for (const int rank : {1, 3, 0}) {
            const Result left = ranks[rank].end(20s);
            BOOST_TEST(left.status == 0, "rank " << rank << ": " << left.all());
            const std::string names = "from rank 2 (pid " + std::to_string(ranks[2].pid()) +
                                      "), which is stopped (by a signal or a debugger)";
            BOOST_TEST(left.complains(names) == (rank == 0), "rank " << rank << ": " << left.all());
        }
        ranks[2].end(0s);
    }
}

// A rank is busy in code of its own. Then rank 0 waits as long as in any other call.
BOOST_AUTO_TEST_CASE(leaving_has_the_deadline_of_every_call) {
    ByHand ranks(3, {"memory", "1000", "sleep", "2"});
    for (const int rank : {1, 0}) {
        const Result left = ranks[rank].end(20s);
        BOOST_TEST(left.status == 0, left.all());
        BOOST_TEST(left.complains("ms no goodbye came from rank 2 (pid ") == (rank == 0), left.all());
    }
    ranks[2].end(0s);
}

BOOST_AUTO_TEST_CASE(unisono_run_waits_for_late_ranks_for_a_time) {
    for (const std::string mode : {"leave", "linger"}) {
        Command job({UNISONO_RUN, "-n", "3", "--wait", "1", "--grace", "1", rank_program, "memory", "2000", mode, "1"});
        const Result result = job.end(20s);
        BOOST_TEST(result.status == 124, result.all());
        const std::string late = "rank 1 (pid " + pid_of(result.out, 1) +
                                 (mode == "leave" ? "), which is stopped (by a signal or a debugger)" : ")");
        BOOST_TEST(
            result.complains(" ended well 1.0 s ago; not ended within --wait 1.0 s: " + late + "; stopping the job"),
            result.all());
        BOOST_TEST(job.left_behind() == 0);
    }
}

// The launcher is stopped, so it tells no rank about the others.
BOOST_AUTO_TEST_CASE(a_lost_rank_is_named_also_where_the_launcher_is_stopped) {
    for (const auto& [transport, mode] :
         {std::pair("tcp", "loop"), std::pair("memory", "loop"), std::pair("tcp", "gather")}) {
        Command job({UNISONO_RUN, "-n", "4", "--grace", "1", rank_program, transport, "2000", mode, "3"});
        for (const char* rank : {"[0]", "[1]", "[2]", "[3]"}) BOOST_REQUIRE(job.says(std::string(rank) + " ready "));
        std::vector<int> pids;
        for (int rank = 0; rank < 4; ++rank) pids.push_back(std::stoi(pid_of(job.said(), rank)));
        job.signal(SIGSTOP);
        ::kill(pids[3], SIGKILL);
        const auto until = un::deadline_after(un::steady_now(), 20s);
        for (const int pid : pids)
            while (!has_ended(pid) && un::steady_now() < until) std::this_thread::sleep_for(5ms);
        for (const int pid : pids) BOOST_TEST(has_ended(pid));
        job.signal(SIGCONT);
        const Result result = job.end(20s);
        for (const char* rank : {"rank 0", "rank 1", "rank 2"})
            BOOST_TEST(result.has(std::string(rank) + " peer_lost peer 3 after "), mode << ": " << result.all());
    }
}

BOOST_AUTO_TEST_SUITE_END()
