// Ranks as processes: deaths, stops and slowness as the control plane reports them, with and
// without a launcher.

#include "command.hpp"
#include "ranks.hpp"
#include "support/folder.hpp"
#include "support/skip.hpp"

#include <thread>
#include <unisono/core/random.hpp>

#include <cstdlib>

namespace un = unisono;
using namespace std::chrono_literals;
using test::Command;
using test::Result;

namespace {

const std::string rank_program = UNISONO_LAUNCH_RANK;

/// A job without Unisono's launcher: rank 0 keeps the star.
class Job {
public:
    Job(int world, const std::vector<std::string>& arguments, std::map<std::string, std::string> environment = {}) {
        std::vector<std::string> command{rank_program};
        command.insert(command.end(), arguments.begin(), arguments.end());
        if (environment.empty()) {
            environment = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(test::free_port())}};
        }
        for (int rank = 0; rank < world; ++rank) {
            auto own = environment;
            own["RANK"] = own["LOCAL_RANK"] = std::to_string(rank);
            own["WORLD_SIZE"] = own["LOCAL_WORLD_SIZE"] = std::to_string(world);
            ranks_.push_back(std::make_unique<Command>(command, own));
        }
    }
    Command& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

    /// The ends of all ranks. Rank `stopped` is killed when the others have ended.
    std::vector<Result> end(int stopped = -1) {
        std::vector<Result> results(ranks_.size());
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            if (static_cast<int>(i) != stopped) results[i] = ranks_[i]->end();
        }
        if (stopped >= 0) rank(stopped).signal(SIGKILL);
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            if (static_cast<int>(i) == stopped) results[i] = ranks_[i]->end();
            BOOST_CHECK_EQUAL(ranks_[i]->left_behind(), 0);
        }
        return results;
    }

private:
    std::vector<std::unique_ptr<Command>> ranks_;
};

void expect(const Result& result, int status, const std::string& text) {
    BOOST_CHECK_MESSAGE(result.status == status && result.has(text),
                        "'" << text << "' and " << status << " expected; " << result.all());
}

} // namespace

BOOST_AUTO_TEST_SUITE(launch_processes)

BOOST_AUTO_TEST_CASE(ranks_meet_by_torchruns_variables) {
    for (const Result& result : Job(3, {"gather"}).end()) expect(result, 0, "gathered 012, host has 3");
}

