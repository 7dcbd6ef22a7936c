// Threads and processes that the system does not make: the error names the limit and the part that
// needed one, all ranks end with it, and signals still reach the program.

#include "../../extensions/launch/command.hpp"
#include "../../extensions/launch/ranks.hpp"

#include <algorithm>
#include <memory>

namespace {

using test::Command;
using test::Result;

const std::string limited = UNISONO_GROUP_LIMITED;

void expect(const Result& result, const std::string& part) {
    BOOST_CHECK_MESSAGE(result.status == 128 + SIGTERM && result.has("unisono: refused") && result.has(part) &&
                            result.has("ulimit -u is "),
                        "expected '" << part << "'; " << result.all());
}

/// A job of three ranks, of which one is, or all are, under the limit.
std::vector<Result> job(const std::string& whose) {
    std::map<std::string, std::string> environment{{"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(test::free_port())},
                                                   {"UNISONO_TOKEN", "0123456789abcdef0123456789abcdef"},
                                                   {"WORLD_SIZE", "3"},
                                                   {"LOCAL_WORLD_SIZE", "3"}};
    std::vector<std::unique_ptr<Command>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
        ranks.push_back(std::make_unique<Command>(std::vector<std::string>{limited, whose}, environment));
    }
    std::vector<Result> results;
    for (const auto& each : ranks)
        results.push_back(each->end(std::chrono::seconds(15))); // before the ranks' own limit
    return results;
}

} // namespace

BOOST_AUTO_TEST_SUITE(group_limits)

BOOST_AUTO_TEST_CASE(parts_that_need_a_thread) {
    expect(test::run_command({limited, "run"}), "no thread for rank ");
    expect(test::run_command({limited, "loader"}), "no thread for Loader, which reads ahead");
    expect(test::run_command({limited, "progress"}), "no thread for ProgressThread");
}

BOOST_AUTO_TEST_CASE(processes) {
    expect(test::run_command({limited, "fork"}), "cannot fork");
    expect(test::run_command({limited, "processes"}), "cannot fork");
}

BOOST_AUTO_TEST_CASE(a_rank_without_its_thread_ends_the_job) {
    for (const Result& result : job("1")) expect(result, "rank 1: no thread for the connection");
}

BOOST_AUTO_TEST_CASE(a_hub_without_its_thread_ends_the_job) {
    for (const Result& result : job("0")) expect(result, "no thread for the hub");
}

BOOST_AUTO_TEST_CASE(ranks_in_each_process_of_a_launcher_are_several_worlds) {
    const auto said = [](const std::string& rank, const std::string& world, const char* name) {
        const std::string prefix = name;
        return test::run_command({limited, "worlds"}, {{prefix + "RANK", rank},
                                                       {prefix + (prefix == "PMI_" ? "SIZE" : "WORLD_SIZE"), world}})
            .err;
    };
    for (const char* name : {"", "UNISONO_", "PMI_"}) {
        const std::string line = said("0", "2", name);
        BOOST_CHECK_MESSAGE(line.starts_with("simulated\nunisono: warning: run starts 2 ranks in this process, and a "
                                             "launcher started 2 such"),
                            line);
        BOOST_CHECK_EQUAL(std::count(line.begin(), line.end(), '\n'), 2);
        BOOST_CHECK_EQUAL(said("1", "2", name), "simulated\n");
        BOOST_CHECK_EQUAL(said("0", "1", name), "simulated\n");
    }
}

BOOST_AUTO_TEST_CASE(ranks_in_a_process_that_joined_its_job) {
    for (const Result& result : job("no rank"))
        BOOST_CHECK_MESSAGE(result.has("met") && result.err.empty(), result.all());
}

BOOST_AUTO_TEST_SUITE_END()
