// Notices to users while ranks are missing, from programs as users run them.

#include "command.hpp"
#include "ranks.hpp"
#include "support/fails.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/launch/rendezvous/waiting_notice.hpp>

#include <filesystem>
#include <memory>

namespace un = unisono;
namespace d = un::detail;
using namespace std::chrono_literals;
using test::Command;
using test::Result;

namespace {

using Variables = std::map<std::string, std::string>;

std::unique_ptr<Command> rank(int rank, Variables variables) {
    variables["UNISONO_RANK"] = std::to_string(rank);
    variables["UNISONO_WORLD_SIZE"] = "3";
    return std::make_unique<Command>(std::vector<std::string>{UNISONO_LAUNCH_RANK, "gather"}, variables);
}

void expect_well(Command& command) {
    const Result result = command.end();
    BOOST_CHECK_MESSAGE(result.status == 0 && result.has("gathered 012"), result.all());
}

} // namespace

BOOST_AUTO_TEST_SUITE(launch_waiting)

BOOST_AUTO_TEST_CASE(notices_come_at_growing_intervals) {
    constexpr un::nanoseconds second = 1'000'000'000;
    d::NoticeTimes times(100 * second, 3s);
    std::vector<un::nanoseconds> told;
    for (un::nanoseconds now = 100 * second; now < 1500 * second; now += second)
        if (times.due(now)) told.push_back(now / second - 100);
    BOOST_TEST(told == (std::vector<un::nanoseconds>{3, 12, 39, 120, 363, 663, 963, 1263}),
               boost::test_tools::per_element());
    BOOST_CHECK(d::NoticeTimes(0, 0s).next() == un::never);
    BOOST_CHECK(d::notice_after({}, 3s) == 3s);
    BOOST_CHECK(d::notice_after({{"UNISONO_NOTICE_AFTER", "0"}}, 3s) == 0s);
    BOOST_CHECK(d::notice_after({{"UNISONO_NOTICE_AFTER", "0.5"}}, 0s) == 500ms);
    for (const char* wrong : {"", "no", "-1", "1e9", "1.2.3"})
        test::fails(un::ErrorCode::bad_input, {"UNISONO_NOTICE_AFTER is", "expected seconds"}, [&] {
            d::notice_after({{"UNISONO_NOTICE_AFTER", wrong}}, 3s);
        });
    test::fails(un::ErrorCode::bad_input, {"notice_after must not be negative"}, [] {
        un::rendezvous(un::Identity{.rank = 0, .world = 2}, test::local_point(), {.notice_after = -1s});
    });
}

BOOST_AUTO_TEST_CASE(rank_0_names_the_missing_and_others_name_rank_0) {
    const std::string address = "127.0.0.1:" + std::to_string(test::free_port());
    const Variables variables{
        {"UNISONO_MASTER", address}, {"UNISONO_TOKEN", std::string(32, '7')}, {"UNISONO_NOTICE_AFTER", "0.05"}};
    const auto first = rank(1, variables);
    BOOST_CHECK(first->complains("unisono: rank 1 of 3 is waiting for rank 0 at " + address + " (0 s so far; "));
    const auto meeting = rank(0, variables);
    BOOST_CHECK(meeting->complains("unisono: rank 0 of 3 is waiting for rank 2 at " + address + " ("));
    const auto last = rank(2, variables);
    for (Command* each : {first.get(), meeting.get(), last.get()}) expect_well(*each);
}

BOOST_AUTO_TEST_CASE(a_file_stands_for_the_address) {
    const unisono_test::Folder folder;
    const Variables variables{
        {"UNISONO_FOLDER", folder.path()}, {"UNISONO_JOB", "waits"}, {"UNISONO_NOTICE_AFTER", "0.05"}};
    const auto first = rank(2, variables);
    BOOST_CHECK(first->complains("rank 2 of 3 is waiting for rank 0 at " + folder / "waits.meet" + " ("));
    const auto meeting = rank(0, variables);
    BOOST_CHECK(meeting->complains("rank 0 of 3 is waiting for rank 1 at " + folder / "waits.meet" + " ("));
    const auto last = rank(1, variables);
    for (Command* each : {first.get(), meeting.get(), last.get()}) expect_well(*each);
}

BOOST_AUTO_TEST_CASE(notices_can_be_silenced) {
    const std::string address = "127.0.0.1:" + std::to_string(test::free_port());
    const Variables variables{
        {"UNISONO_MASTER", address}, {"UNISONO_TOKEN", std::string(32, '7')}, {"UNISONO_NOTICE_AFTER", "0"}};
    const auto first = rank(1, variables);
    const auto meeting = rank(0, variables);
    BOOST_CHECK(!first->complains("unisono", 200ms));
    const auto last = rank(2, variables);
    for (Command* each : {first.get(), meeting.get(), last.get()}) {
        const Result result = each->end();
        BOOST_CHECK_MESSAGE(result.status == 0 && result.err.empty(), result.all());
    }
}

BOOST_AUTO_TEST_CASE(a_launcher_says_who_has_come) {
    const unisono_test::Folder folder;
    Command job({UNISONO_RUN, "-n", "2", "sh", "-c",
                 "[ $RANK = 0 ] || until [ -e " + folder / "go" +
                     " ]; do sleep 0.02; done; exec " UNISONO_LAUNCH_RANK " gather"},
                {{"UNISONO_NOTICE_AFTER", "0.05"}});
    BOOST_CHECK(job.complains("unisono-run: rank 0 has come; waiting for rank 1 ("));
    std::filesystem::create_directory(folder / "go");
    const Result result = job.end();
    BOOST_CHECK_MESSAGE(result.status == 0 && result.has("gathered 01"), result.all());

    // The notice does not concern programs that never meet.
    const Result other =
        test::run_command({UNISONO_RUN, "-n", "2", "sleep", "0.2"}, {{"UNISONO_NOTICE_AFTER", "0.01"}});
    BOOST_CHECK_MESSAGE(other.status == 0 && other.err.empty(), other.all());
}

BOOST_AUTO_TEST_SUITE_END()
