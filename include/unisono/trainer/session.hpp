#pragma once

/// \file
/// The state of one trainer during its lifetime.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/wrapped_model.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/policy_fields.hpp"
#include "unisono/trainer/refusals.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/same_model.hpp"
#include "unisono/trainer/training.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T, class Low>
class UnitStore; // extensions/sharded/store.hpp, which unisono/sharded.hpp includes

/// The store of a model. Models in units may use a narrower type in their passes than that in which
/// they are trained.
template <class Model, class Policies>
struct StoreOf {
    using type = WholeStore<parameter_element_t<Model>>;
};
template <class Model, class Policies>
    requires(shards_gradients<typename Policies::Sharding> && unit_model<Model>)
struct StoreOf<Model, Policies> {
    using type = UnitStore<parameter_element_t<Model>, pass_element_t<Model>>;
};

/// The state of one trainer. `Trainer::step` and `fit` make each update by the same calls: `begin`;
/// `add` for each micro-batch that this rank hosts, which computes, adds to the replica's sum, and
/// reduces the buckets that are ready; `update` after the last one; `accepts`.
///
/// `Policies` has the types and values of all families (policy_set.hpp).
template <class World, class Model, class Policies>
class Session {
public:
    using T = parameter_element_t<Model>;
    using Update = typename Policies::Update;
    using Sharding =
        decltype(sharding_of(std::declval<const Update&>(), std::declval<const typename Policies::Sharding&>(), 1));
    using Trained = Training<World, typename StoreOf<Model, Policies>::type, kernels_of<World, Model>,
                             Policies::Compression::compresses>;
    static_assert(
        requires(const Update& update, Trained& training) {
            { update.start(training) } -> update_run;
        },
        "unisono::Trainer: the update policy lacks what update/update.hpp asks of one: start(training) returns a run, "
        "for instance one that derives from UpdateRun");
    using Run = decltype(std::declval<const Update&>().start(std::declval<Trained&>()));
    static_assert(
        !requires(Run& run) { run.meet(); },
        "unisono::Trainer: found an update whose run has `meet`. Required: `synchronise`. Why: the trainer calls "
        "no `meet`, so ranks would never hold the same parameters");
    static_assert(Update::agrees || !Run::agrees() || std::is_same_v<Run, UpdateRun<Trained>>,
                  "unisono::Trainer: found an update that does not declare `agrees`, with a run that does. Required: a "
                  "run that derives from LocalRun or AsynchronousRun (update/local.hpp, "
                  "unisono/updates.hpp). "
                  "Why: the trainer asks the run whether ranks must synchronise");
    static_assert(!Update::agrees || Run::agrees(),
                  "unisono::Trainer: found an update that declares `agrees`, with a run that does not. Required: a "
                  "policy that does not declare it. Why: between two synchronisations its ranks have different "
                  "parameters, which not every policy allows");
    static_assert(
        !asynchronous<Update> || !Run::reduces(),
        "unisono::Trainer: found an update that declares `asynchronous`, with a run that does not derive from "
        "AsynchronousRun. Required: one that does (unisono/updates.hpp). Why: its ranks stop at "
        "different updates, and that run gives all of them one position at the end of fit");

