// Processes that share only a launcher, or variables set by hand, form one world. They use it, and
// all ranks report each of its faults in the same words.

#include "../../extensions/launch/command.hpp"
#include "../../support/folder.hpp"
#include "support/skip.hpp"

#include <unisono/extensions/launch/sockets/socket.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>

namespace un = unisono;
using test::Command;
using test::Result;
using namespace std::chrono_literals;

namespace {

const std::string rank_program = UNISONO_WORLD_RANK;

Result launched(int ranks, std::vector<std::string> command) {
    command.insert(command.begin(), {UNISONO_RUN, "-n", std::to_string(ranks), "--timeout", "120", rank_program});
    return test::run_command(command);
}

/// Starts each rank as a process by hand, with variables that make them a job. A stopped rank is
/// killed after the others have ended.
std::vector<Result> by_hand(int ranks, const std::vector<std::string>& mode,
                            const std::function<std::map<std::string, std::string>(int rank)>& variables,
                            int stopped = -1) {
    std::vector<std::unique_ptr<Command>> commands;
    for (int rank = 0; rank < ranks; ++rank) {
        std::vector<std::string> line = mode;
        line.insert(line.begin(), rank_program);
        commands.push_back(std::make_unique<Command>(line, variables(rank)));
    }
    std::vector<Result> results(commands.size());
    for (std::size_t rank = 0; rank < commands.size(); ++rank) {
        if (static_cast<int>(rank) != stopped) results[rank] = commands[rank]->end();
    }
    if (stopped >= 0) results[static_cast<std::size_t>(stopped)] = commands[static_cast<std::size_t>(stopped)]->end(0s);
    for (const auto& command : commands) BOOST_TEST(command->left_behind() == 0);
    return results;
}

/// The ranks meet through a file in it, which is removed in the end.
class MeetingFolder {
public:
    MeetingFolder() = default;
    MeetingFolder(const MeetingFolder&) = delete;
    MeetingFolder& operator=(const MeetingFolder&) = delete;
    ~MeetingFolder() { BOOST_TEST(folder_.is_empty(), "something is left in " << folder_.path()); }

