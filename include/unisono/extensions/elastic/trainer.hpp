#pragma once

/// \file
/// The trainer over an elastic world: a sequence of trainers over groups.
///
/// If every rank has all parameters and all of the optimizer's state, a rank commits an update by
/// its optimizer's pass over its own memory, which no other rank can interrupt. So nothing has to
/// be rolled back. When a rank is lost during an update, each other rank is either before or after
/// that update. If some are after it, the ranks before it get their state. Otherwise all repeat the
/// update.
///
/// If ranks own slices, an update may be half done when a rank is lost, and its slices are lost.
/// Then all ranks return to the last snapshot (snapshots.hpp). A call returns only when a snapshot
/// after it is complete, so no rank returns to a state before a call that another rank has
/// finished.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/elastic/change_trace.hpp"
#include "unisono/extensions/elastic/fit.hpp"
#include "unisono/extensions/elastic/rules.hpp"
#include "unisono/extensions/elastic/snapshot_run.hpp"
#include "unisono/extensions/elastic/state.hpp"
#include "unisono/extensions/elastic/world.hpp"
#include "unisono/trainer/trainer.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
/// Trains `model` on the ranks that are left, and on those that are added. As the trainer over a
/// group, except:
/// - When ranks are lost, `fit`, `evaluate`, `predict` and `collectively` continue with those that
///   are left; `step` reports the loss. `ElasticWorld::changes` has the lost ranks and the times.
/// - With `Reproducible` the result has the bits of an undisturbed run. With plain sums it depends
///   on how the ranks group the addends.
/// - If the device of a rank fails, the trainer throws there `aborted`, with CUDA's text, and that
///   rank has left the world. The others continue.
/// - Collective calls must go through the trainer: `collectively`, or the calls above.
/// - If ranks own slices (StateSharding), `Snapshots` sets how often they are copied. When ranks
///   are lost or added, all ranks return to the last copy.
///
/// Cost without a loss: one copy of the grids' exponents (4 bytes per parameter tensor) per update;
/// with owners of slices, also the copies (extensions/elastic/snapshots.hpp). After a loss: a new
/// group, and a trainer's start on it. Errors: those of Trainer, ElasticWorld and Snapshots.
template <class Transport, class Model, class... Given>
class Trainer<ElasticWorld<Transport>, Model, Given...> {
    template <class, class, class>
    friend class detail::ElasticFit;
    using World = ElasticWorld<Transport>;
    using Inner = Trainer<Group<Transport>, Model, Given...>;
    using Chosen = detail::ChosenPolicies<Given...>;
    using Copies = typename detail::PolicyOf<Family::snapshots, detail::NoSnapshots, Given...>::type;
    using Training = detail::ElasticTraining<detail::ChosenTraining<Group<Transport>, Model, Chosen>, Copies>;
    /// True if a rank may have state that no other rank has.
    static constexpr bool has_owners =
        detail::may_give_owners<typename Chosen::Sharding> || detail::gives_owners<typename Chosen::Reducer>;

public:
    static_assert(
        detail::ElasticRules::asserted<Training>,
        "unisono::Trainer: the elastic world, the model and the policies do not go together; the message above "
        "says why");
    using Element = typename Inner::Element;
    static constexpr bool shards_parameters = Inner::shards_parameters;

    Trainer(World& world, Model& trained, Given... given)
        : world_(&world), model_(&trained), given_(std::move(given)...),
          probation_(world.is_new_here(), world.members().back()) {
        if constexpr (has_owners) std::get<Copies>(given_).check();
        world.begin_trainer();
        try {
            surviving([&] {
                if (!inner_) begin(); // else it has begun in the next world
            });
        } catch (...) {
            world.end_trainer();
            throw;
        }
    }
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;
    /// With Snapshots: collective, unless an exception is being handled. A rank that was
    /// interrupted in its last call may need the state of the others.
    ~Trainer() {
        if constexpr (has_owners)
            if (inner_) end();
    }

