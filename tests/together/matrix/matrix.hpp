// Crosses policies with each other: every combination that the rules allow trains like a serial
// loop in double.
//
// Full over reducer x update x sharding x accumulation (full_*.cpp, one file per reducer). The
// other families are crossed pairwise (pairwise.cpp). Servers, compressions and split models have
// files of their own (served.cpp, compressed.cpp, split.cpp). Each combination runs on threads and
// on processes, by a transport that is chosen at run time. Refusals by the rules are counted by
// reason. report.cpp prints the counts at the end.
#pragma once

#ifndef UNISONO_TEST_TRANSPORT // otherwise the combinations run on the named transport
#include "unisono/any.hpp"
#define UNISONO_TEST_TRANSPORT unisono::AnyTransport
#endif
#include "base/trainer/models.hpp"
#include "base/trainer/outcomes.hpp"
#include "own_policies.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/extensions/sharded/store.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace unisono_matrix {

namespace un = unisono;
using unisono_test::LeastSquares;

/// Cannot sum to an owner.
struct SumOnlyReducer {
    static constexpr std::string_view name = "sum only";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false;
    friend bool operator==(const SumOnlyReducer&, const SumOnlyReducer&) = default;
    struct Run {
        template <class World, class T>
        un::Operation sum(World& group, std::span<T> values) const {
            return un::start_all_reduce(group, values, un::Sum{}, un::DirectSchedule{});
        }
    };
    template <class World>
    [[nodiscard]] Run start(World&) const {
        return {};
    }
};

// --- the task ------------------------------------------------------------------------------------

inline constexpr std::size_t columns = 5;
inline constexpr std::size_t samples = 23;
inline constexpr std::int64_t batch_size = 2;
inline constexpr std::int64_t epochs = 2;

inline const std::vector<double>& inputs() {
    static const std::vector<double> all = [] {
        std::vector<double> values(samples * columns);
        un::Mt19937 generator(21);
        un::torch_rand(generator, std::span<double>(values));
        return values;
    }();
    return all;
}
inline const std::vector<double>& targets() {
    static const std::vector<double> all = [] {
        std::vector<double> values(samples);
        un::Mt19937 generator(22);
        un::torch_rand(generator, std::span<double>(values));
        return values;
    }();
    return all;
}
inline double tokens_of(double target) { return 1 + std::floor(4 * target); }

/// Three parameters whose memory is in pieces, and some tokens per sample.
struct Model : LeastSquares<double, un::GradientKind::mean, true> {
    Model() : LeastSquares<double, un::GradientKind::mean, true>(columns, 2) { says_ready = true; }
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        for (const double target : batch.labels) pass.count_tokens(tokens_of(target));
        return LeastSquares<double, un::GradientKind::mean, true>::operator()(batch, pass);
    }
};

/// The same in units, for shardings of gradients.
struct UnitModel {
    using Element = double;
    /// Not an array: nvcc 13.0 prints an array's type incorrectly for the host's compiler.
    [[nodiscard]] static std::vector<std::size_t> units() { return {2, 2, 1}; }
    static void initialise(std::size_t, std::span<double>) {}
    double operator()(const un::RowBatch<double, double>& batch, un::UnitPass<double>& pass) const {
        std::vector<double> weights;
        for (std::size_t u = 0; u < 3; ++u)
            for (const double w : pass.parameters(u)) weights.push_back(w);
        const auto rows = static_cast<double>(batch.rows());
        std::vector<double> errors;
        double loss = 0;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            pass.count_tokens(tokens_of(batch.labels[i]));
            double error = -batch.labels[i];
            for (std::size_t j = 0; j < columns; ++j) error += batch.row(i)[j] * weights[j];
            errors.push_back(error);
            loss += error * error / rows;
        }
        for (std::size_t u = 3; u-- > 0;) {
            const std::span<double> gradient = pass.gradient(u);
            for (std::size_t i = 0; i < batch.rows(); ++i)
                for (std::size_t j = 0; j < gradient.size(); ++j)
                    gradient[j] += 2 * errors[i] * batch.row(i)[2 * u + j] / rows;
            pass.ready(u);
        }
        return loss;
    }
};
template <class Sharding>
using ModelFor = std::conditional_t<un::detail::shards_gradients<Sharding>, UnitModel, Model>;

