#pragma once

/// \file
/// The trainer: composes policies into a training of one model on all ranks of a group.
///
///     un::Trainer trainer{world, model, un::RingReducer{}, un::Sgd{.learning_rate = 0.01}};
///     trainer.fit(data, {.epochs = 2, .batch_size = 4});
///
/// | family        | default              | others                        |
/// |---------------|----------------------|-------------------------------|
/// | sampler       | `DistributedSampler` | sampler/sampler.hpp           |
/// | accumulation  | `NoAccumulation`     | accumulation/accumulation.hpp |
/// | compression   | `NoCompression`      | compression/compression.hpp   |
/// | reducer       | `NativeReducer`      | reducer/reducer.hpp           |
/// | guard         | `FiniteGuard`        | guard/guard.hpp               |
/// | clipping      | `NoClipping`         | guard/clipping.hpp            |
/// | loss scaling  | `NoLossScaling`      | guard/loss_scaling.hpp        |
/// | update        | `Synchronous`        | update/update.hpp             |
/// | sharding      | `Replicated`         | sharding/sharding.hpp         |
/// | optimizer     | `Sgd`                | optimizer/optimizer.hpp       |
/// | learning rate | `ConstantRate`       | optimizer/learning_rate.hpp   |
/// | weighing      | `ReplicasAlike`      | model/weighing.hpp            |
/// | replicas      | `ReplicasOfRanks`    | sampler/replicas.hpp          |
/// | summation     | `PlainSums`          | trainer/summation.hpp         |
/// | trace         | `NoTrace`            | observe/trace.hpp             |
/// | observer      | `Progress`           | observe/progress.hpp          |
/// | snapshots     | none                 | extensions/elastic/snapshots.hpp         |
///
/// `Buckets` (layout/layout.hpp) may be given as well. trainer/rules.hpp says which policies work
/// together, and why.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/wrapped_model.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/describe.hpp"
#include "unisono/trainer/evaluation.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/fit.hpp"
#include "unisono/trainer/metric_parameters.hpp"
#include "unisono/trainer/not_a_model.hpp"
#include "unisono/trainer/policy_set.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/same_model.hpp"
#include "unisono/trainer/training.hpp"
#include "unisono/trainer/training_state.hpp"

#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

UNISONO_NAMESPACE_BEGIN
/// Trains `model` on all ranks of `world`. Both must outlive the trainer, and the model's memory
/// must not move.
///
/// Construction is collective: the ranks compare their parameters and buffers (number, type, sizes,
/// and the names and shapes that the model gives: mismatch names ranks and parameter), and both
/// become those of rank 0. If a rank makes several trainers on a group, all ranks make and call
/// them in the same order. If a call throws on one rank, every other rank's call throws an error
/// that names it. Memory per rank beside the model's: the optimizer's state, and one copy of the
/// gradients if a rank hosts more than one micro-batch per update, if the model's memory is not
/// contiguous, or if the transport does not map it (as heap memory over SharedMemory).
template <class World, class Model, class... Given>
class Trainer {
    using Policies = detail::TrainerPolicies<Given...>;
    using Sharding = typename Policies::Sharding;
    using Training = detail::training_of<World, Model, Policies>;

public:
    static_assert(
        detail::goes_together<World, Model, Policies>,
        "unisono::Trainer: the group, the model and the policies do not go together; the message above says why");

    using Element = parameter_element_t<Model>;
    /// True if no rank holds all parameters in the type in which they are trained.
    static constexpr bool shards_parameters = detail::shards_parameters<Sharding> || detail::trains_wider<Model>;
    static_assert(
        optimizer_element<Element>,
        "unisono::Trainer: found parameters of a type that optimizers do not run on. Required: float or double. "
        "Why: updates are smaller than what 16 bits can tell apart; keep master weights in float (MasterWeights).");
    static_assert(reducer_policy<typename Policies::Reducer, World>,
                  "unisono::Trainer: the reducer lacks what reducer/reducer.hpp asks of one, for this group: "
                  "`gives_owners`, `reduces_to_owners`, and `start(group) const` returns a run with `sum`, or with "
                  "`reduces_to_owners` also `sum_to` and `publish`");

