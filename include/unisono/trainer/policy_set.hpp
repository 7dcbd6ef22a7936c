#pragma once

/// \file
/// One policy of each family: those given to a Trainer, in any order, and the defaults for the
/// rest.

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/policy_fields.hpp"
#include "unisono/trainer/rules.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// The types alone, for rules and for code that asks which policies work together.
template <class... Given>
struct ChosenPolicies {
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
    /// The number of given policies of the family.
    template <Family Which>
    static constexpr int given = given_of<Which, Given...>;
};

/// Names the offending type in the compiler's diagnostic.
template <class Found>
struct TrainerArgument {
    static constexpr bool good = policy<Found> || std::is_same_v<Found, Buckets>;
    static_assert(
        good,
        "unisono::Trainer: found an argument that is no policy (its type is the argument of TrainerArgument<...>). "
        "Required: after the group and the model only policies, that is copyable values with `operator==`, "
        "`static constexpr std::string_view name` and `static constexpr unisono::Family family`. Why: each argument "
        "fills the place of its family, so the trainer must know which that is.");
};

template <class... Given>
struct TrainerPolicies {
    using Chosen = ChosenPolicies<Given...>;
    using Sampler = typename Chosen::Sampler;
    using Accumulation = typename Chosen::Accumulation;
    using Compression = typename Chosen::Compression;
    using Reducer = typename Chosen::Reducer;
    using Guard = typename Chosen::Guard;
    using Clipping = typename Chosen::Clipping;
    using Scaling = typename Chosen::Scaling;
    using Update = typename Chosen::Update;
    using Sharding = typename Chosen::Sharding;
    using Optimizer = typename Chosen::Optimizer;
    using LearningRate = typename Chosen::LearningRate;
    using Weighing = typename Chosen::Weighing;
    using Observer = typename Chosen::Observer;
    using Summation = typename Chosen::Summation;
    using Tracing = typename Chosen::Tracing;
    using Hosting = typename Chosen::Hosting;

    static_assert(
        sampler_policy<Sampler>,
        "unisono::Trainer: the sampler lacks what sampler/sampler.hpp asks of one: `std::int64_t "
        "replicas_per_rank() const` and `stream(const SamplerShape&, Epoch, std::int64_t consumed = 0) const`");
    static_assert(accumulation_policy<Accumulation>,
                  "unisono::Trainer: the accumulation policy lacks what accumulation/accumulation.hpp asks of one: "
                  "`counts_tokens` and `window(std::int64_t hosted) const`");
    static_assert(compression_policy<Compression>,
                  "unisono::Trainer: the compression lacks what compression/compression.hpp asks of one: `compresses`, "
                  "`own_exchange` and `check() const`");
    static_assert(guard_policy<Guard>,
                  "unisono::Trainer: the guard lacks what guard/guard.hpp asks of one: `inspects`, `needs_agreement`, "
                  "`std::size_t first_offender(gradients) const` and `OnOffence on_offence() const`");
    static_assert(clipping_policy<Clipping>,
                  "unisono::Trainer: the clipping policy lacks what guard/clipping.hpp asks of one: `measures_norm`, "
                  "`changes_elements`, `check() const`, `double factor(double norm) const` and `clip(gradients, scale) "
                  "const`");
    static_assert(
        loss_scaling_policy<Scaling>,
        "unisono::Trainer: the loss scaling lacks what guard/loss_scaling.hpp asks of one: `scales`, `check() "
        "const`, `LossScale start() const`, `grow(LossScale&) const` and `bool back_off(LossScale&) const`");
    static_assert(update_policy<Update>,
                  "unisono::Trainer: the update policy lacks what update/update.hpp asks of one: `agrees`");
    static_assert(
        sharding_policy<Sharding>,
        "unisono::Trainer: the sharding lacks what sharding/sharding.hpp asks of one: `gives_owners` and `Owners "
        "owners(const BucketFacts&) const`");
    static_assert(
        optimizer_policy<Optimizer>,
        "unisono::Trainer: the optimizer lacks what optimizer/optimizer.hpp asks of one: `learning_rate`, "
        "`check() const`, `StateArrays state() const` and `update(state, parameters, gradients, step) const`");
    static_assert(
        learning_rate_policy<LearningRate>,
        "unisono::Trainer: the learning rate lacks what optimizer/learning_rate.hpp asks of one: `check() const` "
        "and `double rate(double base, const RatePoint&) const`");
    static_assert(weighing<Weighing>,
                  "unisono::Trainer: the weighing policy lacks what model/weighing.hpp asks of one: `needs_samples`, "
                  "`needs_tokens` and `Share share(const MicroBatchFacts&) const`");
    /// True if each is a policy of its family. The rules apply only to such policies.
    static constexpr bool known = (TrainerArgument<Given>::good && ... && true) && sampler_policy<Sampler> &&
                                  accumulation_policy<Accumulation> && compression_policy<Compression> &&
                                  guard_policy<Guard> && clipping_policy<Clipping> && loss_scaling_policy<Scaling> &&
                                  update_policy<Update> && sharding_policy<Sharding> && optimizer_policy<Optimizer> &&
                                  learning_rate_policy<LearningRate> && weighing<Weighing>;
    static constexpr bool good = [] {
        if constexpr (known) return PolicyRules::asserted<Chosen>;
        else return false;
    }();

