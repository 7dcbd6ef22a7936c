#pragma once

/// \file
/// One update: from the gradients of this rank's micro-batches to the parameters of all ranks.
///
/// `Update` knows neither the model nor the group's transport nor the policies, which it calls by
/// `UpdatePolicies`, `ReducerRun` and `Mode`. The store of a model derives from it, holds the
/// parameters and the gradient, and moves them: `WholeStore` (whole.hpp) if their memory is whole
/// on every rank, `UnitStore` (extensions/sharded/store.hpp) for models in units, which are sharded
/// over the ranks. `Training` (trainer/training.hpp) adds the model's call and the group's type. A
/// store also has `make_pass`, the argument of that call, and `flat()`, the parameters.
///
/// `close` is an update after its micro-batches: read it first.

#include "unisono/collective/of_core.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/model/wrapped_model.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/step/compressed_gradient.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/owned_slices.hpp"
#include "unisono/trainer/step/reducer_run.hpp"
#include "unisono/trainer/step/tally.hpp"
#include "unisono/trainer/step/update_policies.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `T`: the type of the parameters.
template <class T>
class Update {
public:
    using Element = T;

    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    [[gnu::cold]] virtual ~Update() = default;

    /// Call it before the first update. `mode`: the run of the update policy. `log`: where the time
    /// goes, or null. Both are used until the last update.
    void begin_training(Mode& mode, TraceLog* log) {
        mode_ = &mode;
        log_ = log;
    }

    // --- collecting ---

    /// Starts an update.
    void begin();

    /// Adds the micro-batch in progress (`micro_`), for which the model's call has returned this
    /// loss.
    void after_call(double loss, bool last);

    // --- after the last micro-batch ---

    /// Reduces what is left, gets the verdict of all ranks, applies, publishes, reports.
    /// Collective, unless ranks update on their own.
    UpdateReport close(RatePoint point, std::int64_t epoch);

    /// Synchronises ranks that update on their own. Collective.
    void synchronise();

    /// Called before collective work that is no synchronisation. Servers serve in it until all
    /// workers have called it.
    void assemble() {
        if (workers() < world_->size()) synchronise();
    }

    /// Returns false if the update that `close` has reported has happened on no rank, and must be
    /// collected again, on wider grids. If it must not be left out, all ranks throw the same error,
    /// and may continue after catching it. A rank that updates on its own throws alone; the others
    /// learn of it at the next synchronisation.
    bool accepts(const UpdateReport& report, std::string_view operation);

    // --- its phases, which a mode may replace ---

    /// Combines weights, losses and the guards' findings of all ranks, in one small all_reduce.
    Verdict agree();

    /// Runs the optimizer on what this rank owns. Commits, unless the sum of the gradients is not
    /// finite, or its norm is needed for clipping and is not finite. The verdict is the same on all
    /// ranks, unless this rank updates alone.
    Verdict apply();

    /// Sends the owners' parameters to all ranks.
    void publish() {
        if (!left_out_) publish_owned();
    }

    /// Drops the update: parameters and optimizer state stay as they were.
    void discard() {
        forget();
        gradients_->widen();
    }

    // --- accessors ---

    /// The number of ranks that compute gradients, and this rank's number among them. A server
    /// takes the number of the first.
    [[nodiscard]] int workers() const { return mode_->workers(); }
    [[nodiscard]] int worker() const { return serves() ? 0 : world_->rank(); }
    /// True if this rank makes the updates of others and computes no gradients.
    [[nodiscard]] bool serves() const { return world_->rank() >= workers(); }

    [[nodiscard]] const UpdatePolicies<T>& policies() const { return *policies_; }
    [[nodiscard]] const OwnedSlices& owned_slices() const { return *owned_slices_; }
    /// The elements that this rank updates, in flat order.
    [[nodiscard]] std::span<const Slice> owned() const { return owned_slices_->owned(); }
    [[nodiscard]] Tally& tally() { return tally_; }
    [[nodiscard]] OptimizerState<T>& state() { return state_; }
    [[nodiscard]] LossScaleRun& loss_scale() { return loss_scale_; }
    /// The grids on which gradients are summed; only for sums on a grid.
    [[nodiscard]] GridRange& grids() { return *gradients_->grids(); }

