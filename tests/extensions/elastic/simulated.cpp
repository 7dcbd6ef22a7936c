// A whole Trainer over an elastic world in virtual time. Processes crash, stop, are cut off from
// each other and join later, as a seed decides. Each ends with the undisturbed hash or a documented
// error. None hangs, and there are never two worlds.
//
//   UNISONO_ELASTIC_SEEDS=100000 test_elastic --run_test=elastic_simulated/campaign
#include "../../support/fails.hpp"
#include "../../support/sanitizers.hpp"
#include "alone.hpp"
#include "lost_state.hpp"

#include "broken_rules.hpp"
#include <unisono/automatic.hpp>
#include <unisono/extensions/elastic/forming.hpp>
#include <unisono/extensions/reducers/any.hpp>
#include <unisono/launch/processes.hpp>
#include <unisono/simulate_elastic.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

namespace un = unisono;

namespace {

constexpr un::nanoseconds us = 1'000, ms = 1'000'000;
constexpr std::size_t width = 4;
constexpr std::int64_t rows = 256;

/// The training. With `spoils` some rows have no finite gradient, so the guard skips updates.
struct Job {
    int replicas = 1, epochs = 1;
    bool spoils = false;
    std::int64_t every = 0; ///< if not 0, state is sharded, with a snapshot every so often
    friend auto operator<=>(const Job&, const Job&) = default;
};

/// The model takes virtual time: it calls `compute()` once per call.
template <class Compute>
class Line {
public:
    Line(Compute compute, bool spoils) : compute_(std::move(compute)), spoils_(spoils) {}
    std::array<std::span<float>, 1> parameters() { return {weights_}; }
    std::array<std::span<float>, 1> gradients() { return {slopes_}; }
    [[nodiscard]] const std::vector<float>& weights() const { return weights_; }
    void set(float weight) { std::fill(weights_.begin(), weights_.end(), weight); }
    template <class Batch>
    double operator()(const Batch& batch, un::Pass& pass) {
        compute_();
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float error = pass.random(row).uniform() - 1;
            if (spoils_ && x[0] < 0.02f) error = std::numeric_limits<float>::quiet_NaN();
            for (std::size_t i = 0; i < width; ++i) error += weights_[i] * x[i];
            loss += static_cast<double>(error * error);
            for (std::size_t i = 0; i < width; ++i) slopes_[i] += error * x[i];
        }
        return loss / static_cast<double>(batch.rows());
    }

private:
    Compute compute_;
    bool spoils_;
    std::vector<float> weights_ = std::vector<float>(width, 0.1f), slopes_ = std::vector<float>(width);
};

template <class World, class Model, class Data, class OnUpdate, class... Policies>
std::uint64_t fit(World& world, Model& model, const Data& data, const Job& job, OnUpdate on_update,
                  Policies... policies) {
    un::Trainer trainer{world, model, policies...};
    const std::int64_t batch = rows / job.replicas / 4;
    trainer.fit(data, {.epochs = job.epochs, .batch_size = std::max<std::int64_t>(1, batch), .progress = false},
                on_update);
    if constexpr (requires { trainer.now(); })
        return trainer.collectively([](auto& now) { return un::state_hash(now).parameters; });
    else return un::state_hash(trainer).parameters;
}
struct Unobserved {
    void operator()(const un::UpdateReport&) const {}
};
template <class World, class Compute, class OnUpdate = Unobserved>
std::uint64_t train(World& world, const Job& job, Compute compute, OnUpdate on_update = {}) {
    static const std::vector<float> values = un::torch_rand(5, rows * width);
    const un::RowData<float> data(values, width);
    Line model(compute, job.spoils);
    const auto with = [&](auto... more) {
        return fit(world, model, data, job, on_update, un::Replicas{job.replicas}, un::FiniteGuard{un::OnOffence::skip},
                   un::DistributedSampler{.shuffle = true, .seed = 3}, un::Reproducible{},
                   un::AdamW{.learning_rate = 0.01}, more...);
    };
    return job.every == 0 ? with() : with(un::StateSharding{}, un::Snapshots{.every = job.every});
}
std::uint64_t undisturbed(const Job& job) {
    static std::map<Job, std::uint64_t> known;
    const auto place = known.try_emplace(job);
    std::uint64_t& hash = place.first->second;
    if (place.second) un::run<un::InProcess>(1, [&](auto& world) { hash = train(world, job, [] {}); });
    return hash;
}

