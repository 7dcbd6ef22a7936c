// Loops over calls of `fit` in a process that is added: by position or by count, with evaluations
// and calls between them, over whole and sharded state, in virtual time. And programs whose added
// process makes other calls than the others: it gets an error, and they do not.
#include "support/fails.hpp"

#include <unisono/collective/all_reduce.hpp>
#include <unisono/simulate_elastic.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

constexpr un::nanoseconds ms = 1'000'000;
constexpr std::size_t width = 4;
constexpr std::int64_t rows = 64, epochs = 6;

template <class Compute>
struct Line {
    Compute compute;
    std::vector<float> weights = std::vector<float>(width, 0.1f), slopes = std::vector<float>(width);
    std::array<std::span<float>, 1> parameters() { return {weights}; }
    std::array<std::span<float>, 1> gradients() { return {slopes}; }
    template <class Batch>
    double operator()(const Batch& batch, un::Pass&) {
        compute();
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            float error = -1;
            for (std::size_t i = 0; i < width; ++i) error += weights[i] * batch.row(row)[i];
            loss += static_cast<double>(error * error);
            for (std::size_t i = 0; i < width; ++i) slopes[i] += error * batch.row(row)[i];
        }
        return loss / static_cast<double>(batch.rows());
    }
    void evaluate(const un::RowBatch<float>& batch, un::MeanMetric& mean) {
        for (std::size_t row = 0; row < batch.rows(); ++row) mean.add(static_cast<double>(batch.row(row)[0]));
    }
};
template <class Compute>
Line(Compute) -> Line<Compute>;

const un::RowData<float>& data() {
    static const std::vector<float> values = un::torch_rand(5, rows * width);
    static const un::RowData<float> all(values, width);
    return all;
}
constexpr un::FitOptions of(std::int64_t count) { return {.epochs = count, .batch_size = 4, .progress = false}; }

/// The loops: each makes `epochs` epochs.
enum class By { position, count, what_is_left, condition, pairs, loss, evaluating, resuming };
constexpr By all_loops[] = {By::position, By::count, By::what_is_left, By::condition,
                            By::pairs,    By::loss,  By::evaluating,   By::resuming};

template <class Trainer>
void loop(Trainer& trainer, By by) {
    const auto at = [&] { return trainer.position().epoch.number(); };
    const auto evaluate = [&] { static_cast<void>(trainer.evaluate(data(), {.batch_size = 16}, un::MeanMetric{})); };
    switch (by) {
    case By::position:
        for (std::int64_t epoch = at(); epoch < epochs; ++epoch) trainer.fit(data(), of(1));
        break;
    case By::count:
        for (std::int64_t epoch = 0; epoch < epochs; ++epoch) trainer.fit(data(), of(1));
        break;
    case By::what_is_left:
        if (const std::int64_t left = epochs - at(); left > 0) trainer.fit(data(), of(left));
        break;
    case By::condition:
        while (at() < epochs) trainer.fit(data(), of(1));
        break;
    case By::pairs: // two different calls in turn, the second one of what is left of a pair
        while (at() < epochs) {
            trainer.fit(data(), of(1));
            if (const std::int64_t left = 2 - at() % 2; left < 2) trainer.fit(data(), of(left));
        }
        break;
    case By::loss: { // decides by the reports
        std::int64_t made = 0;
        for (bool goes_on = true; goes_on;) {
            const un::FitReport report = trainer.fit(data(), of(1));
            BOOST_TEST_REQUIRE(report.epochs.size() == 1u);
            BOOST_TEST(report.epochs[0].epoch == made);
            BOOST_TEST(report.position.epoch.number() == made + 1);
            made += static_cast<std::int64_t>(report.epochs.size());
            goes_on = made < epochs;
        }
        break;
    }
    case By::evaluating:
        for (std::int64_t epoch = at(); epoch < epochs; ++epoch) {
            trainer.fit(data(), of(1));
            evaluate();
            trainer.collectively([](auto& now) { return un::state_hash(now); });
        }
        break;
    case By::resuming: // as from a checkpoint of the first two epochs
        trainer.collectively([](auto& now) {
            if (now.position().epoch.number() == 0) now.restore({.updates = 8, .position = {un::Epoch{2}}});
            return true;
        });
        for (std::int64_t epoch = at(); epoch < epochs; ++epoch) trainer.fit(data(), of(1));
        break;
    }
}