    Trainer(World& world, Model& trained, Given... given)
        : Trainer(world, trained, detail::Parameters::of_rank_0, Policies(given...)) {}
    /// As above, for a trainer that follows another one on ranks that have equal parameters.
    Trainer(detail::Parameters parameters, World& world, Model& trained, Given... given)
        : Trainer(world, trained, parameters, Policies(given...)) {}
    Trainer(const Trainer&) = delete; // other objects refer to it: construct it in place
    Trainer& operator=(const Trainer&) = delete;
    [[gnu::cold]] ~Trainer() { detail::age_copy(*model_); }

    /// Trains on a data set for `options.epochs` epochs, continuing where the last call ended (or
    /// at `options.start`). Calls `on_update(report)` on every rank after each update. If the
    /// result converts to false, training stops there (it must be the same on all ranks).
    /// Collective.
    /// Errors: bad_input (empty data, a batch larger than the data, contradictory sizes), mismatch
    /// (data sizes or options differ between ranks), not_finite (names rank and parameter; the
    /// update happened on no rank, and training may continue), aborted (another rank threw: it is
    /// named).
    template <class Data, class OnUpdate = detail::IgnoreUpdates>
    FitReport fit(Data&& data, const FitOptions& options = {}, OnUpdate on_update = {}) {
        static_assert(std::invocable<OnUpdate&, const UpdateReport&>,
                      "unisono::Trainer: found a third argument of fit that cannot be called with an UpdateReport. "
                      "Required: a callable such as [](const un::UpdateReport& report) { ... }, or nothing.");
        if constexpr (detail::trains_on<Model, Data> && std::invocable<OnUpdate&, const UpdateReport&>) {
            return calling("fit", [&] {
                const detail::Flag runs(in_fit_);
                return detail::fit_on(*training_, mode_->run, *model_, policies_, progress_, data, options, on_update);
            });
        } else {
            detail::tell_batches_of<Model, Data>();
            return {};
        }
    }

    /// Refuses any other call of `fit`, with a message that says why.
    template <class Data, class Options, class... More>
        requires(!detail::converts_to<Options, const FitOptions&>)
    FitReport fit(Data&&, Options&&, More&&...) {
        detail::tell_options<Options>();
        return {};
    }

    /// One update in a loop of your own: each batch is a micro-batch that this rank hosts.
    /// Collective. Every rank passes as many as it has: a rank without one adds nothing, and if no
    /// rank has one there is no update (report.micro_batches == 0). In a world of one, an exception
    /// of the model leaves parameters and trainer usable.
    template <class... Batches>
    UpdateReport step(const Batches&... batches) {
        static_assert(
            !Policies::Weighing::needs_samples || (counts_samples<Batches> && ... && true),
            "unisono::Trainer: found a batch that does not say how many samples it has, with a weighing "
            "policy that declares `needs_samples`. Required: batch.samples(), batch.rows() or std::size(batch).");
        if constexpr (!(trainable_on<Model, Batches> && ... && true)) {
            (detail::tell_batch<Model, Batches>(), ...);
            return {};
        } else
            return calling("step", [&] {
                if (training_->serves()) return UpdateReport{.alone = true, .number = updates()};
                for (;;) {
                    training_->begin();
                    if constexpr (Policies::Summation::reproducible) training_->expect(sizeof...(Batches));
                    const auto ranks = static_cast<std::uint64_t>(training_->workers());
                    [[maybe_unused]] PassFacts facts{.seed = 0,
                                                     .epoch = static_cast<std::uint64_t>(progress_.epoch.number()),
                                                     .update = training_->applied(),
                                                     .replica = static_cast<std::uint64_t>(world().rank()),
                                                     .replicas = sizeof...(Batches) * ranks};
                    (training_->add_next(*model_, batches, facts), ...);
                    const UpdateReport report = training_->close(own_point_, progress_.epoch.number());
                    if (training_->accepts(report, "step")) return report;
                }
            });
    }