    /// The learning rate that the optimizer gets if the update commits.
    [[nodiscard]] double learning_rate() const { return learning_rate_; }
    [[nodiscard]] std::uint64_t applied() const { return applied_; }
    /// Continues a training that has made `updates` updates.
    void restore_applied(std::uint64_t updates) {
        applied_ = updates;
        restart();
    }

    /// True if sums of gradients that overflow must not become parameters.
    [[nodiscard]] bool guards_sums() const { return facts_.inspects || on_grid_; }
    /// True if an offence that a guard finds ends the call with an error; false if only the update
    /// is left out.
    [[nodiscard]] bool stops_on_offence() const { return facts_.stops; }

protected:
    /// `policies`: the trainer's, which must outlive this. `sharding`: who owns the parameters.
    /// `kernels`: made by `new`; this owns them.
    template <class World, class Model, class Policies, class Sharding, class Computes>
    [[gnu::cold]] Update(World& world, Model& model, const Policies& policies, const Sharding&, Computes& kernels);

    /// A store's constructor says where the parameters are in flat order, who owns them, and how
    /// gradients are summed. All of these must live as long as the store.
    [[gnu::cold]] void begin_store(const Layout& layout, const OwnedSlices& owned, SumsOfGradients& gradients) {
        layout_ = &layout;
        owned_slices_ = &owned;
        gradients_ = &gradients;
        state_ = kernels_->state(policies_->state(), owned.owned_count());
    }

    // --- what a store does ---

    /// Starts the sums over the ranks of what has not travelled yet; does not wait.
    virtual void start() = 0;
    /// Waits until the sums are at their owners.
    virtual void finish() = 0;
    virtual void begin_update() = 0;
    virtual void after_pass() {}
    /// Adds a micro-batch's gradient, of weight `multiplier`, to those of this update.
    virtual void keep(double multiplier, bool last) = 0;
    /// The factor that the optimizer must still apply to gradients.
    [[nodiscard]] virtual double factor_left() const { return 1; }
    /// Calls visit(parameter, flat, values, n) for the sum of the gradients: for each element on
    /// one rank if slices have owners, else on all ranks.
    using GradientVisit = FunctionRef<void(std::size_t, std::size_t, const T*, std::size_t)>;
    virtual void each_gradient(GradientVisit visit) = 0;
    /// An upper bound of the number of these calls on a device.
    [[nodiscard]] virtual std::size_t most_gradients() const = 0;
    /// Calls UpdatePolicies::update for the elements that this rank updates.
    virtual void update_owned(const OptimizerStep& step) = 0;
    virtual void publish_owned() = 0;
    /// Drops this update's gradients.
    virtual void forget() = 0;
    /// Drops what a compression has left over, because another training continues here.
    virtual void restart() {}

    // --- what a store calls ---

    /// The share of the micro-batch in progress, computed from the tokens counted so far.
    Share weigh() {
        micro_->tokens = pass_->tokens();
        return policies_->checked_share(*micro_, static_cast<double>(std::numeric_limits<T>::max()));
    }
    /// Lets the guard look at elements of this rank's gradient, if it does. The first one has index
    /// `flat` in the flat order.
    void inspect(const T* gradient, std::size_t count, std::size_t flat) {
        if (!inspects_) return;
        const Findings found = policies_->inspect(gradient, count, flat, large_from_);
        if (found.offender != no_offender) note_offender(flat + found.offender);
        if (found.large) tally_.note_large();
    }
    /// Notes the weight with which a gradient that the guard has seen is summed.
    void note_weight(double weight) {
        if (weight > detail::scaled_by_bits(1.0, room_for_weights)) tally_.note_large();
    }