    /// As Trainer::fit. `on_update` is called once for each update on every rank that takes part.
    /// If a rank was interrupted in an update that others have committed, it calls `on_update` for
    /// it in the next world. With Snapshots it is called again for updates that are repeated; the
    /// report counts them once. `on_update` must not make collective calls: to save, call
    /// `collectively` between two calls of `fit`. If the others had finished a call before this
    /// rank was added, it returns at once, with the report of that call.
    template <class Data, class OnUpdate = detail::IgnoreUpdates>
    FitReport fit(Data&& data, const FitOptions& options = {}, OnUpdate on_update = {}) {
        check_alive();
        return detail::ElasticFit(*this, data, options, on_update).run();
    }

    /// As Trainer::step, unless ranks are lost. Then it returns in the next world, with
    /// `world_changed`, and each rank continues after the updates that `updates()` counts, with the
    /// batches that it now hosts. With Snapshots each call ends with a copy, whatever the value of
    /// `every`: no rank returns to a state before an update from which another rank has returned.
    template <class... Batches>
    UpdateReport step(const Batches&... batches) {
        check_alive();
        world_->set_complete(false);
        UpdateReport report;
        bool changed = false, done = false;
        surviving([&] {
            if (changed || done) return;
            changed = true; // reset below, if the step completes
            report = inner_->step(batches...);
            commit();
            if constexpr (has_owners) confirm_snapshot();
            changed = false;
            done = true;
            world_->take_in_applicants();
        });
        if (changed) report = UpdateReport{.number = updates()};
        report.world_changed = changed;
        return report;
    }

    /// Calls `call(trainer)` with the trainer over the current group, on all ranks together. The
    /// result must not depend on the number of ranks. If ranks are lost during the call, it is
    /// repeated in the next world. If the other ranks have finished the call and this rank has not,
    /// this rank makes it alone, with the state that the others had after it. It holds a copy of
    /// that state meanwhile, and restores what the call changes. Then `done_by_others()` of the
    /// trainer is true: the files that the call writes exist already. With Snapshots the call ends
    /// with a copy.
    ///
    ///     const un::StateHash hash =
    ///         trainer.collectively([](auto& now) { return un::state_hash(now); });
    template <class Call>
    auto collectively(Call call) {
        using Result = std::decay_t<decltype(call(std::declval<Inner&>()))>;
        check_alive();
        std::optional<Result> result;
        const bool complete = world_->is_complete();
        world_->set_complete(false);
        surviving([&] {
            if (finished_ < most_finished_) {
                result.emplace(alone(call));
                remember();
            } else {
                const auto inside = inner_->state().acting();
                result.emplace(call(*inner_));
                remember();
                if constexpr (has_owners) confirm_snapshot();
                ++state_.passes;
                fruitless_ = 0;
            }
        });
        world_->set_complete(complete);
        if (++finished_ >= most_finished_) snapshots_.forget_all();
        return std::move(*result);
    }

    template <class Data, class... Rest>
    auto evaluate(Data&& data, const EvaluateOptions& options, Rest... rest) {
        return collectively([&](auto& trainer) { return trainer.evaluate(data, options, rest...); });
    }
    template <class Data>
    auto predict(Data&& data, const EvaluateOptions& options = {}) {
        return collectively([&](auto& trainer) { return trainer.predict(data, options); });
    }
    void verify_replicas() {
        collectively([](auto& trainer) { return trainer.verify_replicas(), true; });
    }