struct Outcome {
    std::vector<std::uint64_t> hashes = {};
    std::vector<std::int64_t> ends = {};
    std::uint64_t added = 0;
    std::vector<std::string> errors = {}; ///< of each process; empty: none
};

/// Two ranks, and one that comes `join` later. `body(trainer, number)`: the calls of a rank.
template <class... Policies>
Outcome run(un::nanoseconds join, un::nanoseconds crash, const std::function<void(std::function<void(By)>, int)>& body,
            Policies... policies) {
    un::ElasticSimulation simulation;
    simulation.network.detection_ns = ms;
    simulation.joins = {join};
    if (crash > 0) simulation.network.crashes = {{.rank = 1, .at_ns = crash}};
    simulation.elastic.join.rendezvous.timeout = std::chrono::milliseconds(2000);
    simulation.longest = 60'000 * ms;
    Outcome found;
    const un::ElasticSimulationReport report = un::simulate_elastic(2, simulation, [&](auto& world) {
        Line model{[&] { world.group().endpoint().compute(ms); }};
        un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::AdamW{}, policies...};
        found.added += world.number() == 2;
        body([&](By by) { loop(trainer, by); }, world.number());
        found.ends.push_back(trainer.position().epoch.number());
        found.hashes.push_back(trainer.collectively([](auto& now) { return un::state_hash(now).parameters; }));
    });
    for (const un::SimulatedProcess& one : report.processes) {
        found.errors.emplace_back();
        if (one.crashed || !one.threw) continue;
        try {
            std::rethrow_exception(one.threw);
        } catch (const std::exception& failed) {
            found.errors.back() = failed.what();
        }
    }
    return found;
}

std::uint64_t undisturbed(By by) {
    std::uint64_t hash = 0;
    un::simulate_elastic(1, {}, [&](auto& world) {
        Line model{[] {}};
        un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::AdamW{}};
        loop(trainer, by);
        hash = trainer.collectively([](auto& now) { return un::state_hash(now).parameters; });
    });
    return hash;
}

