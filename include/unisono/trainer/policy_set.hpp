#pragma once

/// \file
/// One policy of each family: those that were given to a Trainer, in any order, and the defaults for the rest.

#include "unisono/accumulation/none.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/guard/finite.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/reducer/native.hpp"
#include "unisono/sampler/distributed.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/sharding/replicated.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/policy_fields.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/served.hpp"
#include "unisono/update/synchronous.hpp"

#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class... Given>
struct TrainerPolicies {
    using Sampler = typename PolicyOf<Family::sampler, DistributedSampler, Given...>::type;
    using Accumulation = typename PolicyOf<Family::accumulation, NoAccumulation, Given...>::type;
    using Compression = typename PolicyOf<Family::compression, NoCompression, Given...>::type;
    using Reducer = typename PolicyOf<Family::reducer, NativeReducer, Given...>::type;
    using Guard = typename PolicyOf<Family::guard, FiniteGuard, Given...>::type;
    using Clipping = typename PolicyOf<Family::clipping, NoClipping, Given...>::type;
    using Scaling = typename PolicyOf<Family::loss_scaling, NoLossScaling, Given...>::type;
    using Update = typename PolicyOf<Family::update, Synchronous, Given...>::type;
    using Sharding = typename PolicyOf<Family::sharding, Replicated, Given...>::type;
    using Optimizer = typename PolicyOf<Family::optimizer, Sgd, Given...>::type;
    using LearningRate = typename PolicyOf<Family::learning_rate, ConstantRate, Given...>::type;
    using Weighing = typename PolicyOf<Family::weighing, ReplicasAlike, Given...>::type;
    using Observer = typename PolicyOf<Family::observer, Progress, Given...>::type;
    using Summation = typename PolicyOf<Family::summation, PlainSums, Given...>::type;
    using Tracing = typename PolicyOf<Family::trace, NoTrace, Given...>::type;
    using Hosting = typename PolicyOf<Family::replicas, ReplicasOfRanks, Given...>::type;

    static_assert(sampler_policy<Sampler>, "unisono::Trainer: the sampler lacks what sampler/sampler.hpp asks of one");
    static_assert(accumulation_policy<Accumulation>,
                  "unisono::Trainer: the accumulation policy lacks what accumulation/accumulation.hpp asks of one");
    static_assert(compression_policy<Compression>,
                  "unisono::Trainer: the compression lacks what compression/compression.hpp asks of one");
    static_assert(guard_policy<Guard>, "unisono::Trainer: the guard lacks what guard/guard.hpp asks of one");
    static_assert(clipping_policy<Clipping>,
                  "unisono::Trainer: the clipping policy lacks what guard/clipping.hpp asks of one");
    static_assert(loss_scaling_policy<Scaling>,
                  "unisono::Trainer: the loss scaling lacks what guard/loss_scaling.hpp asks of one");
    static_assert(update_policy<Update>,
                  "unisono::Trainer: the update policy lacks what update/update.hpp asks of one");
    static_assert(sharding_policy<Sharding>,
                  "unisono::Trainer: the sharding lacks what sharding/sharding.hpp asks of one");
    static_assert(optimizer_policy<Optimizer>,
                  "unisono::Trainer: the optimizer lacks what optimizer/optimizer.hpp asks of one");
    static_assert(learning_rate_policy<LearningRate>,
                  "unisono::Trainer: the learning rate lacks what optimizer/learning_rate.hpp asks of one");
    static_assert(weighing<Weighing>,
                  "unisono::Trainer: the weighing policy lacks what model/weighing.hpp asks of one");
    static constexpr bool grid_agrees = !Summation::reproducible || agrees<Update>;
    static_assert(grid_agrees,
                  "unisono::Trainer: found a summation that declares `reproducible`, with an update that does not "
                  "declare `agrees`. Required: an update that does, for instance Synchronous. "
                  "Why: all ranks must find alike that a gradient does not fit its grid.");
    static constexpr bool clipping_agrees = !needs_agreement<Clipping> || agrees<Update> || local_update<Update>;
    static_assert(clipping_agrees,
                  "unisono::Trainer: found a clipping policy that declares `needs_agreement`, with an update that does "
                  "not declare `agrees`. Required: an update that does, for instance Synchronous. "
                  "Why: the norm is of all ranks' gradient, so all must form it together.");
    using Compressing =
        CompressionRules<Compression, Reducer, given_of<Family::reducer, Given...> != 0, Update, Sharding, Summation>;
    static constexpr bool compression_sums_all = Compressing::sums_all;
    static_assert(
        compression_sums_all,
        "unisono::Trainer: found a compression that declares `compresses`, with a policy that declares "
        "`gives_owners` or `reproducible`, or an update that declares neither `agrees` nor `local`, or `in_common`, "
        "`gossips` or `streams`. "
        "Required: every rank owns everything (or a compression that declares `sums_to_owners`, for instance "
        "Bf16Wire), "
        "plain sums, and for instance Synchronous or LocalSteps. "
        "Why: a compression forms the sum of all ranks' gradients, for all ranks, and rounds.");
    static constexpr bool compression_has_its_way = Compressing::has_its_way;
    static_assert(
        compression_has_its_way,
        "unisono::Trainer: found a reducer, with a compression that declares `own_exchange`. Required: no reducer. "
        "Why: what such a compression sends cannot be summed on the way, so the reducer would not be used.");
    static_assert(!served_update<Update> || served_update_policy<Update>,
                  "unisono::Trainer: the update policy declares `served` and lacks what update/served.hpp asks of one");
    static constexpr bool served_without_reducer = !served_update<Update> || given_of<Family::reducer, Given...> == 0;
    static_assert(served_without_reducer,
                  "unisono::Trainer: found a reducer, with an update that declares `served`. Required: no reducer. "
                  "Why: each gradient goes to the servers by itself, so the reducer would not be used.");
    static constexpr bool served_counts_alone = !served_update<Update> || !Accumulation::counts_tokens;
    static_assert(
        served_counts_alone,
        "unisono::Trainer: found an accumulation that declares `counts_tokens`, with an update that declares `served`. "
        "Required: one that counts micro-batches or samples, for instance Accumulate. "
        "Why: tokens are counted over all ranks, which would have to wait for each other.");
    static constexpr bool common_without_reducer = !in_common<Update> || given_of<Family::reducer, Given...> == 0;
    static_assert(common_without_reducer,
                  "unisono::Trainer: found a reducer, with an update that declares `in_common`. Required: no reducer. "
                  "Why: workers update the common parameters by themselves, so the reducer would not be used.");
    static constexpr bool common_counts_alone = !in_common<Update> || !Accumulation::counts_tokens;
    static_assert(common_counts_alone,
                  "unisono::Trainer: found an accumulation that declares `counts_tokens`, with an update that declares "
                  "`in_common`. Required: one that counts micro-batches or samples, for instance Accumulate. "
                  "Why: tokens are counted over all ranks, which would have to wait for each other.");
    static constexpr bool scaling_is_told = !Scaling::scales || Guard::inspects || Summation::reproducible;
    static_assert(scaling_is_told,
                  "unisono::Trainer: found a loss scaling that declares `scales`, with a guard that does not declare "
                  "`inspects`. Required: a guard that does, for instance FiniteGuard, or reproducible sums. "
                  "Why: the scale is lowered where a gradient is not finite, which somebody must find.");
    static constexpr bool scaling_agrees = !Scaling::scales || agrees<Update>;
    static_assert(scaling_agrees,
                  "unisono::Trainer: found a loss scaling that declares `scales`, with an update that does not declare "
                  "`agrees`. Required: an update that does, for instance Synchronous. "
                  "Why: the scale is lowered on all ranks alike.");
    static constexpr bool good =
        compression_policy<Compression> && common_without_reducer && common_counts_alone && served_without_reducer &&
        served_counts_alone && compression_sums_all && compression_has_its_way && scaling_is_told && scaling_agrees &&
        loss_scaling_policy<Scaling> && grid_agrees && clipping_agrees && clipping_policy<Clipping> &&
        TrainerArguments<Given...>::good && sampler_policy<Sampler> && accumulation_policy<Accumulation> &&
        guard_policy<Guard> && update_policy<Update> && sharding_policy<Sharding> && optimizer_policy<Optimizer> &&
        learning_rate_policy<LearningRate> && weighing<Weighing> &&
        CompatiblePolicies<Reducer, Update, Sharding, Guard, Optimizer>::good;