#ifndef UNISONO_TEST_MODEL_IN // otherwise the named model trains, with the same arithmetic
#define UNISONO_TEST_MODEL_IN unisono_matrix::ModelIn
template <class M>
struct ModelIn : M {
    template <class World>
    explicit ModelIn(World&) {}
};
#endif

// --- the oracle ----------------------------------------------------------------------------------

/// The synchronisation of a local update's ranks. Other updates have none. An update from outside
/// specialises it where it joins the matrix, as those of the examples do in pairwise_4.cpp.
template <class Update>
struct Meetings {
    explicit Meetings(const Update&) {}
    static bool alone(std::uint64_t) { return false; }
    template <class Copies>
    void depart(const Copies&) {}
    template <class Copies>
    void after(Copies&) {}
    template <class Copies>
    void meet(Copies&) {}
};
template <class Update>
    requires(!Update::agrees && !un::detail::has_servers<Update>)
struct Meetings<Update> {
    explicit Meetings(const Update& policy) : update(policy) {}
    [[nodiscard]] bool alone(std::uint64_t updates) const {
        if constexpr (requires { update.warm_up; }) return updates >= update.warm_up;
        else return true;
    }
    template <class Copies>
    void depart(const Copies& copies) {
        if (common.empty()) common = copies[0].weights;
    }
    template <class Copies>
    void after(Copies& copies) {
        ++own;
        if constexpr (requires { update.gossips_after(own); })
            if (update.gossips_after(own)) average_around(copies);
        // One fragment, without overlap and mix.
        if constexpr (requires { update.sets_out_after(own); })
            if (update.sets_out_after(own)) average(copies);
        if constexpr (un::detail::sums_buckets<Update>)
            if (own >= update.steps) meet(copies);
    }
    template <class Copies>
    void average_around(Copies& copies) const {
        std::vector<std::vector<double>> next;
        const int ranks = static_cast<int>(copies.size());
        for (int rank = 0; rank < ranks; ++rank) {
            auto& sum = next.emplace_back(copies[static_cast<std::size_t>(rank)].weights);
            const auto sources = update.sources(rank, ranks, own / update.steps - 1);
            for (std::size_t j = 0; j < columns; ++j) {
                for (const int source : sources) sum[j] += copies[static_cast<std::size_t>(source)].weights[j];
                sum[j] /= static_cast<double>(sources.size() + 1);
            }
        }
        for (std::size_t rank = 0; rank < copies.size(); ++rank) copies[rank].weights = next[rank];
    }
    template <class Copies>
    void meet(Copies& copies) {
        if (own == 0) return;
        own = 0;
        average(copies);
    }
    template <class Copies>
    void average(Copies& copies) {
        std::vector<double> mean(columns);
        for (const auto& copy : copies)
            for (std::size_t j = 0; j < columns; ++j) mean[j] += copy.weights[j] / static_cast<double>(copies.size());
        if constexpr (requires { update.outer; }) { // Sgd with Nesterov's momentum
            for (std::size_t j = 0; j < columns; ++j) {
                const double moved = common[j] - mean[j];
                velocity[j] = update.outer.momentum * velocity[j] + moved;
                common[j] -= update.outer.learning_rate * (moved + update.outer.momentum * velocity[j]);
            }
            mean = common;
        }
        for (auto& copy : copies) copy.weights = mean;
    }
    Update update;
    std::uint64_t own = 0;
    std::vector<double> common, velocity = std::vector<double>(columns);
};