    GroupCore* world_;
    Owned<Kernels<T>> kernels_;
    Owned<UpdatePolicies<T>> policies_;
    const UpdateFacts& facts_; ///< of `policies_`
    const bool on_grid_;
    /// The guard looks at this rank's gradients: at floats once they are summed over its
    /// micro-batches, on a grid at each micro-batch's. A grid finds NaN and infinity by itself, so
    /// a guard that looks only for these is not asked.
    bool inspects_;
    Owned<ReducerRun> reducer_;
    bool by_itself_ = false;       ///< the update policy lets this rank make this update by itself
    bool nothing_travels_ = false; ///< that, or a world of one: no other rank sees gradients of this update
    double scaled_by_ = 1;         ///< the loss scale of this update
    /// This update's sum of weights over all ranks; known once they have agreed to make the update.
    double divisor_ = 0;
    MicroBatchFacts* micro_ = nullptr; ///< the micro-batch in progress, set before the model's call
    Pass* pass_ = nullptr;             ///< the pass of this rank's micro-batch, while the model works on it
    Mode* mode_ = nullptr;             ///< the run of the update policy
    TraceLog* log_ = nullptr;          ///< where the time goes; null: nothing is recorded

private:
    /// Bits reserved for weights and ranks: if all elements are below 2^large_from_, and the
    /// weights of each rank add up to at most 2^room_for_weights, then the sum over all ranks is at
    /// most half of the largest T.
    static constexpr int room_for_weights = 40;

    void note_offender(std::size_t flat) { tally_.note_offender(layout_->element_at(flat).parameter); }
    /// Called after each update on a grid. Returns true if it happened on no rank, and must be
    /// collected again, on wider grids.
    bool must_repeat();
    /// Leaves the update out after its gradients were summed.
    Verdict leave_out();
    /// Looks at the sums of all gradients. Returns false, on all ranks, if one is not finite.
    /// Called only if gradients are so large that sums may overflow; other updates pay nothing.
    [[gnu::noinline, gnu::cold]] bool sums_are_finite();
    /// Measures the norm: the same bits on all ranks.
    double measure_norm(double scale);

    const Layout* layout_ = nullptr;
    const OwnedSlices* owned_slices_ = nullptr;
    SumsOfGradients* gradients_ = nullptr;
    Tally tally_;
    Owned<NormSquares<T>> squares_; ///< null: the clipping needs no norm
    LossScaleRun loss_scale_;
    OptimizerState<T> state_;
    void* model_;
    std::string (*label_)(void* model, std::size_t parameter);
    void (*age_copy_)(void* model); ///< null: the model computes with its parameters
    double learning_rate_ = 0;
    double norm_ = 0;
    std::uint64_t applied_ = 0;
    int repeated_ = 0;      ///< times that this update was collected again
    int large_from_;        ///< sums of elements below 2^large_from_ cannot overflow
    bool left_out_ = false; ///< the update was left out after its gradients were summed
};

template <class T>
template <class World, class Model, class Policies, class Sharding, class Computes>
Update<T>::Update(World& world, Model& model, const Policies& policies, const Sharding&, Computes& kernels)
    : world_(&world), kernels_(&kernels), policies_(new UpdatePoliciesOf<T, Computes, Policies>(policies, kernels)),
      facts_(policies_->facts), on_grid_(Policies::Summation::reproducible),
      inspects_(facts_.inspects && !(on_grid_ && facts_.only_finite)),
      tally_(world, facts_, Parts(model), new typename Policies::Summation::Totals()), loss_scale_(*policies_),
      model_(&model),
      label_([](void* of, std::size_t parameter) { return parameter_label(*static_cast<Model*>(of), parameter); }),
      age_copy_(may_have_copy<Model> ? +[](void* of) { age_copy(*static_cast<Model*>(of)); } : nullptr),
      large_from_(std::numeric_limits<T>::max_exponent - 1 - room_for_weights -
                  static_cast<int>(std::bit_width(static_cast<unsigned>(world.size())))) {
    using Summation = typename Policies::Summation;
    // A device's gradients travel through the host.
    constexpr bool on_host = requires { requires CompressionRunFor<World, T, Computes, Policies>::type::is_on_host; };
    using Summed =
        decltype(summed_types<may_have_owners<Policies, Sharding>, Computes::on_device, !on_host, T,
                              typename Summation::template Gradient<T>::Sum, typename Policies::Compression>());
    reducer_.take(make_reducer_run<Summed>(world, policies.reducer));
    if constexpr (Policies::Clipping::measures_norm)
        squares_.take(squares_for<typename Summation::template Squares<T>>(kernels));
    keep_native<Collective::all_reduce, Collective::broadcast>(world);
}