/// The faults of a seed, and their processes.
struct Plan {
    un::ElasticSimulation simulation = {};
    int ranks = 1;
    Job job = {};
    bool proven_only = false; ///< processes only crash
    un::nanoseconds update_ns = ms;
};
void set_times(Plan& p) {
    p.simulation.elastic.patience = std::chrono::milliseconds(100);
    p.simulation.elastic.give_up = std::chrono::seconds(2);
    p.simulation.elastic.join.timeout = std::chrono::milliseconds(50);
    p.simulation.elastic.join.rendezvous.timeout = std::chrono::seconds(4);
    p.simulation.elastic.most = std::max(p.job.replicas, 1);
    p.simulation.longest = 60'000 * ms;
}
Plan plan(std::uint64_t seed) {
    un::CounterRandom random(seed, 77);
    const auto draw = [&](std::uint64_t below) { return below == 0 ? 0 : random() % below; };
    const auto between = [&](un::nanoseconds least, un::nanoseconds most) {
        return least + static_cast<un::nanoseconds>(draw(static_cast<std::uint64_t>(most - least) + 1));
    };
    Plan p;
    p.ranks = static_cast<int>(draw(100) < 90 ? 1 + draw(6) : 1 + draw(64));
    const int later = static_cast<int>(draw(2) == 0 ? 0 : 1 + draw(3));
    p.job.replicas = p.ranks + static_cast<int>(draw(4));
    p.job.epochs = 1 + static_cast<int>(draw(3));
    p.job.spoils = un::CounterRandom(seed, 79)() % 2 == 0;
    un::CounterRandom sharding(seed, 80);
    if (sharding() % 3 == 0) p.job.every = 1 + sharding() % 5;
    p.proven_only = draw(2) == 0;
    const un::nanoseconds length = 8 * p.job.epochs * p.update_ns;
    un::SimulationOptions& network = p.simulation.network;
    network.seed = seed;
    network.link = {.latency_ns = between(us, 100 * us), .bytes_per_second = 1e9};
    network.jitter_ns = between(0, 500 * us);
    network.reorder = draw(2) == 0;
    network.detection_ns = between(us, 3 * ms);
    const auto all = static_cast<std::uint64_t>(p.ranks + later);
    un::nanoseconds last = 0;
    std::vector<int> dead;
    for (std::uint64_t deaths = draw(3) == 0 ? draw(static_cast<std::uint64_t>(p.ranks) + 1) : draw(3); deaths > 0;
         --deaths) {
        last = !dead.empty() && draw(2) == 0 ? last + between(0, 4 * ms) : between(0, length);
        const int victim = static_cast<int>(draw(all));
        dead.push_back(victim);
        network.crashes.push_back({victim, last});
    }
    for (int i = 0; i < later; ++i) p.simulation.joins.push_back(between(0, length));
    if (!p.proven_only) {
        for (std::uint64_t stops = draw(3); stops > 0; --stops)
            network.stops.push_back({static_cast<int>(draw(all)), between(0, length), between(ms, 900 * ms)});
        if (draw(2) == 0) {
            un::NetworkPartition cut{.ranks = {}, .at_ns = between(0, length), .for_ns = between(ms, 3000 * ms)};
            for (int process = 0; process < static_cast<int>(all); ++process)
                if (draw(2) == 0) cut.ranks.push_back(process);
            network.partitions.push_back(cut);
        }
    }
    set_times(p);
    return p;
}

/// One of the first processes falls silent when others join, and wakes after all other first ones
/// have died. Does it continue alone?
Plan plan_lonely(std::uint64_t seed) {
    un::CounterRandom random(seed, 78);
    const auto between = [&](un::nanoseconds least, un::nanoseconds most) {
        return least + static_cast<un::nanoseconds>(random() % static_cast<std::uint64_t>(most - least + 1));
    };
    Plan p;
    p.ranks = static_cast<int>(between(3, 6));
    p.job.replicas = p.ranks + 4;
    p.job.epochs = 20; // the others still train at that time
    p.update_ns = 8 * ms;
    un::SimulationOptions& network = p.simulation.network;
    network.seed = seed;
    network.jitter_ns = ms;
    network.detection_ns = ms;
    const un::nanoseconds come = between(0, 10 * ms), dead = come + between(150 * ms, 450 * ms);
    const un::nanoseconds later = random() % 2 == 0 ? 0 : between(10 * ms, 140 * ms);
    for (auto others = between(1, 4); others > 0; --others) p.simulation.joins.push_back(come + later + between(0, ms));
    const int silent = static_cast<int>(between(0, p.ranks - 1));
    network.stops.push_back({silent, come + between(0, 6 * ms), between(460 * ms, 600 * ms)});
    for (int process = 0; process < p.ranks; ++process)
        if (process != silent) network.crashes.push_back({process, dead + between(0, 10 * ms)});
    set_times(p);
    return p;
}

struct Sums {
    std::uint64_t finished = 0, crashed = 0, left_behind = 0, no_majority = 0, no_state = 0, not_added = 0, added = 0,
                  changes = 0;
};

/// Whether the error names owners and the ranks that had their copies, and none of these has
/// reached its end.
bool has_named_lost_ranks(const std::string& text, const un::ElasticSimulationReport& report) {
    const std::vector<int> named = unisono_test::ranks_without_state(text);
    for (const int rank : named)
        for (const un::SimulatedProcess& process : report.processes)
            if (process.number == rank && !process.crashed && !process.threw) return false;
    return !named.empty();
}

