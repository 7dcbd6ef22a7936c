// Files of metrics over a world whose first rank is lost: the next one continues them.
#include "support/folder.hpp"
#include "support/metric_steps.hpp"

#include "unisono/extensions/observe/tensorboard.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using unisono_test::Folder;
using unisono_test::Steps;

namespace {

struct Change {
    std::vector<int> lost = {}, joined = {};
    std::chrono::nanoseconds took{6'000'000}, ending{1'000'000}, agreeing{2'000'000}, starting{4'000'000};
    [[nodiscard]] std::chrono::nanoseconds recovery() const { return took + starting; }
};
/// Like an elastic world of two ranks whose first rank is lost.
struct World {
    int place = 0;
    std::vector<Change> past = {};
    [[nodiscard]] int rank() const { return place; }
    [[nodiscard]] int size() const { return past.empty() ? 2 : 1; }
    [[nodiscard]] std::uint64_t epoch() const { return past.size(); }
    [[nodiscard]] const std::vector<Change>& changes() const { return past; }
    void lose_first() {
        past.push_back({.lost = {0}});
        --place;
    }
};
struct Report {
    std::uint64_t number = 1;
    bool committed = true, world_changed = false;
    double loss = 0.5, learning_rate = 0.1, gradient_norm = 0, loss_scale = 1;
    std::int64_t samples = 32, tokens = 0;
};

/// The path of a file, and the steps of the reports in it.
struct Lines {
    using File = un::JsonLinesFile;
    static constexpr const char* name = "run.jsonl";
    static Steps steps(const std::string& path) { return unisono_test::steps_of_lines(path); }
};
struct Table {
    using File = un::CsvFile;
    static constexpr const char* name = "run.csv";
    static Steps steps(const std::string& path) { return unisono_test::steps_of_table(path); }
};
struct Board {
    using File = un::TensorBoardFile;
    static constexpr const char* name = "board";
    static Steps steps(const std::string& path) { return unisono_test::steps_of_board(path); }
};
using Kinds = boost::mpl::list<Lines, Table, Board>;

} // namespace

BOOST_AUTO_TEST_SUITE(changing_worlds)

/// The lost rank has written up to `written`. The other rank was told up to `told`.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_next_rank_continues, Kind, Kinds) {
    for (const auto& [written, told] : {std::pair(5, 5), std::pair(5, 4), std::pair(4, 5), std::pair(0, 1)})
        for (const bool earlier : {false, true})
            BOOST_TEST_CONTEXT(Kind::name << ": written " << written << ", told " << told << ", earlier run "
                                          << earlier) {
                const Folder folder;
                const std::string path = folder / Kind::name;
                Steps expected;
                if (earlier) {
                    typename Kind::File(World{}, path)(Report{.number = 5});
                    expected.push_back(5);
                }
                World first, second{.place = 1};
                {
                    typename Kind::File lost(first, path), other(second, path);
                    for (int i = 1; i <= written; ++i) lost(Report{.number = static_cast<std::uint64_t>(i)});
                    // No report.
                    if (written > 0) lost.write(99, {{"accuracy", 1}, {"learning_rate", 2}});
                    for (int i = 1; i <= told; ++i) other(Report{.number = static_cast<std::uint64_t>(i)});
                    second.lose_first();
                    // No update.
                    other(Report{.number = 77, .committed = false, .world_changed = true});
                    for (std::uint64_t i = static_cast<std::uint64_t>(told) + 1; i <= 8; ++i)
                        other(Report{.number = i});
                }
                for (int i = 1; i <= written; ++i) expected.push_back(static_cast<std::uint64_t>(i));
                for (int i = told + 1; i <= 8; ++i) expected.push_back(static_cast<std::uint64_t>(i));
                BOOST_TEST(Kind::steps(path) == expected, boost::test_tools::per_element());
            }
}

/// Ranks go back to a snapshot. The first rank is lost as well, or stays.
BOOST_AUTO_TEST_CASE_TEMPLATE(updates_that_are_made_again_have_one_line, Kind, Kinds) {
    for (const bool first_is_lost : {false, true})
        BOOST_TEST_CONTEXT(Kind::name << ": the first rank is lost " << first_is_lost) {
            const Folder folder;
            const std::string path = folder / Kind::name;
            World first, second{.place = 1};
            {
                typename Kind::File one(first, path), other(second, path);
                for (std::uint64_t i = 1; i <= 6; ++i) {
                    one(Report{.number = i});
                    other(Report{.number = i});
                }
                for (World* const world : {&first, &second}) world->past.push_back({.lost = {2}});
                if (first_is_lost) --second.place;
                for (std::uint64_t i = 3; i <= 9; ++i) {
                    if (!first_is_lost) one(Report{.number = i});
                    other(Report{.number = i});
                }
            }
            BOOST_TEST(Kind::steps(path) == (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9}), boost::test_tools::per_element());
        }
}

