// The reports of a training over an elastic world: traces, files of metrics and warnings, while
// ranks are killed and added.
#include "striking.hpp"
#include "support/metric_steps.hpp"

#include <unisono/extensions/elastic/rules.hpp>
#include <unisono/extensions/observe/tensorboard.hpp>
#include <unisono/extensions/trainers/trace.hpp>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <sys/time.h>

using namespace unisono_test;

namespace {

/// The report of one process.
struct Seen {
    std::uint64_t updates = 0, changes = 0;
    bool gap = false;         ///< in the updates that it was told of
    std::uint64_t shared = 0; ///< updates of the trace's report
    char report[2000] = {}, change_text[1000] = {};
};

constexpr std::uint64_t updates_in_all = 24;

/// When a process kills itself: in the call after that update, before or after the files record it,
/// or the given microseconds later.
struct Kill {
    int who = 0;
    std::uint64_t update = 0;
    bool before_lines = false;
    unsigned after_us = 0;
};

/// Three replicas make 24 updates. Files: run.jsonl, run.csv, board/, trace.json.
template <class World>
Seen observe(World& world, int who, const std::vector<Kill>& kills, const std::string& folder, unsigned pause_us,
             int awaited = -1) {
    static const std::vector<float> values = un::torch_rand(5, 3 * updates_in_all * Layer::width);
    const un::RowData<float> data(values, Layer::width);
    Layer model;
    Seen seen;
    {
        un::JsonLinesFile lines(world, folder + "/run.jsonl");
        un::CsvFile table(world, folder + "/run.csv");
        un::TensorBoardFile board(world, folder + "/board");
        un::Trainer trainer{
            world, model, un::Replicas{3}, un::Reproducible{}, un::Trace{}, un::AdamW{.learning_rate = 0.01}};
        std::uint64_t last = 0;
        trainer.fit(data, {.epochs = 1, .batch_size = 1, .progress = false}, [&](const un::UpdateReport& report) {
            seen.gap = seen.gap || (last != 0 && report.number != last + 1);
            last = report.number;
            const auto look = [&](bool before_lines) {
                for (const Kill& one : kills) {
                    if (one.who != who || one.update != report.number || one.before_lines != before_lines) continue;
                    if (one.after_us == 0) ::kill(::getpid(), SIGKILL);
                    else strike_after({.after_us = one.after_us});
                }
            };
            look(true);
            lines(report);
            table(report);
            board(report);
            look(false);
            bool there = awaited < 0;
            for (const int member : world.members()) there = there || member == awaited;
            ::usleep(there ? pause_us : 100'000);
        });
        const un::TraceReport report = un::report_trace(trainer);
        un::write_trace(trainer, folder + "/trace.json");
        seen.updates = trainer.updates();
        seen.shared = report.updates;
        std::snprintf(seen.report, sizeof seen.report, "%s", report.text().c_str());
    }
    seen.changes = world.changes().size();
    std::string text;
    for (const un::WorldChange& change : world.changes()) text += change.text() + "\n";
    std::snprintf(seen.change_text, sizeof seen.change_text, "%s", text.c_str());
    return seen;
}

/// Three ranks, and one that joins later if `comes`.
template <class Transport = un::SharedMemory>
void run(const Reports<Seen>& reports, const std::string& folder, const std::vector<Kill>& kills, bool comes,
         unsigned pause_us) {
    un::Processes processes;
    for (int who = 0; who < (comes ? 4 : 3); ++who)
        processes.start([&, who] {
            const std::string file = un::concat({folder, "/stderr.", who});
            if (std::freopen(file.c_str(), "w", stderr) == nullptr) return 3;
            std::setvbuf(stderr, nullptr, _IONBF, 0);
            return be_fork<Transport>(who, 3, folder, reports[who], [&](auto& world) {
                return observe(world, who, kills, folder, pause_us, comes ? 3 : -1);
            });
        });
    await_end(processes, 60s);
}

/// Each update has one line, except one for each first rank that was lost: that line is missing, or
/// there twice.
void check_steps(const std::string& folder, int lost) {
    for (const Steps& steps : {steps_of_lines(folder + "/run.jsonl"), steps_of_table(folder + "/run.csv"),
                               steps_of_board(folder + "/board")}) {
        BOOST_TEST(std::is_sorted(steps.begin(), steps.end()));
        int exceptions = 0;
        for (std::uint64_t step = 1; step <= updates_in_all; ++step) {
            const auto lines = std::count(steps.begin(), steps.end(), step);
            exceptions += lines == 1 ? 0 : 1;
            BOOST_TEST(lines <= 2, "update " << step << " has " << lines << " lines");
        }
        BOOST_TEST(exceptions <= lost, steps.size());
        BOOST_TEST(steps.back() == updates_in_all);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_observing)

/// Rank 1 dies, a process joins, rank 0 dies. The record of rank 2 covers all of it.
BOOST_AUTO_TEST_CASE(a_trace_goes_on) {
    if (too_slow()) return;
    const Folder folder;
    const Reports<Seen> reports;
    run(reports, folder.path(), {{.who = 1, .update = 4}, {.who = 0, .update = 20}}, true, 1000);
    BOOST_REQUIRE_MESSAGE(reports[2].done, reports[2].text);
    BOOST_REQUIRE_MESSAGE(reports[3].done, reports[3].text);
    const auto trace = nlohmann::json::parse(content(folder / "trace.json"));
    std::map<int, std::map<std::string, int>> spans;
    std::map<int, std::vector<std::uint64_t>> computed;
    std::map<int, std::vector<nlohmann::json>> changes;
    std::map<int, double> phases, whole;
    for (const auto& one : trace["traceEvents"]) {
        const int who = one["pid"].get<int>();
        if (one["ph"] == "i") changes[who].push_back(one["args"]);
        if (one["ph"] != "X") continue;
        const std::string name = one["name"];
        ++spans[who][name];
        if (name == "compute") computed[who].push_back(one["args"]["update"].get<std::uint64_t>());
        if (name == "change") whole[who] += one["dur"].get<double>();
        if (name == "ending" || name == "agreeing" || name == "forming" || name == "starting")
            phases[who] += one["dur"].get<double>();
        if (name == "exchange" && one["args"].contains("came last"))
            BOOST_TEST((one["args"]["came last"] == "rank 2" || one["args"]["came last"] == "rank 3"));
    }
    BOOST_TEST(spans.size() == 2u); // the ranks that are in the world
    BOOST_TEST(computed[2].front() == 0u);
    BOOST_TEST(computed[2].back() == updates_in_all - 1);
    std::vector<std::uint64_t> distinct = computed[2];
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    BOOST_TEST(distinct.size() == updates_in_all);
    BOOST_TEST(computed[3].front() > 0u);
    BOOST_TEST(computed[3].back() == updates_in_all - 1);
    BOOST_TEST(spans[2]["change"] == static_cast<int>(reports[2].result.changes));
    for (const char* const name : {"ending", "agreeing", "forming", "starting"})
        BOOST_TEST(spans[2][name] == spans[2]["change"], name);
    BOOST_TEST(spans[3]["starting"] == spans[3]["change"]);
    BOOST_TEST(phases[2] <= whole[2] * 1.001);
    BOOST_TEST(phases[2] >= whole[2] * 0.9);
    std::vector<int> lost, joined;
    std::uint64_t epoch = 0;
    for (const auto& one : changes[2]) {
        BOOST_TEST(one["epoch"] > epoch);
        epoch = one["epoch"];
        for (const int each : one["lost"]) lost.push_back(each);
        for (const int each : one["joined"]) joined.push_back(each);
    }
    BOOST_TEST((lost == std::vector<int>{1, 0}));
    BOOST_TEST((joined == std::vector<int>{3}));
    BOOST_TEST((changes[3][0]["joined"] == std::vector<int>{3}));

    const std::string text = reports[2].result.report;
    BOOST_TEST((text == reports[3].result.report));
    BOOST_TEST(reports[2].result.shared > 0u);
    // Rank 2 and lost ranks made some of them.
    BOOST_TEST(reports[2].result.shared < updates_in_all);
    BOOST_TEST(text.find("changes\n") != text.npos, text);
    BOOST_TEST(text.find("\n2  ") != text.npos, text);
    BOOST_TEST(text.find(un::concat({reports[2].result.changes, " changes of the world took rank 2 "})) != text.npos,
               text);
    const std::string changes_text = reports[2].result.change_text;
    for (const char* const words : {"membership 1, after update ", "lost rank 1", "added rank 3", ": lost rank 0; ",
                                    " ms (ending ", ", agreeing ", ", forming ", ", starting "})
        BOOST_TEST(changes_text.find(words) != changes_text.npos, words << " is not in " << changes_text);
}

/// The first rank dies before or after it writes a line.
BOOST_AUTO_TEST_CASE(lines_go_on) {
    for (const bool before_lines : {true, false}) BOOST_TEST_CONTEXT("before the line: " << before_lines) {
            const Folder folder;
            const Reports<Seen> reports;
            run(reports, folder.path(), {{.who = 0, .update = 9, .before_lines = before_lines}}, false, 300);
            for (const int who : {1, 2}) {
                BOOST_TEST(reports[who].done, reports[who].text);
                BOOST_TEST(!reports[who].result.gap);
            }
            check_steps(folder.path(), 1);
            const auto all = json_lines(folder / "run.jsonl");
            BOOST_TEST(all[0]["world_size"] == 3);
            BOOST_TEST(all[0]["membership_epoch"] == 0);
            BOOST_TEST(!all[0].contains("recovery_seconds"));
            int told = 0;
            for (std::size_t i = 1; i < all.size(); ++i) {
                if (!all[i].contains("world_size")) continue;
                ++told;
                BOOST_TEST(all[i]["step"] >= 9);
                BOOST_TEST(all[i]["world_size"] == 2);
                BOOST_TEST(all[i]["membership_epoch"] == 1);
                BOOST_TEST(all[i]["ranks_lost"] == 1);
                BOOST_TEST(all[i]["ranks_added"] == 0);
                const double recovery = all[i]["recovery_seconds"];
                double parts = 0;
                for (const char* const part :
                     {"ending_seconds", "agreeing_seconds", "forming_seconds", "starting_seconds"})
                    parts += all[i][part].get<double>();
                BOOST_TEST(recovery > 0);
                BOOST_TEST(std::abs(parts - recovery) < 1e-6);
            }
            BOOST_TEST(told == 1);
        }
}

/// The first rank dies before it writes, and so does the next one.
BOOST_AUTO_TEST_CASE(lines_of_two_lost_ranks) {
    const Folder folder;
    const Reports<Seen> reports;
    run(reports, folder.path(),
        {{.who = 0, .update = 9, .before_lines = true}, {.who = 1, .update = 10, .before_lines = true}}, false, 300);
    BOOST_TEST(reports[2].done, reports[2].text);
    check_steps(folder.path(), 2);
}

/// Ranks die at any moment. UNISONO_ELASTIC_LINES=200 tries that number of seeds.
BOOST_AUTO_TEST_CASE(lines_whenever_ranks_die) {
    const char* const wanted = std::getenv("UNISONO_ELASTIC_LINES");
    const unsigned seeds = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : 4;
    for (unsigned seed = 0; seed < seeds; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
            std::mt19937 random(seed);
            const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
            const Folder folder;
            const Reports<Seen> reports;
            const std::uint64_t first = 2 + draw(10);
            const std::vector<Kill> kills = {{.who = 0, .update = first, .after_us = 1 + draw(500)},
                                             {.who = 1, .update = first + draw(8), .after_us = 1 + draw(500)}};
            if (seed % 2 == 0) run(reports, folder.path(), kills, false, 0);
            // Updates end at different times.
            else run<un::Tcp>(reports, folder.path(), kills, false, 0);
            BOOST_TEST(reports[2].done, reports[2].text);
            BOOST_TEST(!reports[2].result.gap);
            check_steps(folder.path(), 2);
        }
}

/// The first rank warns once if ranks host different numbers of replicas.
BOOST_AUTO_TEST_CASE(uneven_hosting_is_told_of) {
    BOOST_TEST(un::detail::uneven_hosting_text(6, 3, 1).empty());
    BOOST_TEST(un::detail::uneven_hosting_text(6, 4, 2) ==
               "unisono: warning: in membership 2 of the elastic world 2 ranks host 2 of the 6 replicas, and 2 ranks "
               "host 1; an update takes as long as the ranks with the most replicas need. With 3 or 6 ranks all ranks "
               "host the same number\n");
    const Folder folder;
    const Reports<Seen> reports;
    run(reports, folder.path(), {{.who = 1, .update = 5}, {.who = 0, .update = 12}}, false, 300);
    BOOST_TEST(reports[2].done, reports[2].text);
    std::string all;
    for (const char* const who : {"0", "1", "2"}) all += content(folder.path() + "/stderr." + who);
    BOOST_TEST(all == un::detail::uneven_hosting_text(3, 2, 1)); // one rank hosts all
    BOOST_TEST(content(folder / "stderr.0") == all);
}

BOOST_AUTO_TEST_SUITE_END()