BOOST_AUTO_TEST_CASE(ranks_meet_by_a_file) {
    const unisono_test::Folder folder;
    for (const Result& result : Job(3, {"gather"}, {{"UNISONO_FOLDER", folder.path()}}).end())
        expect(result, 0, "gathered 012");
    BOOST_CHECK(folder.is_empty());
    // Without an address: as under mpirun on one host, or under a torchrun whose own store is at
    // MASTER_PORT.
    for (const Result& result : Job(3, {"gather"}, {{"UNISONO_LAUNCHER", "torchrun"}}).end())
        expect(result, 0, "gathered 012");
    const auto taken = un::detail::listen_at(true, 0);
    const std::map<std::string, std::string> store{{"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(taken.port)},
                                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    for (const Result& result : Job(2, {"gather"}, store).end()) expect(result, 0, "gathered 01");
}

// A script in each rank's place is the ranks' parent, and the launcher is the scripts'.
BOOST_AUTO_TEST_CASE(a_script_may_start_each_rank) {
    const auto job = [](int rank, const std::string& script) {
        const std::string number = std::to_string(rank);
        return std::make_unique<Command>(std::vector<std::string>{"sh", "-c", script},
                                         std::map<std::string, std::string>{{"UNISONO_LAUNCHER", "torchrun"},
                                                                            {"RANK", number},
                                                                            {"LOCAL_RANK", number},
                                                                            {"WORLD_SIZE", "2"},
                                                                            {"LOCAL_WORLD_SIZE", "2"},
                                                                            {"UNISONO_NOTICE_AFTER", "0.2"}});
    };
    const auto first = job(0, rank_program + " gather; exit $?");
    const auto second = job(1, "sh -c '" + rank_program + " gather; exit $?'; exit $?");
    for (const auto* each : {&first, &second}) expect((*each)->end(), 0, "gathered 01");
    // A script that numbers the ranks itself cannot be told from a launcher: the notice names it.
    const auto alone = job(0, "RANK=1 LOCAL_RANK=1 timeout 3 " + rank_program + " gather; exit $?");
    BOOST_CHECK(alone->complains("ranks started by sh (process "));
    BOOST_CHECK(alone->complains("UNISONO_JOB"));
    static_cast<void>(alone->end());
}

// Another user of this host, who knows everything public about the job, comes first.
BOOST_AUTO_TEST_CASE(another_user_takes_no_place) {
    if (::geteuid() != 0) return test::skip("only root can be another user");
    for (const bool given : {false, true}) {
        std::map<std::string, std::string> known{{"MASTER_ADDR", "127.0.0.1"},
                                                 {"MASTER_PORT", std::to_string(test::free_port())}};
        auto foreign = known;
        foreign["RANK"] = foreign["LOCAL_RANK"] = "1";
        foreign["WORLD_SIZE"] = foreign["LOCAL_WORLD_SIZE"] = "2";
        if (given) known["UNISONO_TOKEN"] = un::JobToken::random().text();
        if (given) foreign["UNISONO_TRUSTED_NETWORK"] = "1"; // goes to the port
        Command thief({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", rank_program, "gather"}, foreign);
        std::this_thread::sleep_for(100ms);
        for (const Result& result : Job(2, {"gather"}, known).end()) expect(result, 0, "gathered 01");
        thief.signal(SIGKILL);
        const Result result = thief.end();
        BOOST_CHECK_MESSAGE(!result.has("gathered"), result.all());
        BOOST_TEST_MESSAGE(result.all());
    }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all_others) {
    for (const int victim : {0, 2}) {
        const auto results = Job(3, {"signal", std::to_string(victim), std::to_string(SIGKILL)}).end();
        for (int rank = 0; rank < 3; ++rank) {
            const Result& result = results[static_cast<std::size_t>(rank)];
            if (rank == victim) BOOST_CHECK_EQUAL(result.status, 128 + SIGKILL);
            else expect(result, 1, "fault peer_lost peer " + std::to_string(victim));
            if (rank != victim) BOOST_TEST_MESSAGE(result.out);
        }
    }
}

BOOST_AUTO_TEST_CASE(an_early_exit_is_a_death) {
    const auto results = Job(3, {"exit", "1", "0"}).end();
    expect(results[0], 1, "fault peer_lost peer 1");
    expect(results[2], 1, "fault peer_lost peer 1");
}

BOOST_AUTO_TEST_CASE(a_child_that_keeps_the_connection_open_hides_no_death) {
    if (!un::detail::open_process(::getpid()).valid()) return test::skip("this system has no pidfd");
    constexpr long child_ms = 6000;
    const auto results = Job(3, {"signal", "1", std::to_string(SIGKILL), std::to_string(child_ms)}).end();
    for (const std::size_t rank : {0u, 2u}) {
        expect(results[rank], 1, "fault peer_lost peer 1");
        const long after = std::strtol(results[rank].out.c_str() + results[rank].out.find("after ") + 6, nullptr, 10);
        BOOST_CHECK_LT(after, child_ms); // before the child ends
    }
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_and_not_its_neighbour) {
    // Rank 0 keeps the star. If it dies, no rank can ask.
    for (const int victim : {0, 1}) {
        const auto results = Job(3, {"stop", std::to_string(victim), "2000"}).end(victim);
        for (int rank = 0; rank < 3; ++rank) {
            const Result& result = results[static_cast<std::size_t>(rank)];
            if (rank != victim) expect(result, 1, "fault timeout peer " + std::to_string(victim));
            if (rank != victim && victim == 1) BOOST_CHECK_MESSAGE(result.has("rank 1 is stopped"), result.all());
        }
    }
}

BOOST_AUTO_TEST_CASE(a_slow_rank_is_never_dead) {
    for (const Result& result : Job(3, {"slow", "2", "2500"}).end()) expect(result, 0, "all came");
}

BOOST_AUTO_TEST_CASE(a_death_before_all_have_come_is_told_at_once) {
    std::map<std::string, std::string> environment{{"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(test::free_port())}};
    const auto me = [&](int rank) {
        auto own = environment;
        own["RANK"] = own["LOCAL_RANK"] = std::to_string(rank);
        own["WORLD_SIZE"] = own["LOCAL_WORLD_SIZE"] = "3";
        return own;
    };
    Command first({rank_program, "gather"}, me(0));
    Command second({rank_program, "gather"}, me(2));
    // A rank dies while the others wait for a third one. They are told immediately, not at the
    // deadline.
    std::this_thread::sleep_for(2s);
    second.signal(SIGKILL);
    const Result result = first.end();
    expect(result, 1, "fault peer_lost peer 2");
    static_cast<void>(second.end());
}

// A rank is killed or stopped at any time that a seed decides, with and without unisono-run.
// UNISONO_STORMS is the number of jobs (12 by default). UNISONO_STORM_SEED is the first seed.
BOOST_AUTO_TEST_CASE(kills_and_stops_at_random_moments, *boost::unit_test::label("slow")) {
    const auto number = [](const char* name, int otherwise) {
        const char* text = std::getenv(name);
        return text != nullptr ? std::atoi(text) : otherwise;
    };
    const int first = number("UNISONO_STORM_SEED", 1);
    for (int seed = first; seed < first + number("UNISONO_STORMS", 12); ++seed) {
        un::Mt19937 random{static_cast<std::uint64_t>(seed)};
        const int world = 2 + static_cast<int>(random() % 4);
        const int victim = static_cast<int>(random() % static_cast<unsigned>(world));
        const int signal = random() % 3 == 0 ? SIGSTOP : SIGKILL;
        const bool launched = random() % 2 == 0;
        const std::vector<std::string> arguments{"storm", std::to_string(victim), std::to_string(signal),
                                                 std::to_string(random() % 30'000)};
        const std::string fault =
            (signal == SIGKILL ? "fault peer_lost peer " : "fault timeout peer ") + std::to_string(victim);
        BOOST_TEST_CONTEXT("seed " << seed << ": world " << world << ", victim " << victim << ", signal " << signal
                                   << (launched ? ", launched" : "")) {
            if (!launched) {
                const auto results = Job(world, arguments).end(signal == SIGSTOP ? victim : -1);
                for (int rank = 0; rank < world; ++rank) {
                    if (rank != victim) expect(results[static_cast<std::size_t>(rank)], 1, fault);
                }
                continue;
            }
            std::vector<std::string> command{UNISONO_RUN, "-n", std::to_string(world), "--grace", "0.1", rank_program};
            command.insert(command.end(), arguments.begin(), arguments.end());
            const Result result = test::run_command(command);
            for (int rank = 0; rank < world; ++rank) {
                const std::string line = "[" + std::to_string(rank) + "] " + fault;
                if (rank != victim) expect(result, signal == SIGKILL ? 137 : 1, line);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(contradictions_reach_the_user) {
    const Result result = test::run_command(
        {rank_program, "alone"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}});
    expect(result, 1, "WORLD_SIZE=2 and LOCAL_WORLD_SIZE=4");
}

BOOST_AUTO_TEST_CASE(forked_ranks) {
    const auto forked = [](const std::string& what) { return test::run_command({rank_program, "fork", what}); };
    const Result well = forked("well");
    for (const char* line : {"rank 0 of 4\n", "rank 3 of 4\n", "alone 2 of 3\n", "after\n"}) expect(well, 0, line);
    // Buffered output is not written twice.
    BOOST_CHECK_EQUAL(well.out.find("before"), well.out.rfind("before"));
    const Result streams = forked("streams");
    for (const std::string line : {"before\n", "rank 0 speaks\n", "rank 1 speaks\n", "after\n"}) {
        expect(streams, 0, line);
        BOOST_CHECK_EQUAL(streams.out.find(line), streams.out.rfind(line));
    }
    for (const char* line : {"rank 0 logs\n", "rank 1 logs\n"}) BOOST_CHECK(streams.complains(line));
    const Result ended = forked("ended");
    expect(ended, 0, "aborted rank 1 peer -1: unisono: aborted: rank 1 threw: nothing, but its thread ended");
    BOOST_CHECK_EQUAL(ended.out.find("the parent's"), ended.out.rfind("the parent's"));
    expect(forked("throw"), 0, "aborted rank 2 peer -1: unisono: aborted: rank 2 threw: the user's own");
    expect(forked("orphan"), 0, "in time");
    expect(forked("error"), 0, "bad_input rank 1 peer -1: unisono: bad_input: wrong here");
    expect(forked("kill"), 0, "peer_lost rank 0 peer 0: unisono: peer_lost: rank 0 (pid ");
    expect(forked("stubborn"), 0, "exited with status 4");
    expect(forked("late"), 0,
           "timeout rank -1 peer 1: unisono: timeout in fork_run: still running after 300 ms, and killed: rank 1");
    expect(forked("threads"), 0,
           "refused rank -1 peer -1: unisono: refused: fork_run forks, but this process has 2 threads");
    expect(forked("again"), 0, "done");
    BOOST_CHECK(!forked("again").has("a child is left"));
    expect(forked("numbers"), 0, "found 0");
    expect(forked("long"), 0, "aborted rank 1 peer -1: unisono: aborted: rank 1 threw: xxx");
    for (const char* line : {"no error\nno error\n", "aborted rank 1 peer -1: unisono: aborted: rank 1 threw: its own",
                             "peer_lost rank 2 peer 2: unisono: peer_lost: rank 2 (pid ", "does not say how"})
        expect(forked("unheard"), 0, line);
}

BOOST_AUTO_TEST_SUITE_END()