BOOST_AUTO_TEST_CASE(a_line_that_was_cut_off_goes) {
    const Folder folder;
    for (const char* const name : {Lines::name, Table::name}) {
        const std::string path = folder / name;
        World first, second{.place = 1};
        const auto train = [&]<class File>(File& lost, File& other) {
            lost(Report{.number = 1});
            for (const std::uint64_t i : {1u, 2u}) other(Report{.number = i});
            std::ofstream(path, std::ios::app) << (name == std::string(Lines::name) ? "{\"step\":2,\"sec" : "2,0.1,lo");
            second.lose_first();
            other(Report{.number = 3});
        };
        if (name == std::string(Lines::name)) {
            un::JsonLinesFile lost(first, path), other(second, path);
            train(lost, other);
            BOOST_TEST(Lines::steps(path) == (Steps{1, 3}), boost::test_tools::per_element());
        } else {
            un::CsvFile lost(first, path), other(second, path);
            train(lost, other);
            BOOST_TEST(Table::steps(path) == (Steps{1, 3}), boost::test_tools::per_element());
        }
    }
}

/// Seconds count from the making of the object of the rank that writes.
BOOST_AUTO_TEST_CASE(seconds_of_the_next_rank_are_its_own) {
    const Folder folder;
    const std::string path = folder / "run.jsonl";
    World first, second{.place = 1};
    un::JsonLinesFile lost(first, path);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto made = std::chrono::steady_clock::now();
    un::JsonLinesFile other(second, path);
    for (un::JsonLinesFile* const one : {&lost, &other}) (*one)(Report{.number = 1});
    second.lose_first();
    other(Report{.number = 2});
    const std::chrono::duration<double> most = std::chrono::steady_clock::now() - made;
    std::vector<double> seconds;
    for (const auto& one : unisono_test::json_lines(path)) seconds.push_back(one["seconds"]);
    BOOST_REQUIRE(seconds.size() == 2u);
    BOOST_TEST(seconds[0] >= 0.05);
    BOOST_TEST(seconds[1] <= most.count());
}

BOOST_AUTO_TEST_CASE(a_change_is_told_once) {
    const Folder folder;
    const std::string path = folder / "run.jsonl";
    World first, second{.place = 1};
    {
        un::JsonLinesFile lost(first, path), other(second, path);
        for (const std::uint64_t i : {1u, 2u}) {
            lost(Report{.number = i});
            other(Report{.number = i});
        }
        for (World* const one : {&first, &second}) one->past.push_back({.joined = {2, 3}});
        lost(Report{.number = 3});
        other(Report{.number = 3});
        second.lose_first();
        for (const std::uint64_t i : {4u, 5u}) other(Report{.number = i});
    }
    const std::vector<nlohmann::json> found = unisono_test::json_lines(path);
    BOOST_REQUIRE(found.size() == 5u);
    BOOST_TEST(found[0]["world_size"] == 2);
    BOOST_TEST(!found[0].contains("ranks_lost"));
    BOOST_TEST(!found[1].contains("world_size"));
    BOOST_TEST(found[2]["ranks_added"] == 2);
    BOOST_TEST(found[2]["membership_epoch"] == 1);
    BOOST_TEST(found[2]["recovery_seconds"] == 0.01);
    BOOST_TEST(found[3]["ranks_lost"] == 1);
    BOOST_TEST(found[3]["ranks_added"] == 0);
    BOOST_TEST(found[3]["membership_epoch"] == 2);
    BOOST_TEST(found[3]["ending_seconds"] == 0.001);
    BOOST_TEST(found[3]["agreeing_seconds"] == 0.002);
    BOOST_TEST(found[3]["forming_seconds"] == 0.003);
    BOOST_TEST(found[3]["starting_seconds"] == 0.004);
    BOOST_TEST(!found[4].contains("world_size"));
}

BOOST_AUTO_TEST_SUITE_END()