/// Returns an empty string, or what went wrong.
template <class Rules = un::detail::MembershipRules>
std::string failure_of(std::uint64_t seed, Sums& sums, bool lonely = false) {
    const Plan p = lonely ? plan_lonely(seed) : plan(seed);
    const std::uint64_t expected = undisturbed(p.job);
    std::string failure;
    const auto body = [&](auto& world) {
        un::CounterRandom random(seed, static_cast<std::uint32_t>(100 + world.number()));
        const auto compute = [&] {
            world.group().endpoint().compute(
                static_cast<un::nanoseconds>(random() % static_cast<std::uint64_t>(p.update_ns)));
        };
        const std::uint64_t hash = train(world, p.job, compute);
        sums.changes += world.changes().size();
        if (hash != expected) failure = "process with number " + std::to_string(world.number()) + " has another hash";
        ++sums.finished;
    };
    const un::ElasticSimulationReport report = un::detail::simulate_elastic_by<Rules>(p.ranks, p.simulation, body);
    if (report.two_worlds) failure = "two worlds";
    for (std::size_t i = 0; i < report.processes.size(); ++i) {
        const un::SimulatedProcess& one = report.processes[i];
        sums.crashed += one.crashed;
        sums.added += i >= static_cast<std::size_t>(p.ranks) && one.number >= 0;
        if (!one.threw) continue;
        try {
            std::rethrow_exception(one.threw);
        } catch (const un::error& failed) {
            const std::string text = failed.what();
            const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
            const bool known = says("has been left behind") || says("neither a majority");
            if (says("has been left behind")) ++sums.left_behind;
            else if (says("neither a majority")) ++sums.no_majority;
            else if (says("all ranks that had the training's state were lost")) ++sums.no_state;
            else if (p.job.every > 0 && says("no rank has the state of ")) {
                ++sums.no_state;
                if (p.proven_only && !has_named_lost_ranks(text, report))
                    failure = "process " + std::to_string(i) + " ended with: " + text;
            } else if (says("waited to be added")) ++sums.not_added;
            else failure = "process " + std::to_string(i) + " ended with: " + text;
            if (known && p.proven_only)
                failure = "others were only killed, and process " + std::to_string(i) + " ended with: " + text;
        } catch (const std::exception& failed) {
            failure = "process " + std::to_string(i) + " ended with: " + failed.what();
        }
    }
    return failure;
}

void ends_with(const un::SimulatedProcess& process, const std::string& text, un::ErrorCode code = un::ErrorCode::none) {
    BOOST_REQUIRE(process.threw);
    test::fails(code, {text}, [&] { std::rethrow_exception(process.threw); });
}

std::uint64_t number_or(const char* name, std::uint64_t usual) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_simulated)

BOOST_AUTO_TEST_CASE(campaign) {
    const std::uint64_t seeds = number_or("UNISONO_ELASTIC_SEEDS", 200), from = number_or("UNISONO_ELASTIC_FROM", 0);
    Sums sums;
    for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
        const std::string failure = failure_of(seed, sums);
        BOOST_REQUIRE_MESSAGE(failure.empty(), "seed " << seed << ": " << failure);
    }
    BOOST_TEST_MESSAGE(seeds << " seeds: " << sums.finished << " processes ended with the undisturbed hash, "
                             << sums.crashed << " crashed, " << sums.left_behind << " were left behind, "
                             << sums.no_majority << " found no majority, " << sums.no_state << " had no state, "
                             << sums.added << " were added, " << sums.not_added << " were not; " << sums.changes
                             << " changes of the world");
    // The events that the seeds should cause do happen.
    BOOST_TEST(sums.finished > seeds);
    BOOST_TEST(sums.crashed > seeds / 2);
    BOOST_TEST(sums.left_behind > seeds / 100);
    BOOST_TEST(sums.no_majority > seeds / 100);
    BOOST_TEST(sums.added > seeds / 10);
    BOOST_TEST(sums.changes > seeds);
}

/// One of the first processes falls silent when others join, and wakes when all other first ones
/// are dead.
BOOST_AUTO_TEST_CASE(lonely) {
    Sums sums;
    for (std::uint64_t seed = 0; seed < number_or("UNISONO_ELASTIC_SEEDS", 30); ++seed) {
        const std::string failure = failure_of(seed, sums, true);
        BOOST_REQUIRE_MESSAGE(failure.empty(), "seed " << seed << ": " << failure);
    }
    BOOST_TEST(sums.added > 0u);
    BOOST_TEST(sums.left_behind > 0u);
}

/// The campaign would see two worlds. (membership.cpp leaves out the other rules of the protocol.)
BOOST_AUTO_TEST_CASE(a_minority_that_goes_on_is_found) {
    Sums sums;
    std::uint64_t seed = 0;
    std::string failure;
    for (; seed < 1000 && failure.empty(); ++seed) failure = failure_of<unisono_test::NoQuorum>(seed, sums);
    BOOST_TEST_MESSAGE("before seed " << seed << ": " << failure);
    BOOST_TEST(!failure.empty());
}

