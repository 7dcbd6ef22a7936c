// Updates that servers make, with policies of the other families. The oracle is Synchronous on as
// many ranks as there are workers. It is valid for BoundedStaleness without staleness, for
// BackupWorkers without backups, and for the others with one worker. several_workers.cpp has more
// workers. The result of several workers with stale gradients depends on timing:
// tests/extensions/simulated/served.cpp replays it.
#include "matrix.hpp"

#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/hogwild.hpp"

namespace unisono_matrix {
namespace {

template <class Update, class Guard, class Optimizer, class Sampler, class Accumulation, class Weighing, class Rate,
          class Clipping>
void check_served(const Update& update, const Guard& guard, const Optimizer& optimizer, const Sampler& sampler,
                  const Accumulation& accumulation, const Weighing& weighing, const Rate& rate,
                  const Clipping& clipping) {
    static_assert(
        un::refusal<un::Group<un::InProcess>, Model, Update, Guard, Optimizer, Sampler, Accumulation, Clipping>.empty());
    ++counts().ran;
    for (const World& tried : worlds()) {
        const int ranks = tried.ranks;
        const int workers = ranks == 1 ? 1 : ranks - update.servers;
        if (workers < 1 || (workers > 1 && !update.together())) continue;
        test::any_on_processes = tried.processes;
        const test::Shared<Results> results;
        const auto all = unisono_test::outcomes(ranks, [&](auto& world) {
            train(world, *results, weighing, rate, guard, optimizer, sampler, accumulation, update,
                  un::Buckets{.first_bytes = 1, .bytes = 24}, clipping);
        });
        constexpr std::string_view names[] = {Update::name, Optimizer::name, Sampler::name, Accumulation::name};
        const std::uint64_t updates = results->at(0).updates;
        for (const auto& one : std::span(*results).first(static_cast<std::size_t>(ranks)))
            BOOST_TEST_CONTEXT(Update::name << " on " << ranks << " ranks") BOOST_TEST(one.updates == updates);
        compare(tried, names, all, *results,
                serial(workers, update, sampler, accumulation, weighing, optimizer, rate, clipping, updates), 1e-11);
    }
}

double loss_of(const std::vector<double>& weights) {
    double loss = 0;
    for (std::size_t i = 0; i < samples; ++i) {
        double error = -targets()[i];
        for (std::size_t j = 0; j < columns; ++j) error += inputs()[i * columns + j] * weights[j];
        loss += error * error / samples;
    }
    return loss;
}

/// Common parameters: one worker ends where the oracle does. Several workers end with the same
/// bits, and have lowered the loss by at least half of what the oracle does. several_workers.cpp
/// has cases in which the order of their updates does not matter.
template <class Guard, class Optimizer, class Sampler, class Accumulation, class Weighing, class Rate, class Clipping>
void check_common(const un::Hogwild& update, const Guard& guard, const Optimizer& optimizer, const Sampler& sampler,
                  const Accumulation& accumulation, const Weighing& weighing, const Rate& rate,
                  const Clipping& clipping) {
    ++counts().ran;
    for (const World& tried : worlds()) {
        test::any_on_processes = tried.processes;
        const test::Shared<Results> results;
        const auto all = unisono_test::outcomes(tried.ranks, [&](auto& world) {
            train(world, *results, weighing, rate, guard, optimizer, sampler, accumulation, update, clipping);
        });
        constexpr std::string_view names[] = {un::Hogwild::name, Optimizer::name, Sampler::name, Accumulation::name};
        const auto& first = results->at(0).weights;
        const std::vector<double> found(first.begin(), first.end()),
            oracle = serial(1, un::Synchronous{}, sampler, accumulation, weighing, optimizer, rate, clipping,
                            results->at(0).updates);
        compare(tried, names, all, *results, tried.ranks == 1 ? oracle : found, 1e-11);
        const double before = loss_of(std::vector<double>(columns));
        BOOST_TEST(before - loss_of(found) > 0.5 * (before - loss_of(oracle)),
                   Optimizer::name << " on " << tried.ranks << ": " << before << ", then " << loss_of(found)
                                   << ", of the oracle " << loss_of(oracle));
    }
}

/// Policies that give owners are refused.
template <class Reducer, class Sharding, class Update = un::Asynchronous>
void count_refused() {
    constexpr std::string_view refusal = un::refusal<un::Group<un::InProcess>, Model, Reducer, Update, Sharding>;
    static_assert(!refusal.empty());
    ++counts().refused[std::string(refusal)];
}

} // namespace
} // namespace unisono_matrix

BOOST_AUTO_TEST_CASE(served) {
    using namespace unisono_matrix;
    const int ran = counts().ran;
    check_served(un::BoundedStaleness{.staleness = 0}, un::FiniteGuard{},
                 un::Sgd{.learning_rate = 0.1, .momentum = 0.9}, un::DistributedSampler{.seed = 4},
                 un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{}, un::NoClipping{});
    check_served(un::BoundedStaleness{.staleness = 0, .servers = 2}, un::NoGuard{}, un::Adam{.learning_rate = 0.02},
                 un::InterleavedSampler{.replicas = 2, .seed = 7}, un::Accumulate{.steps = 4}, un::ByTokens{},
                 un::CosineRate{.final_factor = 0.1}, un::ClipByValue{.limit = 0.1});
    check_served(un::BackupWorkers{.backups = 0}, un::FiniteGuard{}, un::RmsProp{.learning_rate = 0.01},
                 un::SequentialSampler{}, un::AccumulateSamples{.samples = 7}, un::ReplicasAlike{},
                 un::WarmupRate{.updates = 3, .start_factor = 0.1}, un::NoClipping{});
    check_served(un::Asynchronous{}, un::FiniteGuard{}, un::Adagrad{.learning_rate = 0.05}, un::SequentialSampler{},
                 un::NoAccumulation{}, un::BySamples{}, un::StepDecayRate{.every = 4, .factor = 0.5}, un::NoClipping{});
    check_served(un::DelayCompensated{.servers = 2}, un::NoGuard{}, un::AdamW{.learning_rate = 0.02},
                 un::DistributedSampler{.seed = 6}, un::Accumulate{.steps = 2}, un::ByTokens{}, un::ConstantRate{},
                 un::ClipByValue{.limit = 0.1});
    check_common({}, un::FiniteGuard{}, un::Sgd{.learning_rate = 0.05, .momentum = 0.5},
                 un::DistributedSampler{.seed = 4}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{},
                 un::ClipByNorm{.max_norm = 0.3});
    check_common({.loses_none = false}, un::NoGuard{}, un::Adam{.learning_rate = 0.01},
                 un::InterleavedSampler{.replicas = 2, .seed = 7}, un::Accumulate{.steps = 4}, un::ByTokens{},
                 un::CosineRate{.final_factor = 0.1}, un::ClipByValue{.limit = 0.1});
    count_refused<un::ParameterServerReducer, un::Replicated>();
    count_refused<un::NativeReducer, EqualShards>();
    count_refused<un::NativeReducer, un::StateSharding>();
    count_refused<un::ParameterServerReducer, un::Replicated, un::Hogwild>();
    count_refused<un::NativeReducer, EqualShards, un::Hogwild>();
    count_refused<un::NativeReducer, un::StateSharding, un::Hogwild>();
    BOOST_TEST(counts().ran - ran == 7);
}