/// One model and its optimizer: of all ranks, or of each rank if updates are local.
struct Copy {
    std::vector<double> weights = std::vector<double>(columns), sum = std::vector<double>(columns);
    double divisor = 0;
    std::uint64_t updates = 0, left_out = 0;
};

/// In double, by replicas and then by samples.
template <class Update, class Sampler, class Accumulation, class Weighing, class Optimizer, class Rate, class Clipping>
std::vector<double> serial(int world, const Update& update, const Sampler& sampler, const Accumulation& accumulation,
                           const Weighing&, const Optimizer& optimizer, const Rate& rate, const Clipping& clipping,
                           std::uint64_t updates_total) {
    constexpr bool local = !Update::agrees && !un::detail::has_servers<Update>;
    const std::int64_t hosted = sampler.replicas_per_rank();
    const std::int64_t replicas = world * hosted;
    std::vector<Copy> copies(local ? static_cast<std::size_t>(world) : 1);
    std::vector<un::OptimizerState<double>> states;
    for (std::size_t i = 0; i < copies.size(); ++i) states.push_back(un::start<double>(optimizer, columns));
    Meetings<Update> meetings(update);
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
        std::vector<decltype(sampler.stream(un::SamplerShape{}, un::Epoch{epoch}))> streams;
        for (std::int64_t r = 0; r < world; ++r)
            streams.push_back(
                sampler.stream(un::shape_of_rank(sampler, samples, batch_size, world, r), un::Epoch{epoch}));
        auto window = accumulation.window(hosted);
        const auto forget = [&] {
            for (Copy& copy : copies) copy.sum.assign(columns, 0), copy.divisor = 0;
            window.reset();
        };
        forget();
        while (!streams[0].done()) {
            un::Totals round{hosted, 0, 0};
            const bool alone = meetings.alone(copies[0].updates);
            for (std::int64_t r = 0; r < replicas; ++r) {
                const un::MicroBatch micro = streams[static_cast<std::size_t>(r / hosted)].next();
                if (micro.samples.empty()) continue;
                Copy& own = copies[local ? static_cast<std::size_t>(r / hosted) : 0];
                std::vector<double> gradient(columns);
                double tokens = 0;
                const auto n = static_cast<double>(micro.samples.size());
                for (const std::size_t i : micro.samples) {
                    double error = -targets()[i];
                    for (std::size_t j = 0; j < columns; ++j) error += inputs()[i * columns + j] * own.weights[j];
                    for (std::size_t j = 0; j < columns; ++j) gradient[j] += 2 * error * inputs()[i * columns + j] / n;
                    tokens += tokens_of(targets()[i]);
                }
                const double weight = Weighing::needs_samples ? n : Weighing::needs_tokens ? tokens : 1;
                for (Copy& copy : copies) {
                    if (alone && &copy != &own) continue;
                    for (std::size_t j = 0; j < columns; ++j) copy.sum[j] += weight * gradient[j];
                    copy.divisor += weight;
                }
                round.samples += static_cast<std::int64_t>(micro.samples.size());
                round.tokens += static_cast<std::int64_t>(tokens);
            }
            window.add(round);
            if (!window.closed() && !(streams[0].done() && window.due_at_end())) continue;
            if (alone) meetings.depart(copies);
            for (std::size_t i = 0; i < copies.size(); ++i) {
                Copy& copy = copies[i];
                if (copy.divisor == 0) { // of a rank without data
                    ++copy.left_out;
                    continue;
                }
                const un::RatePoint point{
                    .update = copy.updates, .updates_total = updates_total - copy.left_out, .global_batch = 0};
                ++copy.updates;
                double squares = 0;
                for (double& g : copy.sum) {
                    g /= copy.divisor;
                    if constexpr (Clipping::changes_elements) g = std::clamp(g, -clipping.limit, clipping.limit);
                    squares += g * g;
                }
                double factor = 1;
                if constexpr (Clipping::measures_norm)
                    factor = std::min(1.0, clipping.max_norm / (std::sqrt(squares) + 1e-6));
                optimizer.update(states[i].all(), std::span<double>(copy.weights), std::span<const double>(copy.sum),
                                 {rate.rate(optimizer.learning_rate, point), copy.updates, factor});
            }
            if (alone) meetings.after(copies);
            forget();
        }
    }
    meetings.meet(copies);
    return copies[0].weights;
}