/// An exception that every rank's observer throws ends the training on every rank, whichever ranks
/// die meanwhile.
BOOST_AUTO_TEST_CASE(exceptions_end_all) {
    std::size_t told = 0;
    for (std::uint64_t seed = 0; seed < number_or("UNISONO_ELASTIC_SEEDS", 100); ++seed) {
        Plan p = plan(seed);
        // A process that joins after that update does not see the exception.
        if (!p.simulation.joins.empty()) continue;
        p.job.spoils = false; // otherwise such an update may not exist
        const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
            train(
                world, p.job, [&] { world.group().endpoint().compute(ms / 2); },
                [](const un::UpdateReport& update) {
                    if (update.number == 3) throw std::runtime_error("no such sample");
                });
        });
        for (const un::SimulatedProcess& one : report.processes) {
            if (one.crashed) continue;
            std::string text = "it came to its end";
            try {
                if (one.threw) std::rethrow_exception(one.threw);
            } catch (const std::exception& failed) {
                text = failed.what();
            }
            const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
            told += says("no such sample");
            BOOST_TEST((says("no such sample") || says("has been left behind") || says("neither a majority") ||
                        (p.job.every > 0 && says("no rank has the state of "))),
                       "seed " << seed << ": " << text);
        }
    }
    BOOST_TEST(told > 50u);
}

BOOST_AUTO_TEST_CASE(equal_seeds_give_equal_runs) {
    std::vector<std::string> changes;
    const auto run = [&] {
        const Plan p = plan(4);
        return un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
            train(world, p.job, [&] { world.group().endpoint().compute(ms); });
            for (const un::WorldChange& change : world.changes()) changes.push_back(change.text());
        });
    };
    const un::ElasticSimulationReport one = run();
    const std::vector<std::string> of_one = std::exchange(changes, {});
    const un::ElasticSimulationReport other = run();
    BOOST_TEST(!of_one.empty());
    BOOST_TEST(of_one == changes, boost::test_tools::per_element());
    BOOST_TEST(one.time > 0);
    BOOST_TEST(one.time == other.time);
    BOOST_TEST(one.digest == other.digest);
}

/// By this number checkpoints of two simulations are told apart.
BOOST_AUTO_TEST_CASE(each_simulation_is_a_job) {
    std::vector<std::uint64_t> jobs;
    for (int again = 0; again < 2; ++again)
        un::simulate_elastic(2, {}, [&](auto& world) { jobs.push_back(world.job()); });
    BOOST_TEST_REQUIRE(jobs.size() == 4u);
    BOOST_TEST(jobs[0] == jobs[1]);
    BOOST_TEST(jobs[2] == jobs[3]);
    BOOST_TEST(jobs[1] != jobs[2]);
    BOOST_TEST(jobs[0] != 0u);
}

BOOST_AUTO_TEST_CASE(options_that_are_refused) {
    const auto expect = [](const un::ElasticSimulation& simulation, const char* text) {
        test::fails({text}, [&] { un::simulate_elastic(2, simulation, [](auto&) {}); });
    };
    expect({.network = {.crashes = {{.rank = 2}}}}, "rank 2, expected a rank below 2");
    expect({.joins = {-1}}, "ElasticSimulation::joins has -1, expected at least 0 nanoseconds");
    expect({.elastic = {.patience = std::chrono::milliseconds(9)}},
           "ElasticOptions::patience is 9000000 ns; expected 10 ms to 365 days");
    expect({.longest = -5}, "ElasticSimulation::longest is -5, expected at least 0 nanoseconds");
}

/// A rank that waits in the next world for a dead rank must not be suspected meanwhile. Ranks are
/// only killed.
BOOST_AUTO_TEST_CASE(added_ranks_that_die_at_once) {
    std::size_t added = 0;
    for (const std::uint64_t seed : {1u, 5u, 8u, 9u}) {
        for (un::nanoseconds at = 13 * ms; at < 17 * ms; at += ms / 20) {
            Plan p{.ranks = 3, .job = {.replicas = 4}};
            set_times(p);
            p.simulation.network.seed = seed;
            p.simulation.network.jitter_ns = ms;
            p.simulation.network.detection_ns = 3 * ms;
            p.simulation.joins = {4 * ms};
            p.simulation.network.crashes = {{.rank = 3, .at_ns = at}};
            const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
                train(world, p.job, [&] { world.group().endpoint().compute(ms); });
            });
            added += report.processes[3].number >= 0;
            for (std::size_t process = 0; process < 3; ++process)
                BOOST_TEST(!report.processes[process].threw,
                           "seed " << seed << ", crash at " << at << " ns: process " << process << " ended");
        }
    }
    BOOST_TEST(added > 50u);
}

/// The ranks wait for an added process that stalls, until their patience ends. Then they train
/// without it.
BOOST_AUTO_TEST_CASE(an_added_process_that_stands_still_is_awaited_once) {
    Plan p{.ranks = 2, .job = {.replicas = 4, .epochs = 10}};
    set_times(p);
    p.simulation.joins = {2 * ms};
    p.simulation.network.stops = {{.rank = 2, .at_ns = 3 * ms, .for_ns = 20'000 * ms}};
    std::vector<std::string> changes;
    const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
        train(world, p.job, [&] { world.group().endpoint().compute(ms); });
        if (world.number() == 0)
            for (const un::WorldChange& change : world.changes()) changes.push_back(change.text());
    });
    BOOST_TEST(!report.processes[0].threw);
    BOOST_TEST(!report.processes[1].threw);
    BOOST_TEST(changes.size() == 1u, changes.size() << " changes of the world; expected 1");
}