template <class T>
void Update<T>::begin() {
    by_itself_ = mode_->alone(applied_);
    nothing_travels_ = by_itself_ || world_->size() == 1;
    tally_.begin();
    norm_ = 0;
    left_out_ = false;
    loss_scale_.begin();
    scaled_by_ = loss_scale_.scale();
    divisor_ = 0;
    if (inspects_) kernels_->begin_inspection();
    begin_update();
}

template <class T>
void Update<T>::after_call(double loss, bool last) {
    if (facts_.scales) loss_scale_.check(*pass_);
    after_pass();
    const Share share = weigh();
    tally_.add(*micro_, share, loss, pass_->counted_tokens());
    keep(share.multiplier, last);
}

template <class T>
UpdateReport Update<T>::close(RatePoint point, std::int64_t epoch) {
    const std::uint64_t number = applied_; // `apply` increments it
    const auto traced = [&](Activity what, auto verb) {
        const TraceSpan span(log_, what, number);
        return verb();
    };
    if (age_copy_ != nullptr) age_copy_(model_);
    point.update = number;
    learning_rate_ = policies_->checked_rate(point);
    if (by_itself_) mode_->before();

    traced(Activity::exchange, [&] { start(); });                          // what was not ready before
    Verdict verdict = traced(Activity::exchange, [&] { return agree(); }); // losses, weights, findings of all ranks
    traced(Activity::exchange, [&] { finish(); });                         // the sums are at their owners
    if (verdict == Verdict::commit) {
        verdict = traced(mode_->optimizes ? Activity::apply : Activity::exchange, [&] { return mode_->apply(); });
        traced(Activity::exchange, [&] { mode_->publish(); });
    } else {
        verdict = mode_->discard(verdict);
    }
    if (by_itself_ && mode_->after(verdict)) synchronise();

    UpdateReport report{.committed = verdict == Verdict::commit,
                        .alone = by_itself_,
                        .learning_rate = learning_rate_,
                        .gradient_norm = norm_,
                        .loss_scale = scaled_by_,
                        .number = applied_,
                        .epoch = epoch};
    tally_.tell(report);
    mode_->tell(report);
    return report;
}

template <class T>
void Update<T>::synchronise() {
    if (mode_->agrees) return;
    if (age_copy_ != nullptr) age_copy_(model_);
    const TraceSpan span(log_, Activity::exchange, applied_);
    mode_->synchronise();
}

template <class T>
bool Update<T>::accepts(const UpdateReport& report, std::string_view operation) {
    if (on_grid_ && must_repeat()) return false;
    if (report.committed || loss_scale_.backed_off()) return true; // the next update may succeed
    if (const std::size_t parameter = gradients_->misfit(); parameter != no_offender && !facts_.skips_misfit)
        throw agreed_error(misfit(label_(model_, parameter), applied_ + 1, operation));
    const Offence& offence = tally_.offence();
    const bool skips = facts_.inspects ? !facts_.stops : facts_.skips_misfit;
    if (squares_ && !detail::is_finite(report.gradient_norm) && !(facts_.inspects && skips))
        refuse_update(no_norm(report.gradient_norm, facts_.clipping, applied_ + 1, operation), mode_->agrees);
    if (guards_sums() && offence.any() && !skips)
        refuse_update(not_finite(offence, offence.sum ? -1 : world_->world_rank(offence.rank),
                                 offence.loss || offence.elsewhere ? "" : label_(model_, offence.parameter),
                                 applied_ + 1, operation),
                      mode_->agrees);
    return true;
}