    [[nodiscard]] std::string describe() const { return concat({in_world().describe(), sentence()}); }
    [[nodiscard]] std::string describe(std::size_t data_size, const FitOptions& options) const {
        return concat({in_world().describe(data_size, options), sentence()});
    }
    void set_epoch(Epoch epoch) {
        in_world().set_epoch(epoch);
        state_.progress.epoch = epoch;
        is_set_ = true;
    }
    void set_schedule(const RatePoint& point) {
        in_world().set_schedule(point);
        state_.point = point;
        is_set_ = true;
    }
    /// The three below, on a rank that was added and has not yet come to the call of `fit` that the
    /// others are in: what they had before their call with this number.
    [[nodiscard]] Position position() const { return progress().position; }
    [[nodiscard]] std::uint64_t updates() const { return progress().updates; }
    [[nodiscard]] TrainingProgress progress() const {
        if (is_in_past()) return past_.before(begun_fits_ + 1);
        return inner_ ? inner_->progress() : state_.progress;
    }
    /// With `Trace`: what this rank recorded in all worlds since this trainer began, including
    /// changes of the world. An added rank has recorded since it was added.
    [[nodiscard]] const TraceLog& trace() const
        requires(Training::Tracing::traces)
    {
        return inner_ ? inner_->trace() : tracer_.log();
    }
    [[nodiscard]] World& world() const { return *world_; }
    [[nodiscard]] Model& trained() const { return *model_; }
    /// The trainer over the current group, valid until the world changes. Errors: refused, if this
    /// rank has left the world, as for all other calls but position, updates, progress and trace.
    [[nodiscard]] Inner& now() { return in_world(); }

private:
    [[nodiscard]] std::string sentence() const {
        if constexpr (has_owners) return snapshots_.sentence(every());
        else
            return "elastic: every rank has all parameters and all of the optimizer's state; when ranks are lost, the "
                   "others continue with them\n";
    }
    static constexpr bool traces = Training::Tracing::traces;
    struct Nothing {
        void operator()() const {}
    };
    /// Limit of consecutive changes that lost no rank, and had no update and no finished call
    /// between them. If two ranks cannot connect, the formation limits them by `give_up`, and
    /// leaves one of the two out.
    static constexpr int most_fruitless = 3;