/// Ranks disagree after one was added and before the next update. It leaves, and the others report
/// the difference.
BOOST_AUTO_TEST_CASE(ranks_that_differ_once_another_was_added) {
    Plan p{.ranks = 2, .job = {.replicas = 4}};
    set_times(p);
    p.simulation.joins = {ms / 2};
    p.simulation.longest = 20'000 * ms;
    static const std::vector<float> values = un::torch_rand(5, rows * width);
    const un::RowData<float> data(values, width);
    const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
        Line model([&] { world.group().endpoint().compute(ms); }, false);
        un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::AdamW{}};
        // One update, after which a process is added.
        trainer.fit(data, {.batch_size = rows / 4, .progress = false});
        trainer.fit(data, {.batch_size = world.number() == 1 ? 8 : 4, .progress = false});
    });
    for (std::size_t process = 0; process < 2; ++process)
        ends_with(report.processes[process], "FitOptions.batch_size is 8 on rank 1 and 4");
}

/// A program whose calls change the state, as a resume does, and which changes the model after its
/// training.
template <class... Policies>
std::vector<float> change_state(un::nanoseconds crash, un::nanoseconds join, un::nanoseconds second,
                                Policies... policies) {
    un::ElasticSimulation simulation;
    simulation.network.detection_ns = ms;
    if (crash > 0) simulation.network.crashes = {{.rank = 2, .at_ns = crash}};
    if (second > 0) simulation.network.crashes.push_back({.rank = 0, .at_ns = second});
    if (join > 0) simulation.joins = {join};
    simulation.elastic.join.rendezvous.timeout = std::chrono::milliseconds(300);
    std::vector<float> found;
    const un::ElasticSimulationReport report = un::simulate_elastic(3, simulation, [&](auto& world) {
        static const std::vector<float> values = un::torch_rand(5, rows * width);
        const un::RowData<float> data(values, width);
        Line model([&] { world.group().endpoint().compute(4 * ms); }, false);
        {
            un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::AdamW{}, policies...};
            const un::FitOptions once{.batch_size = 32, .progress = false};
            trainer.fit(data, once);
            trainer.collectively([](auto& now) {
                now.trained().set(0.25f);
                now.restore(un::TrainingProgress{});
                return true;
            });
            trainer.fit(data, once);
            trainer.collectively([&](auto& now) {
                const std::vector<float>& mine = now.trained().weights();
                if (found.empty()) found = mine;
                BOOST_TEST((found == mine), "crash at " << crash << ", join at " << join << ": ranks differ");
                return true;
            });
            model.set(7);
        }
        for (const float weight : model.weights()) BOOST_TEST(weight == 7.f);
    });
    for (const un::SimulatedProcess& one : report.processes) {
        if (one.crashed || !one.threw) continue;
        try {
            std::rethrow_exception(one.threw);
        } catch (const un::error& failed) {
            const std::string text = failed.what();
            BOOST_TEST((text.find("waited to be added") != text.npos), "crash at " << crash << ": " << text);
        }
    }
    return found;
}
BOOST_AUTO_TEST_CASE(calls_that_change_the_state) {
    const std::vector<float> expected = change_state(0, 0, 0);
    for (un::nanoseconds at = ms; at < 70 * ms; at += 2 * ms) {
        BOOST_TEST_CONTEXT("at " << at << " ns") {
            BOOST_TEST((change_state(at, 0, 0) == expected));
            for (const un::nanoseconds later : {3 * ms, 11 * ms, 23 * ms})
                BOOST_TEST((change_state(at, 0, at + later) == expected));
            BOOST_TEST((change_state(0, at, 0) == expected));
            BOOST_TEST((change_state(at, 0, 0, un::StateSharding{}, un::Snapshots{.every = 2}) == expected));
            BOOST_TEST((change_state(at, at, 0, un::StateSharding{}, un::Snapshots{.every = 2}) == expected));
        }
    }
}