struct World {
    int ranks;
    bool processes; ///< or threads
};

/// ThreadSanitizer does not see other processes.
template <class Transport = test::Transport>
std::vector<World> worlds() {
    if constexpr (requires { Transport::worlds_to_try; }) return {{Transport::worlds_to_try, false}};
    std::vector<World> all = {{1, false}, {2, false}, {3, false}};
    if (test::of_any_kind && !test::under_thread_sanitizer) all.insert(all.end(), {{1, true}, {2, true}, {5, true}});
    return all;
}

// --- one combination -----------------------------------------------------------------------------

struct Result { // shared, as ranks may be processes
    std::array<double, columns> weights;
    std::uint64_t updates;
};
using Results = std::array<Result, 5>;

/// A rank trains with these policies, and notes its weights and updates.
template <class Ranks, class... Policies>
void train(Ranks& world, Results& results, const Policies&... policies) {
    Model model;
    un::RowData<double, double> data{inputs(), columns, targets()};
    un::Trainer trainer{world, model, policies...};
    trainer.fit(data, {.epochs = epochs, .batch_size = batch_size, .progress = false});
    Result& mine = results.at(static_cast<std::size_t>(world.rank()));
    std::ranges::copy(model.values(), mine.weights.begin());
    mine.updates = trainer.updates();
}

/// Every rank has the same bits, which are the oracle's up to rounding.
inline void compare(const World& tried, std::span<const std::string_view> names,
                    const std::vector<unisono_test::Outcome>& outcomes, const Results& results,
                    const std::vector<double>& expected, double tolerance) {
    std::string which;
    for (const std::string_view name : names) which.append(which.empty() ? "" : ", ").append(name);
    BOOST_TEST_CONTEXT(tried.ranks << (tried.processes ? " processes: " : " threads: ") << which) {
        for (const auto& outcome : outcomes) BOOST_TEST(!outcome.failed, outcome.what);
        BOOST_TEST(results[0].updates > 0u);
        for (int rank = 0; rank < tried.ranks; ++rank) {
            const auto& one = results[static_cast<std::size_t>(rank)].weights;
            BOOST_TEST(one == results[0].weights, boost::test_tools::per_element());
            for (std::size_t j = 0; j < columns; ++j)
                BOOST_TEST(std::abs(one[j] - expected[j]) <= tolerance * std::max(1.0, std::abs(expected[j])),
                           "weight " << j << " is " << one[j] << ", expected " << expected[j]);
        }
    }
}

template <class Reducer, class Update, class Sharding, class Guard, class Optimizer, class Sampler, class Accumulation,
          class Weighing, class Rate, class Summation = un::PlainSums, class Clipping = un::NoClipping>