template <class T>
bool Update<T>::must_repeat() {
    constexpr int most_repeats = 8; // with a wider grid another part may become visible that was lost
    const std::size_t parameter = gradients_->misfit();
    if (parameter == no_offender) {
        repeated_ = 0;
        return false;
    }
    if (!gradients_->only_new() && !facts_.widens) return false;
    if (++repeated_ > most_repeats)
        refuse_input({"Reproducible: the gradient of ", label_(model_, parameter), " still does not fit a grid after ",
                      most_repeats,
                      " repetitions of the update; expected a model that gives the same gradients for the same batch "
                      "(verify_reproducible checks it)"});
    return true;
}

template <class T>
Verdict Update<T>::agree() {
    if (const std::size_t found = gradients_->first_not_finite(); found != no_offender) tally_.note_offender(found);
    if (inspects_) {
        const Findings told = kernels_->findings();
        if (told.offender != no_offender) note_offender(told.offender);
        if (told.large) tally_.note_large();
    }
    const Verdict verdict = tally_.agree(nothing_travels_);
    if (tally_.in_gradients() && verdict == Verdict::skip) loss_scale_.back_off();
    if (verdict != Verdict::commit) return verdict;
    if (!gradients_->agree(*world_, tally_.micro_batches())) return Verdict::skip;
    divisor_ = tally_.sums().divisor;
    const auto inverse = static_cast<T>(1 / (divisor_ * loss_scale_.scale()));
    if (!(inverse > 0 && detail::is_finite(inverse)))
        refuse_divisor(facts_.weighing, tally_.sums().micro_batches, divisor_, facts_.needs_tokens);
    if (nothing_travels_) note_weight(factor_left());
    if ((facts_.may_overflow && !nothing_travels_) ||
        (on_grid_ && gradients_->above(tally_.micro_batches()) >= std::numeric_limits<T>::max_exponent))
        tally_.note_large();
    return Verdict::commit;
}

template <class T>
Verdict Update<T>::apply() {
    if (guards_sums() && tally_.large() && !sums_are_finite()) return leave_out();
    double scale = factor_left() / (divisor_ * loss_scale_.scale());
    if (squares_) {
        norm_ = measure_norm(scale);
        if (!detail::is_finite(norm_)) return leave_out();
        scale *= policies_->clip_factor(norm_);
    }
    update_owned({learning_rate_, ++applied_, scale});
    gradients_->adapt();
    loss_scale_.grow();
    return Verdict::commit;
}

template <class T>
Verdict Update<T>::leave_out() {
    loss_scale_.back_off();
    discard();
    left_out_ = true;
    return Verdict::skip;
}

template <class T>
bool Update<T>::sums_are_finite() {
    std::size_t first = no_offender;
    kernels_->begin_inspection();
    each_gradient([&](std::size_t parameter, std::size_t flat, const T* values, std::size_t n) {
        const Findings found = kernels_->look(values, n, flat, std::numeric_limits<T>::max_exponent);
        if (found.offender != no_offender) first = std::min(first, parameter);
    });
    if (const std::size_t found = kernels_->findings().offender; found != no_offender)
        first = layout_->element_at(found).parameter;
    return tally_.agree_on_sums(first, owned_slices_->cut() && !nothing_travels_);
}

template <class T>
double Update<T>::measure_norm(double scale) {
    squares_->begin(gradients_->above(tally_.micro_batches()), most_gradients());
    each_gradient([&](std::size_t, std::size_t, const T* values, std::size_t n) {
        squares_->add(std::span<const T>(values, n));
    });
    squares_->finish();
    if (owned_slices_->cut()) squares_->agree(*world_);
    double sum = squares_->value();
    tally_.parts().sum({&sum, 1});
    return detail::root_of(sum) * scale;
}

} // namespace detail
UNISONO_NAMESPACE_END