    Session(World& world, Model& model, Policies policies, Parameters parameters = Parameters::of_rank_0)
        : world_(&world), model_(&model), number_(world.context().next_trainer()), policies_(std::move(policies)) {
        const auto inside = calling();
        telling_all(world, "Trainer", [&] { set_up(world, model, parameters); });
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    [[gnu::cold]] ~Session() { age_copy(*model_); }

    [[nodiscard]] World& world() const { return *world_; }
    /// Lives as long as a call of the trainer. Operations carry the trainer's number meanwhile.
    [[nodiscard]] TrainerCall calling() const { return {world_->context(), number_}; }
    [[nodiscard]] Model& model() const { return *model_; }
    [[nodiscard]] const Policies& policies() const { return policies_; }
    [[nodiscard]] Trained& training() { return *training_; }
    [[nodiscard]] const Trained& training() const { return *training_; }

    /// The part of an elastic world that this training is (extensions/elastic).
    struct Elastic {
        WorldEpoch world_epoch = {};
        bool done_by_others = false;
    };
    Elastic elastic;

    void begin() { training_->begin(mode_->alone(training_->applied())); }
    /// Tells the training that each rank hosts at most one micro-batch of this update. All ranks
    /// know that.
    void expect_one() { training_->expect_one(); }
    /// For sums on a grid in a loop of the user's own: this rank hosts `hosted` micro-batches.
    /// Collective.
    void expect(std::size_t hosted) {
        std::array<std::int32_t, 1> most = {hosted > 1 ? 2 : 1};
        if (world_->size() > 1) all_reduce_native(*world_, most, Few<Max>{});
        if (most[0] == 1) training_->expect_one();
    }

    template <class Batch>
    void add(const Batch& batch, double samples, const PassFacts& facts, bool last) {
        const TraceSpan span(trace_.get(), Activity::compute, training_->applied());
        training_->add(*model_, batch, samples, facts, last);
    }

    /// Call it when all ranks have finished a round of micro-batches, before they communicate about
    /// it.
    void end_round() {
        if constexpr (shards_gradients<typename Policies::Sharding>) training_->end_round();
    }

    /// Synchronises ranks that update on their own. Collective.
    void synchronise() {
        if (!mode_->agrees) age_copy(*model_);
        training_->synchronise(*mode_, trace_.get());
    }

    /// Called before collective work that is no synchronisation. Servers serve in it until all
    /// workers have called it.
    void assemble() {
        if (workers() < world_->size()) synchronise();
    }

    /// The update's run, which has its own state.
    [[nodiscard]] Run& run() const { return mode_->run; }

    /// The number of ranks that compute gradients, and this rank's number among them. A server
    /// takes the number of the first.
    [[nodiscard]] int workers() const { return mode_->workers(); }
    [[nodiscard]] int worker() const { return serves() ? 0 : world_->rank(); }
    /// True if this rank makes the updates of others and computes no gradients.
    [[nodiscard]] bool serves() const { return world_->rank() >= workers(); }

    /// Drops the gradients that were collected.
    void abandon() { training_->discard(); }

    /// Update::close.
    UpdateReport update(std::int64_t epoch, const RatePoint& point) {
        age_copy(*model_);
        return training_->close(*mode_, point, epoch, trace_.get());
    }
    /// Update::accepts.
    bool accepts(const UpdateReport& report, std::string_view operation) {
        return training_->accepts(*mode_, report, operation);
    }

    /// With `Trace`: what was recorded on this rank.
    [[nodiscard]] const TraceLog& trace() const
        requires(Policies::Tracing::traces)
    {
        return *trace_;
    }
    [[nodiscard]] TraceLog& trace()
        requires(Policies::Tracing::traces)
    {
        return *trace_;
    }

private:
    [[gnu::cold]] void set_up(World& world, Model& model, Parameters parameters) {
        const WritesCopy shows(model);
        if (world.size() < 1) refuse_input("Trainer: this rank is in no group");
        policies_.optimizer.check();
        if constexpr (Policies::Tracing::traces) {
            policies_.trace.check();
            trace_.take(new TraceLog(static_cast<std::size_t>(policies_.trace.events)));
        }
        policies_.learning_rate.check();
        policies_.clipping.check();
        policies_.compression.check();
        policies_.scaling.check();
        if constexpr (requires { policies_.update.check(); }) policies_.update.check();
        const std::vector<PolicyFacts> facts = policies_.facts();
        agree_on_policies(world, Part<const PolicyFacts>(facts.data(), facts.size()));
        const auto sharding = sharding_of(policies_.update, policies_.sharding, world.size());
        training_.take(new Trained(world, model, policies_, sharding));
        agree_on_model(world, model, training_->flat());
        if constexpr (shards_gradients<typename Policies::Sharding>) training_->initialise(model);
        else if (parameters == Parameters::of_rank_0)
            broadcast_parameters(world, training_->flat(), training_->kernels());
        broadcast_buffers(world, model);
        mode_.take(new ModeOf<Run>(policies_.update, *training_));
        age_copy(model);
    }

    World* world_;
    Model* model_;
    std::uint64_t number_;  ///< of the trainer, among those of the group
    Policies policies_;     ///< before `training_`, which refers to it
    Owned<TraceLog> trace_; ///< null: nothing is recorded
    Owned<Trained> training_;
    Owned<ModeOf<Run>> mode_;
};

} // namespace detail
UNISONO_NAMESPACE_END
