#pragma once

/// \file
/// The state of one trainer during its lifetime, and one update: collect, exchange, report.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/owner.hpp"
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

template <class World, class T, class Place, class Policies, class Low>
class UnitStore; // extensions/sharded/store.hpp, which unisono/sharded.hpp includes

/// The element type of a model's passes. Models in units may use a narrower type than that in which
/// they are trained.
template <class Model>
struct PassElement {
    using type = parameter_element_t<Model>;
};
template <unit_model Model>
struct PassElement<Model> {
    using type = pass_element_t<Model>;
};

template <class World, class Model, class Policies, class T = parameter_element_t<Model>,
          class Place = typename PlaceFor<World, Model>::type>
struct StoreOf {
    using type = WholeStore<T, Place>;
};
template <class World, class Model, class Policies, class T, class Place>
    requires(shards_gradients<typename Policies::Sharding>)
struct StoreOf<World, Model, Policies, T, Place> {
    using type = UnitStore<World, T, Place, Policies, typename PassElement<Model>::type>;
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
    using Exchanges =
        Training<World, typename StoreOf<World, Model, Policies>::type, Policies::Compression::compresses>;
    static_assert(
        requires(const Update& update, Exchanges& training) {
            { update.start(training) } -> update_run;
        },
        "unisono::Trainer: the update policy lacks what update/update.hpp asks of one: start(training) returns a run, "
        "for instance one that derives from UpdateRun");
    using Run = decltype(std::declval<const Update&>().start(std::declval<Exchanges&>()));
    static_assert(
        !requires(Run& run) { run.meet(); },
        "unisono::Trainer: found an update whose run has `meet`. Required: `synchronise`. Why: the trainer calls "
        "no `meet`, so ranks would never hold the same parameters");
    static_assert(Update::agrees || !Run::agrees() || std::is_same_v<Run, UpdateRun<Exchanges>>,
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
    [[nodiscard]] Exchanges& exchange() { return *exchange_; }
    [[nodiscard]] const Exchanges& exchange() const { return *exchange_; }

    void begin() { exchange_->begin(run_->alone(exchange_->applied())); }
    /// Tells the exchange that each rank hosts at most one micro-batch of this update. All ranks
    /// know that.
    void expect_one() { exchange_->expect_one(); }
    /// For sums on a grid in a loop of the user's own: this rank hosts `hosted` micro-batches.
    /// Collective.
    void expect(std::size_t hosted) {
        std::array<std::int32_t, 1> most = {hosted > 1 ? 2 : 1};
        if (world_->size() > 1) all_reduce_native(*world_, most, Few<Max>{});
        if (most[0] == 1) exchange_->expect_one();
    }

    template <class Batch>
    void add(const Batch& batch, double samples, const PassFacts& facts, bool last) {
        [[maybe_unused]] const auto span = tracer_.span(Activity::compute, exchange_->applied());
        exchange_->add(*model_, batch, samples, facts, last);
    }

    /// Call it when all ranks have finished a round of micro-batches, before they communicate about
    /// it.
    void end_round() {
        if constexpr (shards_gradients<typename Policies::Sharding>) exchange_->end_round();
    }

    /// Synchronises ranks that update on their own. Collective.
    void synchronise() {
        if (run_->agrees()) return;
        age_copy(*model_);
        [[maybe_unused]] const auto span = tracer_.span(Activity::exchange, exchange_->applied());
        run_->synchronise();
    }

    /// Called before collective work that is no synchronisation. Servers serve in it until all
    /// workers have called it.
    void assemble() {
        if (workers() < world_->size()) synchronise();
    }

    /// The update's run, which has its own state.
    [[nodiscard]] Run& run() const { return *run_; }

    /// The number of ranks that compute gradients, and this rank's number among them. A server
    /// takes the number of the first.
    [[nodiscard]] int workers() const { return run_->workers(); }
    [[nodiscard]] int worker() const { return serves() ? 0 : world_->rank(); }
    /// True if this rank makes the updates of others and computes no gradients.
    [[nodiscard]] bool serves() const { return world_->rank() >= workers(); }

    /// Drops the gradients that were collected.
    void abandon() { exchange_->discard(); }

    /// Reduces what is left, gets the verdict of all ranks, applies, publishes, reports.
    UpdateReport update(std::int64_t epoch, RatePoint point) {
        const std::uint64_t number = exchange_->applied(); // `apply` increments it
        const auto traced = [&](Activity what, auto verb) {
            [[maybe_unused]] const auto span = tracer_.span(what, number);
            return verb();
        };
        age_copy(*model_);
        point.update = number;
        const double rate = policies_.learning_rate.rate(policies_.optimizer.learning_rate, point);
        if (!(rate >= 0) || !detail::is_finite(rate))
            refuse_input({Policies::LearningRate::name, ": the rate of update ", point.update, " is ", rate,
                          "; expected a finite number of at least 0"});
        exchange_->set_learning_rate(rate);
        const double loss_scale = exchange_->loss_scale().scale(); // a commit may change it
        const bool alone = run_->alone(number);
        if (alone) run_->before();

        traced(Activity::exchange, [&] { exchange_->start(); }); // the buckets that were not ready before
        Verdict verdict = traced(Activity::exchange, [&] { return exchange_->agree(); });
        traced(Activity::exchange, [&] { exchange_->finish(); }); // waits for the buckets
        if (verdict == Verdict::commit) {
            constexpr Activity applying = Run::optimizes() ? Activity::apply : Activity::exchange;
            verdict = traced(applying, [&] { return run_->apply(); });
            traced(Activity::exchange, [&] { run_->publish(); });
        } else {
            verdict = run_->discard(verdict);
        }

        if (alone && run_->after(verdict)) synchronise();
        return report_of(verdict, alone, loss_scale, epoch);
    }

    /// After an update. Returns false if it has happened on no rank, and must be collected again,
    /// on wider grids. If it must not be left out, all ranks throw the same error, and may continue
    /// after catching it. A rank that updates on its own throws alone; the others learn of it at
    /// the next synchronisation.
    bool accepts(const UpdateReport& report, std::string_view operation) {
        if constexpr (on_grid) {
            if (must_repeat()) return false;
        }
        if (report.committed || exchange_->loss_scale().backed_off()) return true; // the next update may succeed
        if constexpr (on_grid) stop_if_misfit(operation);
        if constexpr (Policies::Clipping::measures_norm) stop_if_no_norm(report, operation);
        if constexpr (Policies::Guard::inspects || on_grid) {
            const Offence& offence = exchange_->offence();
            if (offence.any() && !skips())
                refuse(not_finite(offence, offence.sum ? -1 : world_->world_rank(offence.rank),
                                  offence.loss || offence.elsewhere ? "" : label(offence.parameter),
                                  exchange_->applied() + 1, operation));
        }
        return true;
    }

    /// With `Trace`: what was recorded on this rank.
    [[nodiscard]] const TraceLog& trace() const
        requires(Policies::Tracing::traces)
    {
        return tracer_.log();
    }
    [[nodiscard]] TraceLog& trace()
        requires(Policies::Tracing::traces)
    {
        return tracer_.log();
    }

private:
    [[gnu::cold]] void set_up(World& world, Model& model, Parameters parameters) {
        const WritesCopy shows(model);
        if (world.size() < 1) refuse_input("Trainer: this rank is in no group");
        policies_.optimizer.check();
        tracer_.begin(policies_.trace);
        policies_.learning_rate.check();
        policies_.clipping.check();
        policies_.compression.check();
        policies_.scaling.check();
        if constexpr (requires { policies_.update.check(); }) policies_.update.check();
        const std::vector<PolicyFacts> facts = policies_.facts();
        agree_on_policies(world, Part<const PolicyFacts>(facts.data(), facts.size()));
        const auto sharding = sharding_of(policies_.update, policies_.sharding, world.size());
        exchange_.take(new Exchanges(world, model, policies_, sharding));
        agree_on_model(world, model, exchange_->flat());
        if constexpr (shards_gradients<typename Policies::Sharding>) exchange_->initialise(model);
        else if (parameters == Parameters::of_rank_0)
            broadcast_parameters(world, exchange_->flat(), exchange_->place());
        broadcast_buffers(world, model);
        run_.take(new Run(policies_.update.start(*exchange_)));
        age_copy(model);
    }

    [[gnu::always_inline]] inline UpdateReport report_of(Verdict verdict, bool alone, double loss_scale,
                                                         std::int64_t epoch) const {
        const UpdateSums& sums = exchange_->sums();
        UpdateReport report;
        report.alone = alone;
        report.committed = verdict == Verdict::commit;
        report.loss = sums.divisor > 0 ? sums.loss / sums.divisor : 0;
        report.learning_rate = exchange_->learning_rate();
        report.loss_scale = loss_scale;
        if (const Offence& found = exchange_->offence(); !report.committed && found.any() && !found.elsewhere) {
            report.offender_rank = found.rank;
            if (!found.loss) report.offender_parameter = static_cast<std::int64_t>(found.parameter);
        }
        report.gradient_norm = exchange_->gradient_norm();
        report.number = exchange_->applied();
        run_->tell(report);
        report.epoch = epoch;
        report.micro_batches = static_cast<std::int64_t>(sums.micro_batches);
        report.samples = static_cast<std::int64_t>(sums.samples);
        report.tokens = whole_tokens(sums.tokens);
        return report;
    }

    /// Called after each update on grids. Returns true if it happened on no rank, and must be
    /// collected again, on wider grids.
    bool must_repeat() {
        const auto& range = exchange_->grids();
        if (range.fits()) {
            repeated_ = 0;
            return false;
        }
        if (!range.only_new() && policies_.summation.on_misfit != decltype(policies_.summation.on_misfit)::widen)
            return false;
        if (++repeated_ > most_repeats)
            refuse_input(
                {"Reproducible: the gradient of ", label(range.misfit()), " still does not fit a grid after ",
                 most_repeats,
                 " repetitions of the update; expected a model that gives the same gradients for the same batch "
                 "(verify_reproducible checks it)"});
        return true;
    }

    static constexpr bool on_grid = Policies::Summation::reproducible;
    /// With a wider grid another part may become visible that was lost in what did not fit.
    static constexpr int most_repeats = 8;

    /// A rank that updates on its own must tell the others.
    [[noreturn]] void refuse(Fault why) const {
        if (run_->agrees()) throw agreed_error(std::move(why));
        throw error(std::move(why));
    }
    [[nodiscard]] bool skips() const {
        if constexpr (Policies::Guard::inspects) return policies_.guard.on_offence() == OnOffence::skip;
        else return policies_.summation.on_misfit == decltype(policies_.summation.on_misfit)::skip;
    }
    void stop_if_no_norm(const UpdateReport& report, std::string_view operation) {
        if (detail::is_finite(report.gradient_norm)) return;
        if (Policies::Guard::inspects && policies_.guard.on_offence() == OnOffence::skip) return;
        refuse(no_norm(report.gradient_norm, Policies::Clipping::name, exchange_->applied() + 1, operation));
    }
    void stop_if_misfit(std::string_view operation) {
        const auto& range = exchange_->grids();
        if (range.fits()) return;
        if (policies_.summation.on_misfit == decltype(policies_.summation.on_misfit)::skip) return;
        throw agreed_error(misfit(label(range.misfit()), exchange_->applied() + 1, operation));
    }
    [[nodiscard]] std::string label(std::size_t parameter) const { return parameter_label(*model_, parameter); }

    World* world_;
    Model* model_;
    std::uint64_t number_; ///< of the trainer, among those of the group
    Policies policies_;    ///< before `exchange_`, which refers to it
    [[no_unique_address]] Tracer<Policies::Tracing::traces> tracer_;
    Owner<Exchanges> exchange_;
    Owner<Run> run_; ///< the run of the update policy
    int repeated_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