/// A loop of the user's own, on one or more ranks, with a call after every fourth update. Another
/// process joins, or a rank dies.
std::uint64_t steps_with_calls(int ranks, un::nanoseconds join, un::nanoseconds crash) {
    un::ElasticSimulation simulation;
    simulation.elastic.join.rendezvous.timeout = std::chrono::milliseconds(300);
    simulation.network.detection_ns = ms;
    if (join > 0) simulation.joins = {join};
    if (crash > 0) simulation.network.crashes = {{.rank = ranks - 1, .at_ns = crash}};
    std::uint64_t found = 0;
    un::simulate_elastic(ranks, simulation, [&](auto& world) {
        static const std::vector<float> values = un::torch_rand(5, rows * width);
        Line model([&] { world.group().endpoint().compute(2 * ms); }, false);
        un::Trainer trainer{world, model, un::Replicas{2}, un::Reproducible{}, un::AdamW{}};
        std::uint64_t hash = 0;
        while (trainer.updates() < 16) {
            const auto batch = [&](std::size_t replica) {
                const auto at = values.begin() + static_cast<std::ptrdiff_t>((trainer.updates() * 2 + replica) * width);
                return un::RowBatch<float>{.values = {at, at + width}, .width = width};
            };
            if (world.size() == 1) static_cast<void>(trainer.step(batch(0), batch(1)));
            else static_cast<void>(trainer.step(batch(static_cast<std::size_t>(world.rank()))));
            if (trainer.updates() % 4 == 0)
                hash = trainer.collectively([](auto& now) { return un::state_hash(now).parameters; });
        }
        if (found == 0) found = hash;
        BOOST_TEST(hash == found, "ranks differ");
    });
    return found;
}
BOOST_AUTO_TEST_CASE(loops_of_ones_own) {
    const std::uint64_t expected = steps_with_calls(1, 0, 0);
    BOOST_TEST(expected == steps_with_calls(2, 0, 0));
    for (un::nanoseconds at = ms; at < 64 * ms; at += 2 * ms) {
        BOOST_TEST_CONTEXT("at " << at << " ns") {
            BOOST_TEST(steps_with_calls(1, at, 0) == expected);
            BOOST_TEST(steps_with_calls(2, 0, at) == expected);
            BOOST_TEST(steps_with_calls(2, at, at / 2) == expected);
        }
    }
}

/// As bench_simulated with 4,096 ranks, with the times of a cluster.
BOOST_AUTO_TEST_CASE(many_ranks) {
    const Job job{.replicas = 256, .epochs = 8};
    const std::uint64_t expected = undisturbed(job);
    Plan p{.ranks = 256, .job = job};
    set_times(p);
    p.simulation.network.seed = 11;
    un::ClusterModel& cluster = p.simulation.network.cluster.emplace();
    cluster.ranks_per_host = 8;
    cluster.within.one_way.points = {{0, 500}, {1e6, 2e5}};
    cluster.between.one_way.points = {{0, 15'000}, {1e6, 3e5}};
    un::CounterRandom random(11, 1);
    for (int death = 0; death < 8; ++death)
        p.simulation.network.crashes.push_back(
            {.rank = static_cast<int>(random() % 32) + 32 * death, .at_ns = death * 3 * ms + 100 * us});
    std::size_t alike = 0, changes = 0;
    const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
        alike += expected == train(world, job, [&] { world.group().endpoint().compute(ms); });
        changes = world.changes().size();
    });
    BOOST_TEST(alike == 248u);
    BOOST_TEST(changes >= 4u);
    BOOST_TEST(!report.two_worlds);
}

/// The costs were measured with the first number of ranks.
BOOST_AUTO_TEST_CASE(measured_costs_of_reducers) {
    static const std::vector<float> values = un::torch_rand(5, rows * width);
    const auto left = [&](const auto& reducer) {
        Plan p{.ranks = 4};
        set_times(p);
        p.simulation.network.crashes = {{.rank = 2, .at_ns = 2 * ms}};
        std::size_t at_end = 0, changes = 0;
        const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
            Line model([&] { world.group().endpoint().compute(ms); }, false);
            fit(world, model, un::RowData<float>(values, width), {.replicas = 4}, Unobserved{}, un::Replicas{4},
                un::Reproducible{}, reducer);
            ++at_end;
            changes = world.changes().size();
        });
        for (const un::SimulatedProcess& one : report.processes)
            if (one.threw) BOOST_CHECK_NO_THROW(std::rethrow_exception(one.threw));
        BOOST_TEST(changes >= 1u);
        return at_end;
    };
    const un::AutomaticReducer measured{.costs = un::assumed_reducer_costs(4)};
    BOOST_TEST(left(measured) == 3u);
    BOOST_TEST(left(un::AnyReducer{measured}) == 3u);
}

/// The trainer's group may end during such a call.
BOOST_AUTO_TEST_CASE(no_calls_within_on_update) {
    const un::ElasticSimulationReport report = un::simulate_elastic(1, {}, [](auto& world) {
        static const std::vector<float> values(64 * width);
        Line model([] {}, false);
        un::Trainer trainer{world, model, un::Replicas{2}, un::AdamW{}};
        trainer.fit(un::RowData<float>(values, width), {.batch_size = 8, .progress = false},
                    [&](const un::UpdateReport&) { trainer.verify_replicas(); });
    });
    ends_with(report.processes[0], "found a call of the trainer within on_update, over an elastic world");
}

/// A rank that is behind could not distinguish the states of two trainers.
BOOST_AUTO_TEST_CASE(one_trainer_per_world) {
    const un::ElasticSimulationReport report = un::simulate_elastic(2, {}, [](auto& world) {
        for (int i = 0; i < 2; ++i) train(world, {.replicas = 2}, [] {});
    });
    for (const un::SimulatedProcess& one : report.processes)
        ends_with(one, "found a second trainer over an elastic world");
}