template <class... Policies>
void expect_right(By by, std::uint64_t hash, un::nanoseconds join, un::nanoseconds crash, Policies... policies) {
    const Outcome found = run(
        join, crash, [&](const auto& make, int) { make(by); }, policies...);
    for (const std::int64_t at : found.ends) BOOST_TEST(at == epochs);
    BOOST_TEST_CONTEXT("loop " << static_cast<int>(by) << ", join at " << join << ", crash at " << crash) {
        for (const std::string& text : found.errors)
            BOOST_TEST((text.empty() || text.find("waited to be added") != text.npos), text);
        BOOST_TEST(found.hashes.size() + (crash > 0 ? 1 : 0) >= 2u);
        for (const std::uint64_t one : found.hashes) BOOST_TEST(one == hash);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_loops)

BOOST_AUTO_TEST_CASE(a_loop_goes_on_where_the_others_are) {
    for (const By by : all_loops) {
        const std::uint64_t hash = undisturbed(by);
        for (un::nanoseconds join = ms; join < 60 * ms; join += 7 * ms) {
            expect_right(by, hash, join, 0);
            expect_right(by, hash, join, join + 5 * ms);
            expect_right(by, hash, join, 0, un::StateSharding{}, un::Snapshots{.every = 2});
        }
    }
}

// The process comes while the others train, and makes fewer calls, or others. It alone gets the
// error, whenever it comes to the first call that differs.
BOOST_AUTO_TEST_CASE(who_makes_other_calls_leaves_alone) {
    const std::uint64_t hash = undisturbed(By::position);
    for (const bool fewer : {false, true}) {
        for (un::nanoseconds join = ms; join < 40 * ms; join += 5 * ms) {
            const Outcome found = run(join, 0, [&](const auto& make, int number) {
                if (number < 2) return make(By::position);
                make(fewer ? By::what_is_left : By::evaluating);
            });
            BOOST_TEST_CONTEXT("fewer: " << fewer << ", join at " << join) {
                BOOST_TEST(found.added == 1u);
                BOOST_TEST(found.errors[0] == "");
                BOOST_TEST(found.errors[1] == "");
                BOOST_TEST(found.hashes.size() >= 2u);
                for (const std::uint64_t one : found.hashes) BOOST_TEST(one == hash);
            }
        }
    }
}

// The other rank dies, and one rank is too few. Every further call says that this rank is in no
// world, or answers as before.
BOOST_AUTO_TEST_CASE(a_trainer_that_has_left_the_world_says_so) {
    un::ElasticSimulation simulation;
    simulation.network.detection_ns = ms;
    simulation.network.crashes = {{.rank = 1, .at_ns = 20 * ms}};
    simulation.elastic.least = 2;
    simulation.longest = 60'000 * ms;
    int refused = 0, calls = 0;
    un::simulate_elastic(2, simulation, [&](auto& world) {
        Line model{[&] { world.group().endpoint().compute(ms); }};
        un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::AdamW{}};
        test::fails({"expected at least 2"}, [&] { loop(trainer, By::position); });
        const auto refuses = [&](auto call) {
            ++calls;
            try {
                static_cast<void>(call());
            } catch (const un::error& failed) {
                refused += failed.code() == un::ErrorCode::refused &&
                           std::string(failed.what()).find("no longer in a world") != std::string::npos;
            }
        };
        refuses([&] { return trainer.fit(data(), of(1)); });
        refuses([&] { return trainer.step(un::RowBatch<float>{}); });
        refuses([&] { return trainer.evaluate(data(), {.batch_size = 16}, un::MeanMetric{}); });
        refuses([&] { return trainer.collectively([](auto&) { return true; }); });
        refuses([&] { return trainer.verify_replicas(), 0; });
        refuses([&] { return trainer.describe(); });
        refuses([&] { return trainer.describe(rows, of(1)); });
        refuses([&] { return trainer.set_epoch(un::Epoch{1}), 0; });
        refuses([&] { return trainer.set_schedule({}), 0; });
        refuses([&] { return trainer.now().updates(); });
        refuses([&] { return world.source(); });
        refuses([&] { return world.group().size(); });
        refuses([&] { return world.template allocate<float>(1).size(); });
        refuses([&] { return world.take_in_applicants(), 0; });
        refuses([&] { return world.take_in_at_most(1), 0; });
        refuses([&] { return world.now(); });
        BOOST_TEST(world.rank() == -1);
        BOOST_TEST(world.size() == 0);
        BOOST_TEST(trainer.updates() > 0u);
        BOOST_TEST(trainer.progress().updates == trainer.updates());
        BOOST_TEST(trainer.position().epoch.number() < epochs);
    });
    BOOST_TEST(calls == 16);
    BOOST_TEST(refused == calls);
}

// No memory is allocated for a length that the record cannot have.
BOOST_AUTO_TEST_CASE(a_record_with_a_wrong_length_is_refused) {
    for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
        un::detail::StateRecord record;
        record.put_one(length);
        record.put_one(std::array{1, 2});
        std::vector<int> list;
        test::fails(un::ErrorCode::mismatch, {"elements of 4 or more bytes, and 8 bytes follow"},
                    [&] { record.take_list(list); });
        BOOST_TEST(list.empty());
    }
    un::detail::StateRecord record;
    record.put_list(std::vector<int>{1, 2});
    std::vector<int> list;
    record.take_list(list);
    BOOST_TEST(list == (std::vector<int>{1, 2}));
}

BOOST_AUTO_TEST_SUITE_END()