void check(const Reducer& reducer, const Update& update, const Sharding& sharding, const Guard& guard,
           const Optimizer& optimizer, const Sampler& sampler, const Accumulation& accumulation,
           const Weighing& weighing, const Rate& rate, const Summation& summation = {}, const Clipping& clipping = {}) {
    constexpr std::string_view refusal =
        un::refusal<un::Group<un::InProcess>, ModelFor<Sharding>, Reducer, Update, Sharding, Guard, Optimizer, Sampler,
                    Accumulation, Weighing, Rate, Summation, Clipping>;
    if constexpr (!refusal.empty()) {
        ++counts().refused[std::string(refusal)];
    } else {
        ++counts().ran;
        for (const World& tried : worlds()) {
            const int ranks = tried.ranks;
            test::any_on_processes = tried.processes;
            if constexpr (requires { reducer.servers; }) {
                if (reducer.servers > ranks) continue;
            }
            const test::Shared<Results> results;
            const auto all = unisono_test::outcomes(ranks, [&](auto& world) {
                UNISONO_TEST_MODEL_IN<ModelFor<Sharding>> model(world);
                un::RowData<double, double> data{inputs(), columns, targets()};
                un::Trainer trainer{world,        model,     weighing, rate,
                                    guard,        optimizer, sampler,  sharding,
                                    accumulation, update,    reducer,  un::Buckets{.first_bytes = 1, .bytes = 24},
                                    summation,    clipping};
                trainer.fit(data, {.epochs = epochs, .batch_size = batch_size, .progress = false});
                Result& mine = results->at(static_cast<std::size_t>(world.rank()));
                trainer.visit_parameters({0, columns}, [&](std::size_t flat, std::span<const double> values) {
                    std::copy(values.begin(), values.end(), mine.weights.begin() + static_cast<std::ptrdiff_t>(flat));
                });
                if constexpr (un::detail::shards_parameters<Sharding>) un::all_reduce(world, mine.weights);
                mine.updates = trainer.updates();
                using Transport = typename std::remove_cvref_t<decltype(world)>::transport_type;
                if constexpr (requires { Transport::share(world, *results); }) Transport::share(world, *results);
            });
            const std::uint64_t updates = results->at(0).updates;
            constexpr std::string_view names[] = {Reducer::name,   Update::name,  Sharding::name,     Guard::name,
                                                  Optimizer::name, Sampler::name, Accumulation::name, Weighing::name,
                                                  Rate::name,      Clipping::name};
            // On a grid, doubles have 45 bits below their parameter's largest value.
            compare(tried, names, all, *results,
                    serial(ranks, update, sampler, accumulation, weighing, optimizer, rate, clipping, updates),
                    Summation::reproducible ? 1e-9 : 1e-11);
        }
    }
}

/// All that is crossed in full, for one reducer.
template <class Reducer>
void check_full(const Reducer& reducer) {
    const auto with_accumulation = [&](const auto& update, const auto& sharding, const auto& accumulation) {
        check(reducer, update, sharding, un::FiniteGuard{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
              un::DistributedSampler{.seed = 4}, accumulation, un::BySamples{}, un::ConstantRate{});
    };
    const auto with_sharding = [&](const auto& update, const auto& sharding) {
        with_accumulation(update, sharding, un::NoAccumulation{});
        with_accumulation(update, sharding, un::Accumulate{.steps = 3});
        with_accumulation(update, sharding, un::AccumulateSamples{.samples = 7});
        with_accumulation(update, sharding, un::AccumulateTokens{.tokens = 20});
    };
    const auto with_update = [&]<class Update>(const Update& update) {
        with_sharding(update, un::Replicated{});
        with_sharding(update, EqualShards{});
        if constexpr (std::is_same_v<Reducer, un::NativeReducer>) {
            with_sharding(update, un::StateSharding{});
            with_sharding(update, test::OwnersOrAll{.sharded = true});
        }
        if constexpr (std::is_same_v<Update, un::Synchronous> &&
                      (std::is_same_v<Reducer, un::NativeReducer> || !un::detail::reduces_to_owners<Reducer> ||
                       un::detail::gives_owners<Reducer>)) { // otherwise it is refused
            with_accumulation(update, un::GradientSharding{},
                              un::NoAccumulation{}); // both are one path, with another store
            with_accumulation(update, un::GradientSharding{}, un::Accumulate{.steps = 3});
            with_accumulation(update, un::ParameterSharding{}, un::AccumulateSamples{.samples = 7});
            with_accumulation(update, un::ParameterSharding{}, un::AccumulateTokens{.tokens = 20});
        }
    };
    with_update(un::Synchronous{});
    with_update(OwnUpdate{});
}

} // namespace unisono_matrix
