// The events that a trace records, and its reports. A trace does not change the training.
#include "models.hpp"
#include "outcomes.hpp"
#include "support/folder.hpp"

#include "unisono/extensions/trainers/trace.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

const std::vector<float> values = std::vector<float>(4 * 48, 0.5f);
un::RowData<float> rows() { return {values, 4}; }
const un::Sgd sgd{.learning_rate = 0.01};
constexpr un::FitOptions once{.epochs = 1, .batch_size = 4, .progress = false};

std::size_t count(const un::TraceLog& log, un::Activity what) {
    std::size_t found = 0;
    for (const un::TraceEvent& one : log.events()) found += one.what == what ? 1 : 0;
    return found;
}

struct Slow : SumOfOutputs<float> {
    using SumOfOutputs<float>::SumOfOutputs;
    bool sleeps = false;
    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        if (sleeps) std::this_thread::sleep_for(std::chrono::milliseconds(60));
        return SumOfOutputs<float>::operator()(batch, pass);
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(traces)

BOOST_AUTO_TEST_CASE(every_activity_is_recorded) {
    check_clean(outcomes(2, [](auto& world) {
        SumOfOutputs<float> model(4), untraced(4);
        const auto data = rows();
        un::Trainer trainer{world, model, un::Trace{}, sgd, un::Accumulate{.steps = 2}};
        trainer.fit(data, once); // 48 samples, 2 ranks, 4 each, twice: 3 updates
        const un::TraceLog& log = trainer.trace();
        expect(count(log, un::Activity::compute) == 6, "two model calls an update");
        expect(count(log, un::Activity::apply) == 3, "one optimizer step");
        expect(count(log, un::Activity::exchange) == 12, "start, agree, finish, publish");
        un::nanoseconds before = 0, sum = 0;
        for (const un::TraceEvent& one : log.events()) {
            expect(one.begin >= before && one.end >= one.begin, "one after another");
            before = one.end;
            sum += one.end - one.begin;
            expect(one.update < 3, "the update");
        }
        expect(log.total(un::Activity::compute) + log.total(un::Activity::exchange) + log.total(un::Activity::apply) ==
                   sum,
               "the sums");
        expect(log.elapsed() >= sum && log.dropped() == 0, "all of it");
        un::Trainer same{world, untraced, sgd, un::Accumulate{.steps = 2}};
        same.fit(data, once);
        expect(untraced.weights == model.weights, "the same bits without");
    }));
}

BOOST_AUTO_TEST_CASE(a_synchronisation_comes_after_its_update) {
    check_clean(outcomes(2, [](auto& world) {
        SumOfOutputs<float> model(4);
        const auto data = rows();
        un::Trainer trainer{world, model, un::Trace{}, sgd, un::LocalSteps{.steps = 3}};
        trainer.fit(data, once); // 48 samples, 2 ranks, 4 each: 6 updates, of which two end with a synchronisation
        std::array<std::size_t, 7> exchanges = {};
        for (const un::TraceEvent& one : trainer.trace().events())
            if (one.what == un::Activity::exchange) ++exchanges.at(one.update);
        // Start, agree, finish, publish of each; the synchronisations follow 3 and 6 updates.
        expect(exchanges[2] == 4 && exchanges[3] == 5, "after the third");
        expect(exchanges[5] == 4 && exchanges[6] >= 1, "after the last");
    }));
}

BOOST_AUTO_TEST_CASE(sums_go_on_where_memory_ends) {
    check_clean(outcomes(2, [](auto& world) {
        SumOfOutputs<float> model(4);
        const auto data = rows();
        un::Trainer trainer{world, model, un::Trace{.events = 8}, sgd}; // 6 updates of 6 events
        trainer.fit(data, once);
        expect(trainer.trace().events().size() == 8 && trainer.trace().dropped() == 28, "kept and dropped");
        const un::TraceReport report = un::report_trace(trainer);
        expect(report.updates == 1, "one whole update is kept");
        expect(report.text().find("56 events were not kept") != std::string::npos, report.text());
        const un::nanoseconds before = trainer.trace().total(un::Activity::compute);
        trainer.fit(data, once);
        expect(trainer.trace().total(un::Activity::compute) > before, "the sum goes on");
    }));
    const auto wrong = outcomes(2, [](auto& world) {
        SumOfOutputs<float> model(4);
        un::Trainer trainer{world, model, un::Trace{.events = -1}};
    });
    for (const Outcome& one : wrong) BOOST_TEST(one.says("Trace.events is -1"), one.what);
}

BOOST_AUTO_TEST_CASE(who_holds_up_the_others_is_named) {
    check_clean(outcomes(3, [](auto& world) {
        Slow model(4);
        model.sleeps = world.rank() == 1;
        const auto data = rows();
        un::Trainer trainer{world, model, un::Trace{}, sgd};
        trainer.fit(data, once); // 4 updates
        const un::TraceReport report = un::report_trace(trainer);
        expect(report.updates == 4 && report.ranks.size() == 3, "all of it");
        expect(report.straggler() == 1, report.text());
        const auto& [first, slow, last] = std::tie(report.ranks[0], report.ranks[1], report.ranks[2]);
        expect(slow.last >= 3, report.text());
        expect(first.waiting > slow.waiting && last.waiting > slow.waiting, report.text());
        expect(slow.compute > first.compute && slow.compute > last.compute, report.text());
        expect(slow.awaited > first.awaited && slow.awaited > last.awaited, report.text());
        expect(report.text().find("the others waited for rank 1: ") != std::string::npos, report.text());
        expect(first.rest() >= 0, "what is left");
        // Ranks that wait for each other in turns are not at fault.
        un::TraceReport fair = report;
        for (un::RankTime& one : fair.ranks) one.awaited = fair.waiting() / 3;
        expect(fair.straggler() == -1, "no straggler");
        expect(un::TraceReport{}.straggler() == -1, "nothing");
    }));
}

BOOST_AUTO_TEST_CASE(a_file_for_perfetto) {
    char path[] = "/tmp/test-trace-XXXXXX";
    const int made = ::mkstemp(path);
    BOOST_REQUIRE(made >= 0);
    ::close(made);
    const Folder folder;
    BOOST_REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    const std::vector<std::pair<std::string, std::string>> bad = {{"/nowhere/at/all.json", "No such file"},
                                                                  {folder / "pipe", "no process reads from this pipe"}};
    check_clean(outcomes(2, [&](auto& world) {
        SumOfOutputs<float> model(4);
        const auto data = rows();
        un::Trainer trainer{world, model, un::Trace{}, sgd};
        trainer.fit(data, once);
        for (const auto& [nowhere, why] : bad) {
            try {
                un::write_trace(trainer, nowhere);
                throw std::runtime_error("written to nowhere");
            } catch (const un::error& e) {
                expect(e.code() == un::ErrorCode::refused &&
                           std::string(e.what()).find("rank 0 cannot write '" + nowhere + "': " + why) !=
                               std::string::npos,
                       e.what());
            }
        }
        un::write_trace(trainer, path); // the world continues
    }));
    std::ifstream file(path);
    const auto trace = nlohmann::json::parse(file);
    SumOfOutputs<float> like(4);
    const std::size_t bytes = std::span(like.parameters()).size_bytes();
    std::array<std::size_t, 2> names = {}, events = {};
    for (const auto& one : trace["traceEvents"]) {
        const auto rank = one["pid"].get<std::size_t>();
        BOOST_REQUIRE(rank < 2);
        if (one["ph"] == "M") ++names[rank];
        else ++events[rank];
        if (one["ph"] == "M") continue;
        BOOST_TEST(one["ph"] == "X");
        BOOST_TEST(one["dur"] >= 0);
        BOOST_TEST(one["args"]["update"] < 6);
        const bool exchange = one["name"] == "exchange";
        BOOST_TEST(one["args"].contains("buckets") == exchange);
        BOOST_TEST(one["args"].contains("came last") == exchange);
        if (!exchange) continue;
        BOOST_TEST(one["args"]["buckets"] == 1);
        BOOST_TEST(one["args"]["bytes"] == bytes);
        BOOST_TEST((one["args"]["came last"] == "rank 0" || one["args"]["came last"] == "rank 1"));
    }
    BOOST_TEST((names == std::array<std::size_t, 2>{1, 1}));
    BOOST_TEST((events == std::array<std::size_t, 2>{36, 36}));
    std::remove(path);
}

BOOST_AUTO_TEST_SUITE_END()