    explicit TrainerPolicies(Given&... given) : TrainerPolicies(Places{std::addressof(given)..., nullptr}.data()) {}

    /// \throws error bad_input: a policy's parameter
    void check() {
        optimizer.check();
        if constexpr (Tracing::traces) trace.check();
        learning_rate.check();
        clipping.check();
        compression.check();
        scaling.check();
        if constexpr (requires { update.check(); }) update.check();
    }

    [[nodiscard]] std::vector<PolicyFacts> facts() const {
        constexpr int count = 9 + Compression::compresses + !std::is_same_v<Clipping, NoClipping> + Scaling::scales +
                              Summation::reproducible + Hosting::logical;
        std::vector<PolicyFacts> all(count); // its code to grow takes a compiler thirty functions
        auto next = all.begin();
        const auto append = [&](const auto&... policies) { ((*next++ = facts_of(policies)), ...); };
        append(sampler, accumulation, weighing_policy, guard, reducer, update, sharding, optimizer, learning_rate);
        if constexpr (Compression::compresses) append(compression);
        if constexpr (!std::is_same_v<Clipping, NoClipping>) append(clipping);
        if constexpr (Scaling::scales) append(scaling);
        if constexpr (Summation::reproducible) append(summation);
        if constexpr (Hosting::logical) append(hosting);
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
    static constexpr int index = position_of<Wanted, Given...>();

    explicit TrainerPolicies(void* const* given)
        : sampler(take<Sampler, index<Sampler>>(given)), accumulation(take<Accumulation, index<Accumulation>>(given)),
          compression(take<Compression, index<Compression>>(given)), reducer(take<Reducer, index<Reducer>>(given)),
          guard(take<Guard, index<Guard>>(given)), clipping(take<Clipping, index<Clipping>>(given)),
          scaling(take<Scaling, index<Scaling>>(given)), update(take<Update, index<Update>>(given)),
          sharding(take<Sharding, index<Sharding>>(given)), optimizer(take<Optimizer, index<Optimizer>>(given)),
          learning_rate(take<LearningRate, index<LearningRate>>(given)),
          weighing_policy(take<Weighing, index<Weighing>>(given)), observer(take<Observer, index<Observer>>(given)),
          summation(take<Summation, index<Summation>>(given)), hosting(take<Hosting, index<Hosting>>(given)),
          trace(take<Tracing, index<Tracing>>(given)), buckets(take<Buckets, index<Buckets>>(given)) {}
};

/// True if a Trainer can be made of these types. Otherwise a static assertion names the first
/// broken rule.
template <class World, class Model, class Policies>
inline constexpr bool goes_together = [] {
    if constexpr (Policies::good) {
        using Training = ChosenTraining<World, Model, typename Policies::Chosen>;
        if constexpr (!ModelRules::asserted<Training>) return false;
        else if constexpr (trained_on_device<Model>) return DeviceRules::asserted<Training>;
        else return true;
    } else {
        return false;
    }
}();

} // namespace detail

/// The reason why no Trainer can be made of this group, model and policies, in one clause; empty if
/// one can.
///
///     if constexpr (un::refusal<World, Model, un::TopK, un::Reproducible>.empty()) ...
///
/// Each policy must be a policy of its family: otherwise the program does not compile.
template <class World, class Model, class... Policies>
inline constexpr std::string_view refusal = [] {
    using Training = detail::ChosenTraining<World, Model, detail::ChosenPolicies<Policies...>>;
    if constexpr (!detail::PolicyRules::good<Training>) return detail::PolicyRules::refusal<Training>;
    else if constexpr (!detail::ModelRules::good<Training>) return detail::ModelRules::refusal<Training>;
    else if constexpr (trained_on_device<Model>) return detail::DeviceRules::refusal<Training>;
    else return std::string_view();
}();

UNISONO_NAMESPACE_END