/// The program sets the times of crashes. Changes of the world have virtual times.
BOOST_AUTO_TEST_CASE(changes_have_virtual_times) {
    un::ElasticSimulation simulation;
    simulation.network.detection_ns = 2 * ms;
    simulation.network.crashes = {{.rank = 0, .at_ns = 10 * ms}};
    simulation.joins = {20 * ms};
    std::vector<un::WorldChange> changes;
    const un::ElasticSimulationReport report = un::simulate_elastic(3, simulation, [&](auto& world) {
        train(world, {.replicas = 8, .epochs = 8}, [&] { world.group().endpoint().compute(ms); });
        if (world.number() == 1) changes = world.changes();
    });
    BOOST_TEST(report.processes[0].crashed);
    BOOST_TEST(report.time > 32 * ms);
    BOOST_TEST(report.time < 320 * ms); // and not at the last timeout
    BOOST_TEST(report.processes[3].number == 3);
    BOOST_REQUIRE(changes.size() == 2u);
    BOOST_TEST(changes[0].lost == std::vector<int>{0});
    BOOST_TEST(changes[1].joined == std::vector<int>{3});
    BOOST_TEST(changes[0].took.count() > 0);
    BOOST_TEST(changes[0].took.count() < 10 * ms);
}

/// Two ranks lose their connection, always after `patience` and before an update. The formation
/// takes each world for one that has worked, so the trainer ends.
BOOST_AUTO_TEST_CASE(worlds_that_live_and_make_no_update) {
    Plan p{.ranks = 3, .job = {.replicas = 3}};
    set_times(p);
    p.simulation.elastic.join.timeout = std::chrono::seconds(1);
    std::vector<std::size_t> changes;
    const un::ElasticSimulationReport report = un::simulate_elastic(p.ranks, p.simulation, [&](auto& world) {
        const auto compute = [&] {
            world.group().endpoint().compute(150 * ms);
            if (world.rank() != 0) return;
            world.abort({.code = un::ErrorCode::peer_lost,
                         .rank = 0,
                         .peer = 1,
                         .operation = "by hand",
                         .sequence = 0,
                         .message = "apart"});
        };
        try {
            train(world, p.job, compute);
        } catch (const un::error&) {
            changes.push_back(world.changes().size());
            throw;
        }
    });
    BOOST_TEST(changes == (std::vector<std::size_t>(3, 3)), boost::test_tools::per_element());
    for (const un::SimulatedProcess& one : report.processes) ends_with(one, "apart", un::ErrorCode::peer_lost);
}

/// After a loss all ranks have the same parameters, so none are sent.
BOOST_AUTO_TEST_CASE(parameters_are_not_sent_again) {
    static const std::vector<float> values = un::torch_rand(5, rows * width);
    constexpr std::size_t count = 10'000;
    struct Wide {
        std::vector<float> weights = std::vector<float>(count), slopes = std::vector<float>(count);
        un::Group<un::detail::SimulatedMember>* group = nullptr;
        std::uint64_t most = 0; ///< sent before a pass
        std::array<std::span<float>, 1> parameters() { return {weights}; }
        std::array<std::span<float>, 1> gradients() { return {slopes}; }
        double operator()(const un::RowBatch<float>&, un::Pass&) {
            if (group != nullptr) most = std::max(most, group->traffic().bytes_sent);
            for (float& slope : slopes) slope += 1;
            return 0;
        }
    };
    un::ElasticSimulation simulation;
    simulation.network.detection_ns = 100 * us;
    simulation.network.crashes = {{.rank = 1, .at_ns = 20 * ms}};
    std::vector<std::uint64_t> sent;
    un::simulate_elastic(3, simulation, [&](auto& world) {
        Wide model;
        un::Trainer trainer{world, model, un::Replicas{3}, un::Reproducible{}, un::Sgd{}};
        const auto batch = [&](std::size_t replica) {
            const auto at = values.begin() + static_cast<std::ptrdiff_t>(replica * width);
            return un::RowBatch<float>{.values = {at, at + width}, .width = width};
        };
        for (bool first = false; trainer.updates() < 30;) {
            world.group().endpoint().compute(ms);
            model.group = first ? &world.group() : nullptr;
            const auto rank = static_cast<std::size_t>(world.rank());
            const bool hosts_two = world.size() == 2 && rank == 0;
            first = (hosts_two ? trainer.step(batch(0), batch(2)) : trainer.step(batch(rank))).world_changed;
        }
        sent.push_back(model.most);
    });
    BOOST_REQUIRE(sent.size() == 2u);
    for (const std::uint64_t bytes : sent) {
        BOOST_TEST(bytes > 0u);
        BOOST_TEST(bytes < count * sizeof(float));
    }
}