    [[nodiscard]] bool is_in_past() const { return repeats_ && begun_fits_ < past_.size(); }
    [[nodiscard]] Inner& in_world() const {
        if (!inner_) detail::throw_in_no_world();
        return *inner_;
    }
    void check_alive() const {
        static_cast<void>(in_world());
        if (observes_)
            refuse_input(
                "Trainer: found a call of the trainer within on_update, over an elastic world; expected none there");
    }
    Inner make(Group<Transport>& group, detail::Parameters parameters = detail::Parameters::of_rank_0) {
        const auto now = [&](const auto& policy) { return detail::within(policy, world_->epoch(), group.size()); };
        return std::apply([&](auto&... given) { return Inner(parameters, group, *model_, now(given)...); }, given_);
    }
    void begin() {
        const nanoseconds began = world_->now();
        const bool fresh = world_->is_fresh();
        if constexpr (traces)
            if (fresh && world_->is_new_here()) tracer_.added(world_->epoch(), world_->number());
        if (fresh && past_.share(world_->group(), world_->source(), world_->is_new_here())) repeats_ = true;
        if constexpr (has_owners) begin_with_slices();
        else begin_with_all();
        const auto& hosting = inner_->policies().hosting;
        if constexpr (requires { hosting.count; }) // a rank hosts at least one replica
            world_->take_in_at_most(static_cast<int>(std::min<std::int64_t>(hosting.count, detail::most_ranks)));
        else world_->take_in_at_most(detail::most_ranks);
        remember();
        if (fresh) world_->started(std::chrono::nanoseconds(world_->now() - began));
        if constexpr (traces) tracer_.begun(inner_->trace(), world_->number());
        if (fresh && world_->rank() == 0) detail::warn_of_uneven_hosting(hosting, world_->size(), world_->epoch());
    }
    static auto& optimizer_of(Inner& trainer) { return detail::arrays_behind(trainer.state().optimizer_state()); }
    /// Work of the device may still write the trainer's own state, which is about to be released.
    static void set_optimizer(Inner& trainer, OptimizerState<Element>&& state) {
        if constexpr (model_on_device<Model>) trainer.state().kernels().wait();
        optimizer_of(trainer) = std::move(state);
    }
    void make_inner(detail::Parameters parameters = detail::Parameters::of_rank_0) {
        inner_.reset(new Inner(make(world_->group(), parameters)));
        inner_->state().set_world_epoch({world_->job(), world_->epoch()});
    }
    void begin_with_all() {
        auto parameters = detail::Parameters::of_rank_0;
        if (world_->is_fresh()) {
            const std::uint64_t made = state_.made;
            if (world_->is_new_here()) { // gives the optimizer's state its shape
                Group<Transport> alone = detail::alone_beside(world_->group());
                Inner trainer = make(alone);
                state_.optimizer = std::move(optimizer_of(trainer));
                restores_ = true;
            }
            most_finished_ = detail::bring_forward(world_->group(), world_->source(), world_->is_new_here(), finished_,
                                                   *model_, state_);
            missed_ = missed_ || (!world_->is_new_here() && state_.made != made);
            if (state_.passes > 0) parameters = detail::Parameters::equal; // on all ranks, now
            world_->settle();
        }
        make_inner(parameters);
        if (std::exchange(state_.has_optimizer, false)) set_optimizer(*inner_, std::move(state_.optimizer));
        if (restores_) restore(*inner_);
    }
    /// Returns all ranks to the last snapshot, if there is one.
    void begin_with_slices() {
        make_inner();
        auto& group = world_->group();
        detail::agree_on(group, "Trainer", std::array{std::string_view("Snapshots.every")}, std::array{every()});
        std::optional<detail::FoundSnapshot> found;
        if (world_->is_fresh()) {
            most_finished_ = finished_;
            try {
                found = snapshots_.agree(group, most_finished_);
            } catch (const error& failed) {
                if (failed.agreed()) inner_.reset(); // there is no state with which to continue
                throw;
            }
        }
        snapshots_.enter(*inner_, world_->epoch(), world_->members());
        if (found) {
            detail::StateRecord numbers;
            numbers.bytes() = snapshots_.go_back(*inner_, *found, finished_ < most_finished_);
            detail::go_back(numbers, state_, is_set_);
            restore(*inner_);
        }
        copy_slices(true);
        snapshots_.confirm(group);
        world_->settle();
    }
    [[nodiscard]] std::int64_t every() const { return std::get<Copies>(given_).every; }
    void confirm_snapshot() {
        copy_slices(false);
        snapshots_.confirm(world_->group());
        is_set_ = false;
    }
    void copy_slices(bool first) {
        remember();
        detail::StateRecord numbers;
        detail::put_numbers(numbers, state_);
        snapshots_.take(*inner_, std::move(numbers.bytes()), first);
    }
    /// Called when all other ranks have finished their last call. A rank that was interrupted in it
    /// may need this rank's state. The model stays unchanged.
    void end() noexcept {
        if (std::uncaught_exceptions() != 0) return world_->end_by_exception();
        const detail::NotCancelled whole;
        std::optional<detail::StateRecord> kept;
        try {
            [[maybe_unused]] const auto copies = detail::state_copies(world_->group(), *model_);
            try {
                surviving([&] { barrier(world_->group()); },
                          [&] {
                              if constexpr (!unit_model<Model>)
                                  if (!kept) detail::put_memory<Element>(kept.emplace(), copies, *model_, nullptr);
                          });
            } catch (...) { // no other rank needs this rank any more
            }
            if constexpr (!unit_model<Model>)
                if (kept) detail::give_back<Element>(*kept, copies, inner_.get(), *model_, nullptr);
        } catch (...) { // the device has failed, and the model with it
        }
    }
    /// Makes a user's call that the other ranks have finished.
    template <class Call>
    auto alone(Call& call) {
        Group<Transport> group = detail::alone_beside(world_->group());
        Inner trainer = make(group);
        trainer.state().set_done_by_others();
        detail::StateRecord kept;
        [[maybe_unused]] const auto copies = detail::state_copies(group, *model_);
        if constexpr (has_owners) snapshots_.read_all(trainer);
        else {
            detail::put_memory<Element>(kept, copies, *model_, &optimizer_of(*inner_));
            set_optimizer(trainer, std::move(optimizer_of(*inner_)));
        }
        restore(trainer);
        auto result = call(trainer);
        if constexpr (!has_owners) {
            set_optimizer(*inner_, std::move(optimizer_of(trainer)));
            detail::give_back(kept, copies, inner_.get(), *model_, &optimizer_of(*inner_));
            restore(*inner_);
        } else if constexpr (!unit_model<Model>) snapshots_.read_all(*inner_), restore(*inner_);
        return result;
    }
    /// Restores the state after the last committed update.
    void restore(Inner& trainer) {
        trainer.restore(state_.progress);
        if constexpr (Training::Summation::reproducible)
            if (!state_.grids.empty()) trainer.state().restore_grid_exponents(state_.grids);
        if constexpr (Training::Scaling::scales) trainer.state().restore_loss_scale(state_.loss_scale);
        trainer.set_schedule(state_.point);
    }
    void commit() {
        ++state_.passes;
        ++state_.made;
        finished_ = std::max(finished_, most_finished_); // all ranks are at one point of the program
        fruitless_ = 0;
        repeats_ = false;
        if constexpr (has_owners) snapshots_.note_update();
        remember();
    }
    /// Saves the position of the training, between two updates.
    void remember() {
        state_.progress = inner_->progress();
        const auto grids = inner_->state().grid_exponents();
        state_.grids.assign(grids.begin(), grids.end());
        state_.loss_scale = inner_->loss_scale();
    }