    explicit TrainerPolicies(Given&... given) : TrainerPolicies(Places{std::addressof(given)..., nullptr}) {}

    [[nodiscard]] std::vector<PolicyFacts> facts() const {
        std::vector<PolicyFacts> all = {facts_of(sampler),  facts_of(accumulation), facts_of(weighing_policy),
                                        facts_of(guard),    facts_of(reducer),      facts_of(update),
                                        facts_of(sharding), facts_of(optimizer),    facts_of(learning_rate)};
        if constexpr (Compression::compresses) all.push_back(facts_of(compression));
        if constexpr (!std::is_same_v<Clipping, NoClipping>) all.push_back(facts_of(clipping));
        if constexpr (Scaling::scales) all.push_back(facts_of(scaling));
        if constexpr (Summation::reproducible) all.push_back(facts_of(summation));
        if constexpr (Hosting::logical) all.push_back(facts_of(hosting));
        return all;
    }

    Sampler sampler;
    Accumulation accumulation;
    Compression compression;
    Reducer reducer;
    Guard guard;
    Clipping clipping;
    Scaling scaling;
    Update update;
    Sharding sharding;
    Optimizer optimizer;
    LearningRate learning_rate;
    Weighing weighing_policy;
    Observer observer;
    Summation summation;
    Hosting hosting;
    Tracing trace;
    Buckets buckets;

private:
    using Places = std::array<void*, sizeof...(Given) + 1>;

    template <class Wanted>
    static Wanted of(const Places& given) {
        constexpr int at = position_of<Wanted, Given...>();
        return take<Wanted, (at >= 0)>(given.data(), at);
    }

    explicit TrainerPolicies(const Places& given)
        : sampler(of<Sampler>(given)), accumulation(of<Accumulation>(given)), compression(of<Compression>(given)),
          reducer(of<Reducer>(given)), guard(of<Guard>(given)), clipping(of<Clipping>(given)),
          scaling(of<Scaling>(given)), update(of<Update>(given)), sharding(of<Sharding>(given)),
          optimizer(of<Optimizer>(given)), learning_rate(of<LearningRate>(given)), weighing_policy(of<Weighing>(given)),
          observer(of<Observer>(given)), summation(of<Summation>(given)), hosting(of<Hosting>(given)),
          trace(of<Tracing>(given)), buckets(of<Buckets>(given)) {}
};

} // namespace detail
UNISONO_NAMESPACE_END