/// A second rank is lost while the others recover from the first loss. The record before both
/// losses stays.
BOOST_AUTO_TEST_CASE(a_trace_outlives_two_losses) {
    const std::vector<float> values(256 * width, 0.5f);
    const un::RowData<float> data(values, width);
    int traces = 0;
    for (int after = 60; after < 260; after += 2) {
        un::ElasticSimulation simulation;
        simulation.network.detection_ns = 100 * us;
        simulation.network.link.latency_ns = 10 * us;
        simulation.elastic.join.timeout = std::chrono::seconds(1);
        simulation.network.crashes = {{.rank = 1, .at_ns = 20 * ms}, {.rank = 3, .at_ns = 20 * ms + after * 3 * us}};
        std::array<std::uint64_t, 4> first{99, 99, 99, 99};
        un::simulate_elastic(4, simulation, [&](auto& world) {
            Line model([&] { world.group().endpoint().compute(500 * us); }, false);
            un::Trainer trainer{world,
                                model,
                                un::Replicas{4},
                                un::Reproducible{},
                                un::AdamW{.learning_rate = 0.01},
                                un::StateSharding{},
                                un::Snapshots{.every = 4},
                                un::Trace{}};
            trainer.fit(data, {.epochs = 1, .batch_size = 1, .progress = false});
            for (const un::TraceEvent& one : trainer.trace().events())
                if (one.what == un::Activity::compute) {
                    std::uint64_t& least = first[static_cast<std::size_t>(world.number())];
                    least = std::min(least, one.update);
                    ++traces;
                }
        });
        // 99: the owner of a slice and the rank that had its copy are lost together.
        for (const int who : {0, 2})
            BOOST_TEST((first[static_cast<std::size_t>(who)] == 0 || first[static_cast<std::size_t>(who)] == 99),
                       "the trace of rank " << who << " begins with update " << first[static_cast<std::size_t>(who)]);
    }
    BOOST_TEST(traces > 1000);
}

namespace {

/// The sockets of an added process, by hand. Members 0 and 1 are on one host; 2 and 3 are added, on
/// another one. This is member 3. Member 2 dies, which only its host can prove.
struct AddedOnAnotherHost : test::Alone {
    struct Over {};
    std::vector<std::pair<int, un::detail::MembershipMessage>>* sent;
    int waits = 0;

    static un::nanoseconds now() { return 0; }
    static int me() { return 3; }
    static bool is_to_be_added() { return true; }
    static std::vector<int> connect() { return {}; }
    static un::Group<un::detail::SimulatedMember> first_group() { throw Over(); }
    void send(int to, const un::detail::MembershipMessage& message) { sent->emplace_back(to, message); }
    static std::uint64_t host_of(int member) { return member < 2 ? 7 : 8; }
    template <class Heard, class Lost, class Refused, class Came>
    void wait(un::nanoseconds, Heard heard, Lost lost, Refused, Came) {
        if (waits == 0)
            heard(0, un::detail::MembershipMessage{.word = un::detail::MembershipWord::ready,
                                                   .ballot = 1,
                                                   .successor = {.members = {0, 1, 2, 3},
                                                                 .added = {{.identity = 1}, {.identity = 2}},
                                                                 .next_number = 4,
                                                                 .source = 0,
                                                                 .updates = 1}});
        if (waits == 1) lost(2, true);
        if (++waits == 3) throw Over();
    }
    template <class Wait>
    un::Group<un::detail::SimulatedMember> meet(const std::vector<int>&, std::uint64_t, un::nanoseconds, Wait) {
        throw Over();
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(an_added_member_tells_other_hosts_of_a_death) {
    std::vector<std::pair<int, un::detail::MembershipMessage>> sent;
    un::detail::MembershipFormation<un::detail::SimulatedMember, AddedOnAnotherHost> formation({}, {{}, &sent});
    BOOST_CHECK_THROW(static_cast<void>(formation.first()), AddedOnAnotherHost::Over);
    std::vector<int> told;
    for (const auto& [to, message] : sent)
        if (message.word == un::detail::MembershipWord::gone && message.member == 2 && message.heard)
            told.push_back(to);
    BOOST_TEST(told == (std::vector<int>{0, 1}), boost::test_tools::per_element());
}

// Sanitizers take most addresses.
BOOST_AUTO_TEST_CASE(without_threads_it_is_refused, *boost::unit_test::enable_if<!test::sanitized>()) {
    un::Processes processes;
    processes.start([] {
        const rlimit limit{std::size_t{3} << 30, std::size_t{3} << 30};
        ::setrlimit(RLIMIT_AS, &limit);
        try {
            un::simulate_elastic(1000, {}, [](auto&) {});
        } catch (const un::error& failed) {
            const bool says_so = std::string(failed.what()).find("no thread for process") != std::string::npos;
            return failed.code() == un::ErrorCode::refused && says_so ? 0 : 2;
        }
        return 1;
    });
    const auto end = processes.wait_any(un::steady_now() + 60'000'000'000);
    BOOST_REQUIRE(end.has_value());
    BOOST_TEST(end->status == 0, end->text());
    BOOST_TEST(end->signal == 0, end->text());
}

BOOST_AUTO_TEST_SUITE_END()