    /// For a rank that has run out of data in a loop of your own: takes part in the others' updates
    /// with weight zero until all ranks have called `join`. Returns the number of updates in which
    /// it took part.
    std::int64_t join() {
        static_assert(detail::JoinRules::asserted<typename Policies::Chosen>,
                      "unisono::Trainer: no join() with these policies; the message above says why");
        std::int64_t updates = 0;
        while (step().micro_batches != 0) ++updates;
        return updates;
    }

    /// Synchronises ranks that update on their own (LocalSteps, Diloco, Asynchronous, Hogwild,
    /// ...): afterwards all ranks hold the same parameters. `fit` does so at its end, `evaluate`
    /// and `predict` at their beginning. Does nothing for other updates. Collective. A server
    /// (extensions/updates/served.hpp) serves in this call until all workers have come; its `step`
    /// does nothing.
    void synchronise() {
        calling("synchronise", [&] { training_->synchronise(); });
    }

    /// Feeds metrics with each sample of a data set exactly once over all ranks, and merges them.
    /// Every rank gets the same metrics, with the values that one rank would find (MeanMetric and
    /// similar metrics are exact). Pass new ones:
    ///     auto [loss, accuracy] = trainer.evaluate(data, {}, MeanMetric{}, AccuracyMetric{});
    /// The model has `evaluate(batch, metrics&...)`; or pass a callable before the metrics:
    /// feed(model, batch, metrics&...). A model in units also gets its pass: evaluate(batch, pass,
    /// metrics&...), feed(model, batch, pass, metrics&...). Collective. Buffers first become those
    /// of rank 0.
    /// Errors: bad_input for empty data, mismatch, aborted.
    template <class Data, mergeable_metric... Metrics>
    std::tuple<Metrics...> evaluate(Data&& data, const EvaluateOptions& options, Metrics... metrics) {
        if constexpr (detail::can_evaluate<Model, Data, Metrics...>()) {
            const auto feed = [](Model& m, const batch_of<std::remove_reference_t<Data>>& batch,
                                 auto&... rest) -> decltype(static_cast<void>(m.evaluate(batch, rest...))) {
                m.evaluate(batch, rest...);
            };
            return evaluate(data, options, feed, std::move(metrics)...);
        } else {
            return {std::move(metrics)...};
        }
    }
    template <class Data, class Feed, mergeable_metric... Metrics>
        requires(!mergeable_metric<Feed>)
    std::tuple<Metrics...> evaluate(Data&& data, const EvaluateOptions& options, Feed feed, Metrics... metrics) {
        if constexpr (detail::can_feed<Model, Data, Feed, Metrics...>())
            calling("evaluate", [&] {
                each_batch(data, options, "evaluate", [&](const auto& batch, std::size_t, auto&... pass) {
                    feed(*model_, batch, pass..., metrics...);
                });
                (merge_over_ranks(world(), metrics), ...);
            });
        return {std::move(metrics)...};
    }

    /// Returns the outputs of all samples in the order of the data set, each once, on every rank.
    /// Every sample has the same number of outputs. The model has `predict(batch)` -> contiguous
    /// outputs. Collective. Memory: temporarily, all outputs twice.
    template <class Data>
    auto predict(Data&& data, const EvaluateOptions& options = {}) {
        if constexpr (detail::can_predict<Model, Data>()) {
            using E = typename detail::PredictedBy<Model, batch_of<std::remove_reference_t<Data>>>::Element;
            return calling("predict", [&] {
                detail::Outputs<E> outputs;
                const auto add = [&](const auto& batch, std::size_t samples, auto&... pass) {
                    const auto& found = model_->predict(batch, pass...);
                    outputs.add(std::span<const E>(found), samples);
                };
                const SamplerShape shape = each_batch(data, options, "predict", add);
                return detail::in_data_order(world(), std::move(outputs), shape);
            });
        } else {
            return std::vector<Element>();
        }
    }

