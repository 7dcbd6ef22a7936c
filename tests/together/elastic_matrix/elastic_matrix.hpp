// The policy matrix over an elastic world. Each combination that the rules allow loses a rank,
// gains one, and ends with the bits of an undisturbed run.
//
// The combinations are the rows of tests/together/matrix/pairwise.hpp. A row that the rules refuse
// is counted with the reason. It is tried again with a synchronous update, then with another
// sampler, so each pair of the other policies trains. If ranks own slices, they take a snapshot
// every second update. Reducers, shardings and accumulations that are in no row are tested in
// addition.
#pragma once

// The matrix's own checks need it. They are not used here.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory

#include "extensions/elastic/forks.hpp"
#include "support/folder.hpp"
#include "together/matrix/pairwise.hpp"

#include "unisono/elastic.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>

namespace unisono_elastic_matrix {

namespace un = unisono;
using namespace unisono_matrix;

using Transport = un::SharedMemory;
using ElasticWorld = un::ElasticWorld<Transport>;
inline constexpr int replicas = 3;

/// The result of one process.
struct Ended {
    un::StateHash hash = {};
    std::array<double, columns> weights = {};
    std::uint64_t updates = 0;
    int lost = 0, added = 0;
};

template <class... Policies>
struct ElasticTraining
    : un::detail::ChosenTraining<un::Group<Transport>, Model, un::detail::ChosenPolicies<Policies...>> {
    using Snapshots = un::Snapshots;
};

/// The process `who` kills itself after the third update if it is `victim`. 0 and 1 are of the
/// first world; 2 joins later.
template <class... Policies>
Ended train(ElasticWorld& world, int who, int victim, const Policies&... policies) {
    Model model;
    un::RowData<double, double> data{inputs(), columns, targets()};
    un::Trainer trainer{world,
                        model,
                        un::Replicas{replicas},
                        un::Reproducible{},
                        un::Buckets{.first_bytes = 1, .bytes = 24},
                        un::Snapshots{.every = 2},
                        policies...};
    const un::FitOptions options{.epochs = epochs, .batch_size = batch_size, .progress = false};
    trainer.fit(data, options, [&](const un::UpdateReport& report) {
        const un::nanoseconds until = un::steady_now() + 10'000'000'000;
        if (victim >= 0 && who == 0 && report.number == 1 && world.epoch() == 0)
            while (world.group().endpoint().first_fault() == nullptr && un::steady_now() < until) {
                world.take_in_applicants(); // wait for the one that joins
                ::usleep(200);
            }
        if (who == victim && report.number == 3) ::kill(::getpid(), SIGKILL);
    });
    Ended ended;
    ended.updates = trainer.updates();
    ended.hash = trainer.collectively([](auto& now) { return un::state_hash(now); });
    trainer.now().visit_parameters({0, columns}, [&](std::size_t flat, std::span<const double> values) {
        std::copy(values.begin(), values.end(), ended.weights.begin() + static_cast<std::ptrdiff_t>(flat));
    });
    for (const un::WorldChange& change : world.changes()) {
        ended.lost += static_cast<int>(change.lost.size());
        ended.added += static_cast<int>(change.joined.size());
    }
    return ended;
}

/// One combination: two ranks, a third one that joins after the first update, and a death after the
/// third update. Another rank trains undisturbed. `expected(updates)`: the weights after that
/// number of updates.
inline void run_disturbed(const std::string& which, const std::function<std::vector<double>(std::uint64_t)>& expected,
                          const std::function<Ended(ElasticWorld&, int, int)>& body) {
    static int number = 0;
    const int victim = ++number % 2; // the first rank or the second
    const unisono_test::Folder folder, calm;
    const unisono_test::Reports<Ended> reports;
    un::Processes processes;
    for (int who = 0; who < 3; ++who)
        processes.start([&, who] {
            // Hides the warning that two ranks host three replicas.
            if (std::freopen("/dev/null", "w", stderr) == nullptr) return 3;
            return unisono_test::be_fork<Transport>(who, 2, folder.path(), reports[who],
                                                    [&](ElasticWorld& world) { return body(world, who, victim); });
        });
    processes.start([&] {
        return unisono_test::be_fork<Transport>(0, 1, calm.path(), reports[3],
                                                [&](ElasticWorld& world) { return body(world, 0, -1); });
    });
    unisono_test::await_end(processes, std::chrono::seconds(60));
    const std::vector<double> weights = expected(reports[3].result.updates);
    BOOST_TEST_CONTEXT(which << ", rank " << victim << " dies") {
        BOOST_TEST(!reports[victim].done);
        for (const int who : {1 - victim, 2, 3}) {
            BOOST_TEST_CONTEXT("process " << who << ": " << reports[who].text) {
                const Ended& ended = reports[who].result;
                BOOST_TEST(reports[who].done);
                BOOST_TEST((ended.hash == reports[3].result.hash), "another hash than undisturbed");
                BOOST_TEST(ended.updates == reports[3].result.updates);
                for (std::size_t j = 0; j < columns; ++j)
                    BOOST_TEST(std::abs(ended.weights[j] - weights[j]) <= 1e-9 * std::max(1.0, std::abs(weights[j])),
                               "weight " << j << " is " << ended.weights[j] << ", expected " << weights[j]);
            }
        }
        BOOST_TEST(reports[1 - victim].result.lost == 1);
        BOOST_TEST(reports[1 - victim].result.added == 1);
    }
}

/// Returns true if the combination ran.
template <class Reducer, class Update, class Sharding, class Guard, class Optimizer, class Sampler, class Accumulation,
          class Weighing, class Rate, class Clipping = un::NoClipping>
bool check_elastic(const Reducer& reducer, const Update& update, const Sharding& sharding, const Guard& guard,
                   const Optimizer& optimizer, const Sampler& sampler, const Accumulation& accumulation,
                   const Weighing& weighing, const Rate& rate, const Clipping& clipping = {}) {
    using Training = ElasticTraining<un::Replicas, Reducer, Update, Sharding, Guard, Optimizer, Sampler, Accumulation,
                                     Weighing, Rate, Clipping>;
    constexpr std::string_view refusal = un::detail::ElasticRules::template refusal<Training>;
    static_assert(refusal.empty() == un::detail::ElasticRules::template good<Training>);
    if constexpr (!refusal.empty()) {
        ++counts().refused[std::string(refusal)];
        return false;
    } else {
        static_assert(un::refusal<un::Group<Transport>, Model, un::Replicas, un::Reproducible, Reducer, Update, Sharding,
                                  Guard, Optimizer, Sampler, Accumulation, Weighing, Rate, Clipping>.empty(),
                      "other rules than those of elastic worlds refuse this combination");
        ++counts().ran;
        std::string which;
        for (const std::string_view name : {Reducer::name, Update::name, Guard::name, Optimizer::name, Sampler::name,
                                            Accumulation::name, Weighing::name, Rate::name, Clipping::name})
            which.append(which.empty() ? "" : ", ").append(name);
        run_disturbed(
            which,
            [&](std::uint64_t updates) {
                return serial(replicas, update, sampler, accumulation, weighing, optimizer, rate, clipping, updates);
            },
            [&](ElasticWorld& world, int who, int victim) {
                Reducer mine = reducer;
                if constexpr (requires { reducer.within(1); })
                    // The undisturbed rank is alone.
                    if (victim < 0) mine = reducer.within(1);
                return train(world, who, victim, mine, update, sharding, guard, optimizer, sampler, accumulation,
                             weighing, rate, clipping);
            });
        return true;
    }
}

/// The policy of a row's family, in the order of `choices`.
template <std::size_t Row, std::size_t Family>
const auto& chosen() {
    return std::get<rows[Row][Family]>(std::get<Family>(choices()));
}

template <std::size_t Row>
void check_elastic_row() {
    const auto with = [](const auto& reducer, const auto& update, const auto& sampler) {
        return check_elastic(reducer, update, un::Replicated{}, chosen<Row, 3>(), chosen<Row, 1>(), sampler,
                             chosen<Row, 6>(), chosen<Row, 2>(), chosen<Row, 4>(), chosen<Row, 7>());
    };
    const auto& reducer = chosen<Row, reducers_at>();
    const auto& sampler = chosen<Row, 0>();
    if (with(reducer, chosen<Row, updates_at>(), sampler)) return;
    if (with(reducer, un::Synchronous{}, sampler)) return;
    BOOST_TEST(with(reducer, un::Synchronous{}, un::DistributedSampler{.seed = 6}));
}

template <std::size_t First, std::size_t... I>
void check_elastic_rows(std::index_sequence<I...>) {
    (check_elastic_row<First + I>(), ...);
}

} // namespace unisono_elastic_matrix