    [[nodiscard]] auto variables(int ranks) const {
        return [this, ranks](int rank) {
            return std::map<std::string, std::string>{{"UNISONO_FOLDER", folder_.path()},
                                                      {"UNISONO_RANK", std::to_string(rank)},
                                                      {"UNISONO_WORLD_SIZE", std::to_string(ranks)}};
        };
    }

private:
    unisono_test::Folder folder_;
};

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

/// Expects that all survivors report the same text, which has these words.
void expect_told(const Result& result, int survivors, const std::vector<std::string>& words) {
    std::vector<std::string> told; // from "unisono: " on
    for (std::size_t at = result.out.find("unisono: "); at != std::string::npos;
         at = result.out.find("unisono: ", at + 1))
        told.push_back(result.out.substr(at, result.out.find('\n', at) - at));
    BOOST_TEST(told.size() == static_cast<std::size_t>(survivors), result.all());
    for (const std::string& one : told) {
        BOOST_TEST(one == told.front(), result.all());
        for (const std::string& word : words)
            BOOST_TEST(one.find(word) != std::string::npos, "'" << word << "' not in: " << one);
    }
}

Result together(const std::vector<Result>& results) {
    Result all{.status = 0};
    for (const Result& one : results) {
        all.status = std::max(all.status, one.status);
        all.out += one.out;
        all.err += one.err;
    }
    return all;
}

/// From "killed at T" to "peer_lost ... at T" on each survivor, in milliseconds: less than the
/// world's deadline (helper/rank.cpp).
void expect_soon(const Result& result) {
    const auto number = [&](std::size_t at) { return std::atoll(result.out.c_str() + at); };
    const std::size_t killed = result.out.find("killed at ");
    BOOST_REQUIRE(killed != std::string::npos);
    for (std::size_t at = result.out.find("peer_lost rank "); at != std::string::npos;
         at = result.out.find("peer_lost rank ", at + 1))
        BOOST_TEST(number(result.out.find(" at ", at) + 4) - number(killed + 10) < 20'000, result.all());
}

bool installed(const std::string& program) {
    const bool found = test::run_command({"sh", "-c", "command -v " + program}).status == 0;
    if (!found) test::skip_part("there is no " + program);
    return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(worlds_launched)

BOOST_AUTO_TEST_CASE(unisono_run_makes_a_world) {
    for (const int ranks : {1, 2, 3, 5}) {
        const Result result = launched(ranks, {"use"});
        BOOST_TEST(result.status == 0, result.all());
        BOOST_TEST(count_of(result.out, ": all is well") == static_cast<std::size_t>(ranks), result.all());
    }
}

BOOST_AUTO_TEST_CASE(alone_without_a_launcher) {
    BOOST_TEST(test::run_command({rank_program, "use"}).has("rank 0 of 1: all is well"));
    BOOST_TEST(test::run_command({rank_program, "alone"}).has("rank 0 of 1"));
    const Result result = launched(2, {"alone"}); // its ranks are threads
    BOOST_TEST(result.status == 1, result.all());
    BOOST_TEST(result.has("refused: ranks of in_process are threads of one process"), result.all());
    BOOST_TEST(result.has("this process is rank 1 of 2 that unisono-run started"), result.all());
}

BOOST_AUTO_TEST_CASE(mpirun_makes_a_world) {
    const std::vector<std::vector<std::string>> launchers{
        {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"}, {"mpirun.mpich", "-n", "3"}};
    bool any = false;
    for (std::vector<std::string> line : launchers) {
        if (!installed(line.front())) continue;
        any = true;
        line.insert(line.end(), {rank_program, "use"});
        const Result result = test::run_command(line);
        BOOST_TEST(result.status == 0, result.all());
        for (const char* rank : {"0", "1", "2"})
            BOOST_TEST(result.has(un::concat({"rank ", rank, " of 3: all is well"})), result.all());
    }
    if (!any) test::skip("no mpirun");
}

// As the one host that it is, and as two pretended hosts.
BOOST_AUTO_TEST_CASE(launchers_make_worlds_over_hosts) {
    std::vector<std::string> transports{"hosts_tcp"};
#ifdef UNISONO_TEST_LIBFABRIC
    transports.emplace_back("hosts_libfabric");
#endif
    const std::vector<std::vector<std::string>> launchers{
        {UNISONO_RUN, "-n", "4", "--timeout", "120"},
        {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"},
        {"mpirun.mpich", "-n", "4"}};
    for (const std::vector<std::string>& launcher : launchers) {
        if (!installed(launcher.front())) continue;
        for (const std::string& transport : transports) {
            for (const bool two : {false, true}) {
                std::vector<std::string> line = launcher;
                line.insert(line.end(), {UNISONO_ACROSS_RANK, transport});
                std::map<std::string, std::string> variables;
                if (two) variables["UNISONO_HOSTS"] = "a,b,a,b";
                const Result result = Command(line, variables).end();
                BOOST_TEST(result.status == 0, result.all());
                const char* const wanted = two ? " of 4 on 2 hosts: all is well" : " of 4 on 1 hosts: all is well";
                BOOST_TEST(count_of(result.out, wanted) == 4u, result.all());
            }
        }
    }
}

// The transport follows from a word, or from where the ranks are. All ranks report an error. No
// rank waits for a rank with another word.
BOOST_AUTO_TEST_CASE(a_program_chooses_the_transport_of_launched_ranks) {
    const auto chosen = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(),
                         {UNISONO_RUN, "-n", "3", "--timeout", "120", UNISONO_ACROSS_RANK, "chosen"});
        return test::run_command(arguments);
    };
    for (const std::string word : {"", "shared_memory", "tcp"}) {
        const Result result = chosen({word});
        BOOST_TEST(result.status == 0, result.all());
        BOOST_TEST(count_of(result.out, "of 3 over " + (word.empty() ? "shared_memory" : word)) == 3u, result.all());
        const Result thrown = chosen({word, "1"});
        BOOST_TEST(thrown.status == 5, thrown.all());
        BOOST_TEST(count_of(thrown.out, "threw its own reason") == 1u, thrown.all());
        BOOST_TEST(count_of(thrown.out, "aborted: rank 1 threw: its own reason") == 2u, thrown.all());
    }
    const auto expect_refused = [](const Result& result, const std::string& words) {
        BOOST_TEST(result.status == 5, result.all());
        BOOST_TEST(count_of(result.out, words) == 3u, result.all());
    };
    expect_refused(chosen({"pigeon"}), "no transport is called 'pigeon'; expected in_process, shared_memory or tcp");
    expect_refused(chosen({"in_process"}), "refused: ranks of in_process are threads of one process");
    const std::string differing = "exec \"$0\" chosen $([ $RANK = 2 ] && echo tcp || echo shared_memory)";
    expect_refused(
        test::run_command({UNISONO_RUN, "-n", "3", "--timeout", "120", "sh", "-c", differing, UNISONO_ACROSS_RANK}),
        "mismatch: ranks must choose the same transport, but rank 0 has the word 'shared_memory' and rank 2 'tcp'");
}

BOOST_AUTO_TEST_CASE(torchruns_variables_make_a_world) {
    // If torchrun's store has the port, ranks of one parent meet through a file. Otherwise rank 0
    // listens there.
    for (const bool store : {false, true}) {
        const std::string port = std::to_string(un::detail::listen_at(true, 0).port);
        const Result result = together(by_hand(3, {"use"}, [&](int rank) {
            const std::string number = std::to_string(rank);
            std::map<std::string, std::string> all{
                {"RANK", number},    {"WORLD_SIZE", "3"},       {"LOCAL_RANK", number}, {"LOCAL_WORLD_SIZE", "3"},
                {"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"}, {"MASTER_PORT", port},  {"MASTER_ADDR", "127.0.0.1"}};
            if (store) all["TORCHELASTIC_USE_AGENT_STORE"] = "True";
            return all;
        }));
        BOOST_TEST(result.status == 0, result.all());
        BOOST_TEST(count_of(result.out, "of 3: all is well") == 3u, result.all());
    }
}

BOOST_AUTO_TEST_CASE(a_death_is_known_to_all) {
    for (const int victim : {0, 2}) {
        const Result result = launched(3, {"kill", std::to_string(victim)});
        BOOST_TEST(result.status == 137, result.all());
        // Reported by the launcher, or by the rank that waits for the victim.
        expect_told(result, 2, {"peer_lost", un::concat({"rank ", victim, " "})});
        expect_soon(result);
        // If no launcher outlives the ranks, rank 0 keeps the star.
        const MeetingFolder folder;
        const Result alone = together(by_hand(3, {"kill", std::to_string(victim)}, folder.variables(3)));
        expect_told(alone, 2, {"peer_lost", un::concat({"rank ", victim})});
        expect_soon(alone);
    }
    expect_told(launched(3, {"check", "1"}), 2, {"peer_lost", "rank 1 "});
    // A process that ends with success, but without a goodbye.
    expect_told(launched(3, {"exit", "1", "0"}), 2, {"peer_lost", "rank 1 "});
}

BOOST_AUTO_TEST_CASE(who_leaves_early_is_named) {
    expect_told(launched(3, {"return", "1"}), 2, {"peer_lost in barrier #2: rank 1 has left"});
}

BOOST_AUTO_TEST_CASE(who_is_done_may_go) {
    // Rank 0 keeps the hub, and waits for the others' goodbyes.
    for (const int first : {0, 1}) {
        const MeetingFolder folder;
        const Result result = together(by_hand(3, {"early", std::to_string(first)}, folder.variables(3)));
        BOOST_TEST(result.status == 0, result.all());
        BOOST_TEST(count_of(result.out, "all is well") == 2u, result.all());
    }
}

BOOST_AUTO_TEST_CASE(children_of_ranks_are_no_ranks) {
    const Result result = launched(3, {"forks"});
    BOOST_TEST(result.status == 0, result.all());
    BOOST_TEST(count_of(result.out, ": all is well") == 3u, result.all());
}

BOOST_AUTO_TEST_CASE(what_a_rank_throws_is_everyones) {
    const Result told = launched(3, {"throw", "1"});
    BOOST_TEST(told.status == 5, told.all());
    expect_told(told, 2, {"aborted: rank 1 threw: its own reason"});
    const Result untold = launched(3, {"unwind", "2"});
    BOOST_TEST(untold.status == 5, untold.all());
    expect_told(untold, 2, {"aborted: rank 2 left its world because of an exception"});
}

BOOST_AUTO_TEST_CASE(a_timeout_names_the_rank_at_the_root) {
    for (const int victim : {0, 1, 3}) {
        const std::string who = un::concat({"rank ", victim});
        const Result stopped = launched(4, {"chain", std::to_string(victim)});
        expect_told(stopped, 3, {"timeout in send/receive", who + " is stopped"});
        BOOST_TEST(count_of(stopped.out, "timeout rank ") == 3u, stopped.all());
        BOOST_TEST(count_of(stopped.out, un::concat({" peer ", victim, " at "})) == 3u, stopped.all());
    }
    const Result computes = launched(4, {"chain", "1", "6000"});
    BOOST_TEST(count_of(computes.out, " peer 1 at ") >= 3u, computes.all());
    BOOST_TEST(computes.has("rank 1 is in no call of the library"), computes.all());
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named) {
    for (const int victim : {0, 2}) {
        const Result result = launched(3, {"stop", std::to_string(victim)});
        expect_told(result, 2, {"timeout in all_reduce #2", un::concat({"rank ", victim, " is stopped"})});
        BOOST_TEST(count_of(result.out, un::concat({" peer ", victim, " at "})) == 2u, result.all());
    }
    expect_told(launched(3, {"poll", "1"}), 2, {"timeout in all_reduce #2", "waited 2000 ms", "rank 1 is stopped"});
    const MeetingFolder folder;
    expect_told(together(by_hand(3, {"stop", "1"}, folder.variables(3), 1)), 2, {"timeout", "rank 1 is stopped"});
}

BOOST_AUTO_TEST_CASE(a_slow_rank_is_waited_for) {
    // Longer than a rank waits for an answer.
    const Result result = launched(3, {"slow", "1", "2500"});
    BOOST_TEST(result.status == 0, result.all());
    BOOST_TEST(count_of(result.out, "all came") == 3u, result.all());
}

BOOST_AUTO_TEST_CASE(a_mismatch_says_what_each_had) {
    const Result result = launched(3, {"mismatch", "1"});
    expect_told(result, 3, {"mismatch in all_reduce #2", "of 100 float32 elements", "of 200 float32 elements"});
}

BOOST_AUTO_TEST_SUITE_END()