    /// The plan as text. Local; on each rank it shows what that rank owns. With a data set's size
    /// and options, it also shows how `fit` would make up its batches. For a model with
    /// `parameter_shapes()`, it counts the matrices whose sizes are multiples of 8, 16 and 128:
    /// devices compute on tiles, and a partly filled tile takes the time of a whole one.
    [[nodiscard]] std::string describe() const {
        return detail::trainer_text(*training_, mode_->run, *model_, policies_);
    }
    [[nodiscard]] std::string describe(std::size_t data_size, const FitOptions& options) const {
        return describe() + detail::fit_text(*training_, policies_, data_size, options);
    }

    /// Sets the epoch of the passes of `step`. `fit` sets it by itself.
    void set_epoch(Epoch epoch) { progress_.epoch = epoch; }
    /// Sets the facts for learning-rate schedules in a loop of your own. The trainer counts
    /// `update`.
    void set_schedule(const RatePoint& point) { own_point_ = point; }

    /// Checks that all ranks hold the same parameters, bit by bit (always true with
    /// ParameterSharding, where no parameter is held twice). Collective. \throws error mismatch
    /// that names rank and parameter
    void verify_replicas() {
        calling("verify_replicas", [&] {
            training_->assemble();
            if constexpr (!shards_parameters)
                detail::verify_replicas(world(), *model_, training_->flat(), training_->kernels());
        });
    }

    /// Checks that the model's memory has not moved since the trainer was made. Every other call
    /// also checks this. Local. \throws error bad_input that names the parameter
    void check_memory() const {
        if constexpr (unisono::model<Model>) training_->flat().check_in_place(*model_);
    }

    /// The position at which the next `fit` continues.
    [[nodiscard]] const Position& position() const { return progress_.position; }
    /// True while `fit` calls its function `on_update`.
    [[nodiscard]] bool in_fit() const { return in_fit_; }
    /// Updates committed so far; if servers make them, a worker counts its own.
    [[nodiscard]] std::uint64_t updates() const { return training_->applied(); }
    /// Position and counters, for checkpoints (extensions/checkpoint/checkpoints.hpp). `restore`
    /// sets them; pass the same on all ranks. It drops what a compression has left over.
    [[nodiscard]] TrainingProgress progress() const { return progress_.after(updates()); }
    /// \throws error bad_input: `fit` runs
    void restore(const TrainingProgress& saved) {
        if (in_fit_) detail::refuse_in_fit("restore");
        training_->restore_applied((progress_ = saved).updates);
        detail::age_copy(*model_); // before the parameters are restored
        detail::write_copy(*model_);
    }
    [[nodiscard]] const Policies& policies() const { return policies_; }
    [[nodiscard]] World& world() const { return training_->world(); }
    [[nodiscard]] Model& trained() const { return *model_; }
    [[nodiscard]] const Layout& layout() const { return training_->flat().layout(); }
    /// With `LossScaling`: the loss scale, part of the run's state like the optimizer's.
    [[nodiscard]] const LossScale& loss_scale() const { return training_->loss_scale().state(); }
    /// Calls visit(flat, std::span<const Element>) for the memory of a slice of the flat order of
    /// parameters. If parameters are sharded, only for those that this rank holds. On a device, the
    /// span is a copy that lives during the call.
    template <class Visit>
    void visit_parameters(const Slice& slice, Visit&& visit) const {
        training_->flat().visit(slice, [&](const detail::Stretch<Element>& one) {
            training_->kernels().read(one.parameters, one.count,
                                      [&](std::span<const Element> values) { visit(one.flat, values); });
        });
    }
    /// With `Trace`: what this rank recorded. extensions/trainers/trace.hpp combines the ranks'
    /// records.
    [[nodiscard]] const TraceLog& trace() const
        requires(Policies::Tracing::traces)
    {
        return *trace_;
    }
    /// As above. May be replaced by the log of an earlier trainer that continues here.
    [[nodiscard]] TraceLog& trace()
        requires(Policies::Tracing::traces)
    {
        return *trace_;
    }
    /// The state beside the model, for checkpoints, hashes and elastic worlds (training_state.hpp).
    /// That of a const trainer can only be read.
    [[nodiscard]] auto state() { return detail::TrainingState<Trainer>(*this); }
    [[nodiscard]] auto state() const { return detail::TrainingState<const Trainer>(*this); }

private:
    friend class detail::TrainingState<Trainer>;
    friend class detail::TrainingState<const Trainer>;