    /// Runs `body` to its end. Each time that ranks are lost, runs it again in the next world.
    /// Calls `before` before each recovery.
    template <class Body, class Before = Nothing>
    void surviving(Body body, Before before = {}) {
        for (bool lost = false;;) {
            try {
                if (lost) recover();
                lost = false;
                body();
                return;
            } catch (const error& failed) {
                end_with_device();
                const bool goes_on = probation_.ends(*world_, failed) || world_->has_lost(failed);
                if (world_->rank() < 0) inner_.reset(); // this rank has left the world
                if (!goes_on) throw;
                if (fruitless_ >= most_fruitless && !world_->is_limited(state_.passes)) throw;
                before();
                lost = true;
            } catch (const std::exception&) { // a kernel's, perhaps
                end_with_device();
                throw;
            }
        }
    }
    /// If the device of this rank has failed, ends the rank. The others continue.
    void end_with_device() {
        const std::string why = world_->device_failure();
        if (why.empty()) return;
        const Fault fault{.code = ErrorCode::aborted, .rank = world_->rank(), .operation = "elastic", .message = why};
        world_->abort(fault);
        inner_.reset();
        world_->leave();
        throw error(fault);
    }
    void recover() {
        [[maybe_unused]] const nanoseconds began = steady_now();
        restores_ = true;
        if (inner_) {
            if constexpr (traces) tracer_.take(inner_->trace());
            if (!has_owners && !std::exchange(state_.has_optimizer, true))
                state_.optimizer = std::move(optimizer_of(*inner_));
            inner_.reset();
        }
        world_->form_next(state_.progress.updates, state_.passes);
        const WorldChange& change = world_->changes().back();
        if constexpr (traces) tracer_.formed(began, change);
        fruitless_ = change.lost.empty() && change.joined.empty() ? fruitless_ + 1 : 0;
        begin();
    }

    World* world_;
    Model* model_;
    std::tuple<Given...> given_;
    std::unique_ptr<Inner> inner_;
    detail::ElasticState<Element> state_;
    detail::SnapshotRun<Element> snapshots_;
    std::uint64_t finished_ = 0;      ///< number of the user's calls that this rank has finished
    std::uint64_t most_finished_ = 0; ///< the maximum over the ranks, when the world last changed
    std::uint64_t begun_fits_ = 0;
    detail::PastFits past_;
    bool repeats_ = false; ///< this rank was added, and makes calls that the others have made
    int fruitless_ = 0;
    bool restores_ = false;
    bool observes_ = false; ///< on_update is being called
    bool is_set_ = false;   ///< the user has set the epoch or schedule since the last snapshot
    /// Others have committed an update of this `fit` for which this rank has not called on_update.
    bool missed_ = false;
    [[no_unique_address]] detail::ChangeTracer<traces> tracer_;
    detail::Probation probation_;
};

UNISONO_NAMESPACE_END