    Trainer(World& world, Model& trained, detail::Parameters parameters, Policies policies)
        : model_(&trained), number_(world.context().next_trainer()), policies_(std::move(policies)) {
        const detail::TrainerCall inside(world.context(), number_);
        detail::telling_all(world, "Trainer", [&] { set_up(world, parameters); });
    }
    [[gnu::cold]] void set_up(World& world, detail::Parameters parameters) {
        const detail::WritesCopy shows(*model_);
        if (world.size() < 1) refuse_input("Trainer: this rank is in no group");
        policies_.check();
        if constexpr (Policies::Tracing::traces)
            trace_.take(new TraceLog(static_cast<std::size_t>(policies_.trace.events)));
        const std::vector<detail::PolicyFacts> facts = policies_.facts();
        detail::agree_on_policies(world, detail::Part<const detail::PolicyFacts>(facts.data(), facts.size()));
        training_.take(new Training(world, *model_, policies_,
                                    detail::sharding_of(policies_.update, policies_.sharding, world.size())));
        detail::agree_on_model(world, *model_, training_->flat());
        if constexpr (detail::shards_gradients<Sharding>) training_->initialise(*model_);
        else if (parameters == detail::Parameters::of_rank_0)
            broadcast_parameters(world, training_->flat(), training_->kernels()); // a device's is found by its kernels
        detail::broadcast_buffers(world, *model_);
        mode_.take(new detail::ModeOf<typename Policies::Update, Training>(policies_.update, *training_));
        training_->begin_training(*mode_, trace_.get());
        detail::age_copy(*model_);
    }

    /// Runs a call of the user, and tells all ranks what it throws. Afterwards, also after an
    /// exception, a model that computes with a copy of its parameters has the current one.
    template <class Body>
    auto calling(std::string_view name, Body&& body) -> decltype(body()) {
        const detail::TrainerCall inside(world().context(), number_);
        return detail::telling_all(world(), name, [&] {
            check_memory();
            const detail::WritesCopy shows(*model_);
            return body();
        });
    }

    /// Calls visit for each batch of this rank (detail::each_batch).
    template <class Data, class Visit>
    SamplerShape each_batch(Data& data, const EvaluateOptions& options, const char* who, const Visit& visit) {
        return detail::each_batch(*training_, mode_->run, *model_, policies_.hosting, data, options, who, visit);
    }

    Model* model_;
    std::uint64_t number_;          ///< of the trainer, among those of the group
    Policies policies_;             ///< before `training_`, which refers to it
    detail::Owned<TraceLog> trace_; ///< null: nothing is recorded
    detail::Owned<Training> training_;
    detail::Owned<detail::ModeOf<typename Policies::Update, Training>> mode_; ///< after `training_`, to which it refers
    TrainingProgress progress_ = {}; ///< without `updates`, which the training counts
    RatePoint own_point_ = {};
    detail::ElasticPart elastic_ = {};
    bool in_fit_ = false;
};

UNISONO_NAMESPACE_END
