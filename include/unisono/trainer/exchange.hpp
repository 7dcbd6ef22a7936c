#pragma once

/// \file
/// One update: from the gradients of this rank's micro-batches to the parameters of all ranks.

#include "unisono/compression/compression.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/layout/bucket_facts.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/reducer/reducer.hpp"
#include "unisono/trainer/device/wire.hpp"
#include "unisono/trainer/exchange/bucket_sums.hpp"
#include "unisono/trainer/exchange/extents.hpp"
#include "unisono/trainer/exchange/gradient_sum.hpp"
#include "unisono/trainer/exchange/loss_scale_run.hpp"
#include "unisono/trainer/exchange/offence.hpp"
#include "unisono/trainer/exchange/publication.hpp"
#include "unisono/trainer/exchange/readiness.hpp"
#include "unisono/trainer/exchange/shares.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/parameter_matrices.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/place.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One update, in verbs; the training that an update's run is given (update/update.hpp).
/// `Context` bundles the types World, Element, Place, Reducer, Compression, Sharding, Guard, Clipping, Scaling, Optimizer,
/// Weighing, Summation; `owned`: slices have owners.
template <class Context>
class Exchange {
public:
    using World = typename Context::World;
    using T = typename Context::Element;
    using Element = T;
    using Place = typename Context::Place;
    static constexpr bool compresses = Context::Compression::compresses;
    using ReducerRun = decltype(std::declval<const Context&>().reducer.start(std::declval<World&>()));

    template <class Model>
    Exchange(World& world, Model& model, const Context& policies, const Buckets& buckets)
        : world_(&world), policies_(policies), flat_(model, buckets), place_(world, model),
          gradient_(world, flat_, place_, policies_.summation), kind_(gradient_kind_of<Model>),
          publication_(world, flat_, place_), run_(policies_.reducer.start(world)),
          wire_(start_wire<T>(place_, policies_.compression, world, flat_.buckets(),
                              parameter_matrices(model, flat_.layout()))),
          extents_(world.rank(), world.size()), parts_(model), loss_scale_(policies_.scaling),
          readiness_(flat_.layout()) {
        for (std::size_t b = 0; b < bucket_count(); ++b) {
            const Slice bucket = flat_.bucket(b);
            const BucketFacts facts{b, bucket.count, sizeof(T), world.size()};
            if constexpr (Context::Reducer::gives_owners) extents_.add(bucket, policies_.reducer.owners(facts));
            else extents_.add(bucket, policies_.sharding.owners(facts));
        }
        extents_.close();
        state_ = place_.template state<T>(policies_.optimizer.state(), extents_.owned_count());
        operations_.reserve(extents_.all().size());
    }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange() { place_.settle(); } // before the images go

    // --- collecting ------------------------------------------------------------------------------------------------

    /// Begins an update. `alone`: of this rank's own gradients only, which nobody else hears of.
    void begin(bool alone = false) {
        alone_ = alone || world_->size() == 1;
        sums_ = {};
        totals_.begin();
        offence_ = {};
        norm_ = 0;
        loss_scale_.begin();
        if constexpr (Context::Guard::inspects) place_.begin_inspection();
        next_bucket_ = 0;
        gradient_.begin(alone_);
    }

    /// Runs the model on one micro-batch. `last`: no other follows on this rank in this update, so that buckets may
    /// travel as soon as the model says that they are ready.
    template <class Model, class Batch>
    void add(Model& model, const Batch& batch, double samples, PassFacts facts, bool last) {
        gradient_.before_pass();
        MicroBatchFacts micro{samples, 0, gradient_kind_of<Model>};
        if constexpr (!Context::Weighing::needs_tokens) facts.weight = policies_.weighing.share(micro).multiplier;
        facts.loss_scale = loss_scale_.scale();
        const bool overlap = last && !alone_;
        if (overlap) readiness_.expect();
        Pass pass(facts, overlap ? &Exchange::on_ready : nullptr, this);
        micro_ = &micro;
        pass_ = &pass;
        const double loss = call(model, batch, pass);
        loss_scale_.check(pass);
        micro.tokens = pass.tokens();
        const Share share = checked_share(policies_.weighing, micro);
        totals_.add(sums_, share, loss);
        sums_.micro_batches += 1;
        sums_.samples += samples;
        sums_.tokens += micro.tokens;
        if constexpr (Context::Guard::inspects) {
            if (!std::isfinite(loss)) offence_.note({world_->rank(), 0, true});
        }
        if (!gradient_.held()) gradient_.hold(share.multiplier);
        if (last) return;
        if constexpr (inspects_parts) flat_.visit({0, flat_.count()}, [&](const Stretch<T>& one) { inspect(one); });
        gradient_.drain();
    }

    [[nodiscard]] const UpdateSums& sums() const { return sums_; }
    [[nodiscard]] const Offence& offence() const { return offence_; }
    [[nodiscard]] const auto& grids() const { return gradient_.sums().range(); }
    [[nodiscard]] auto& grids() { return gradient_.sums().range(); }
    [[nodiscard]] auto& gradients() { return gradient_; }

    /// For sums on a grid: each rank hosts at most one micro-batch of this update, as all ranks know.
    void expect_one() {
        if constexpr (straight)
            gradient_.expect_one(policies_.weighing.share({.samples = 1, .tokens = 0, .kind = kind_}).multiplier);
    }

    /// What the optimizer will be told if the update commits.
    void set_learning_rate(double rate) { learning_rate_ = rate; }
    [[nodiscard]] double learning_rate() const { return learning_rate_; }
    /// What a guard refuses ends the call, instead of leaving the update out.
    [[nodiscard]] bool stops_on_offence() const {
        if constexpr (requires { policies_.guard.on_offence(); })
            return policies_.guard.on_offence() != OnOffence::skip;
        else return false;
    }

    // --- the verbs of an update ------------------------------------------------------------------------------------

    /// Begins to sum the buckets that the backward pass has not begun already, in bucket order; does not wait.
    void start() {
        for (; next_bucket_ < bucket_count(); ++next_bucket_) start_bucket(next_bucket_);
    }

    /// Weights, loss and the guard's findings of all ranks, in one small all_reduce.
    Verdict agree() {
        if constexpr (on_grid) {
            const std::size_t found = gradient_.sums().first_not_finite();
            if (found != no_offender) offence_.note({world_->rank(), found, false});
        } else if constexpr (Context::Guard::inspects) {
            if (const std::size_t found = place_.offender(); found != no_offender) note_offender(found);
        }
        sums_.offenders = offence_.rank >= 0 ? 1 : 0;
        if (!alone_ || world_->size() == 1) totals_.agree(*world_, sums_);
        if (sums_.offenders > 0 && !alone_) agree_on_offence(*world_, offence_);
        const bool in_gradient = sums_.offenders > 0 && !offence_.loss;
        const auto [offenders, in_gradients] =
            parts_.sum(std::array{static_cast<double>(sums_.offenders), in_gradient ? 1.0 : 0.0});
        if (offenders > 0) {
            if (offence_.rank < 0) offence_ = {.rank = 0, .parameter = 0, .loss = true, .elsewhere = true};
            if (in_gradients > 0) loss_scale_.back_off();
            return Verdict::skip;
        }
        if (sums_.micro_batches == 0) return Verdict::empty;
        if (!gradient_.sums().agree(*world_, static_cast<std::int64_t>(sums_.micro_batches))) return Verdict::skip;
        check_divisor<typename Context::Weighing>(sums_);
        return Verdict::commit;
    }

    /// Waits until the sums have arrived at their owners.
    void finish() {
        for (Operation& operation : operations_) operation.wait();
        operations_.clear();
        if constexpr (compresses) wire_.finish();
    }

    /// Commits, unless clipping finds that the gradient has no finite norm; all ranks alike.
    Verdict apply() {
        double scale = gradient_.left_over() / (sums_.divisor * loss_scale_.scale());
        if constexpr (Context::Clipping::measures_norm) {
            norm_ = measure_norm(scale);
            if (!std::isfinite(norm_)) {
                loss_scale_.back_off();
                discard();
                return Verdict::skip;
            }
            scale *= policies_.clipping.factor(norm_);
        }
        const bool in_place = gradient_.in_place();
        if constexpr (Context::owned) {
            if (extents_.cut()) publication_.begin(gradient_.numbers_in_use());
        }
        const bool zero_all = in_place && extents_.cut(); // others' slices hold what nobody needs
        const OptimizerStep step{learning_rate_, ++applied_, scale};
        std::size_t state = 0;
        for (const Slice& slice : extents_.owned()) {
            flat_.visit(slice, [&](const Stretch<T>& stretch) {
                apply_to(stretch, state, in_place && !zero_all, step);
                state += stretch.count;
            });
        }
        if (zero_all) flat_.zero_gradients(place_.arithmetic());
        gradient_.clean();
        gradient_.sums().follow();
        loss_scale_.grow();
        return Verdict::commit;
    }

    /// Brings the owners' parameters to all ranks.
    void publish() {
        if constexpr (Context::owned) {
            if (!extents_.cut() || !std::isfinite(norm_)) return;
            publication_.start(run_, extents_.all(), operations_);
            finish();
            publication_.finish(extents_.all());
        }
    }

    /// Leaves parameters and optimizer state as they were.
    void discard() {
        gradient_.soil();
        if constexpr (compresses) {
            if (next_bucket_ != 0 && !alone_) wire_.forget();
        }
        gradient_.sums().widen();
    }

    // --- what it is made of ----------------------------------------------------------------------------------------

    [[nodiscard]] World& world() const { return *world_; }
    [[nodiscard]] const FlatModel<T>& flat() const { return flat_; }
    [[nodiscard]] const Place& place() const { return place_; }
    [[nodiscard]] const auto& state() const { return state_; }
    [[nodiscard]] auto& state() { return state_; }
    [[nodiscard]] std::uint64_t applied() const { return applied_; }
    void restore_applied(std::uint64_t updates) { applied_ = updates; }
    [[nodiscard]] std::span<const OwnedExtent> extents() const { return extents_.all(); }
    [[nodiscard]] std::span<const Slice> owned() const { return extents_.owned(); }
    [[nodiscard]] ReducerRun& run() { return run_; }
    /// Begins to sum elements in memory of `place().allocate` over all ranks.
    [[nodiscard]] Operation start_sum(T* values, std::size_t count) {
        place_.order();
        return run_.sum(*world_, place_.view(values, count));
    }
    [[nodiscard]] auto& wire() { return wire_; }
    [[nodiscard]] const auto& loss_scale() const { return loss_scale_; }
    [[nodiscard]] auto& loss_scale() { return loss_scale_; }
    /// Of this update's gradient, where clipping measured it; else 0. The same on all ranks.
    [[nodiscard]] double gradient_norm() const { return norm_; }
    [[nodiscard]] const Context& policies() const { return policies_; }
    /// Bytes beside the model's own and the optimizer's: images of gradients and parameters.
    [[nodiscard]] std::size_t image_bytes() const { return gradient_.bytes() + publication_.bytes() + wire_.bytes(); }

private:
    /// Not inlined: the model's loops are compiled as in a function of their own, without our members in the way.
    template <class Model, class Batch>
    [[gnu::noinline]] static double call(Model& model, const Batch& batch, Pass& pass) {
        return static_cast<double>(model(batch, pass));
    }

    // Overlap with the backward pass: a bucket starts when all its parameters are ready and all earlier buckets have started.

    static void on_ready(void* self, std::size_t parameter) { static_cast<Exchange*>(self)->ready(parameter); }

    void ready(std::size_t parameter) {
        if (parameter != Pass::no_parameter) note_ready(parameter);
        if (next_bucket_ != 0) world_->progress(); // what is under way needs this rank, too: to pass on, to add
    }

    void note_ready(std::size_t parameter) {
        const std::size_t bucket = readiness_.note(parameter);
        if (next_bucket_ != bucket || !readiness_.complete(bucket)) return;
        if (!gradient_.held()) {
            micro_->tokens = pass_->tokens();
            gradient_.hold(checked_share(policies_.weighing, *micro_).multiplier);
        }
        while (next_bucket_ < bucket_count() && readiness_.complete(next_bucket_)) start_bucket(next_bucket_++);
    }

    /// Makes a bucket's gradient ready to travel, looks at it, and begins to sum it.
    void start_bucket(std::size_t b) {
        const Slice bucket = flat_.bucket(b);
        if constexpr (inspects_parts) {
            if (gradient_.held()) flat_.visit(bucket, [&](const Stretch<T>& one) { inspect(one); });
        }
        T* const values = gradient_.settle(bucket, b + 1 == bucket_count());
        if constexpr (Context::Guard::inspects && !on_grid) {
            if (values != nullptr) inspect({bucket.first, bucket.count, nullptr, values + bucket.first});
            else flat_.visit(bucket, [&](const Stretch<T>& one) { inspect(one); });
        }
        if (alone_) return;
        if constexpr (compresses) {
            if constexpr (Context::owned) {
                BucketReduction<true, ReducerRun> to_owners{run_, extents_, b, bucket.first, operations_};
                wire_.begin(b, values + bucket.first, to_owners);
            } else {
                wire_.begin(b, values + bucket.first, run_);
            }
        } else if constexpr (!on_grid) {
            start_sums(b, values);
        } else if (values == nullptr) {
            start_sums(b, gradient_.array());
        } else if constexpr (straight) {
            for (const OwnedExtent& extent : extents_.of_bucket(b))
                operations_.push_back(gradient_.sum_straight(values, extent.slice, extent.owner));
        }
    }

    template <class E> // numbers, or images
    void start_sums(std::size_t b, E* values) {
        place_.order();
        const Slice bucket = flat_.bucket(b);
        start_bucket_sums<Context::owned>(run_, *world_, extents_, b, bucket.first,
                                          place_.view(values + bucket.first, bucket.count), operations_);
    }

    void inspect(const Stretch<T>& stretch) {
        place_.inspect(policies_.guard, stretch.gradients, stretch.count, stretch.flat,
                       [&](std::size_t found) { note_offender(stretch.flat + found); });
    }
    void note_offender(std::size_t flat) {
        offence_.note({world_->rank(), flat_.layout().element_at(flat).parameter, false});
    }

    /// The same bits on all ranks; sums on a grid become numbers on the way, so that they are read once more and no oftener.
    double measure_norm(double scale) {
        typename Context::Summation::Squares squares(gradient_.sums(), static_cast<std::int64_t>(sums_.micro_batches));
        auto measured = place_.template measure<T>(squares, flat_.layout().parameters() + extents_.all().size());
        for (const OwnedExtent& extent : extents_.all()) {
            if (!extents_.is_mine(extent)) continue;
            const bool counts = extents_.counts_here(extent);
            flat_.visit_by_parameter(extent.slice, [&](std::size_t, const Stretch<T>& one) {
                T* const gradients = gradient_.at(one);
                for (std::size_t at = 0, n = 0; at < one.count; at += n) {
                    n = std::min(Place::template chunk<T>, one.count - at);
                    gradient_.prepare(one.flat + at, gradients + at, n);
                    if (counts) measured.add(std::span<const T>(gradients + at, n));
                }
            });
        }
        measured.finish();
        if (extents_.cut()) squares.agree(*world_);
        return std::sqrt(parts_.sum(std::array{squares.value()})[0]) * scale;
    }

    /// In chunks that stay in the first cache until their gradients have been zeroed.
    void apply_to(const Stretch<T>& stretch, std::size_t state, bool zeroes, const OptimizerStep& step) {
        T* const gradients = gradient_.at(stretch);
        Place::in_chunks(stretch.parameters, stretch.count, [&](std::size_t at, std::size_t n) {
            if constexpr (!Context::Clipping::measures_norm) gradient_.prepare(stretch.flat + at, gradients + at, n);
            place_.update(policies_.optimizer, policies_.clipping, state_.slice(state + at, n), stretch.parameters + at,
                          gradients + at, step);
            if constexpr (Context::owned) publication_.note(stretch.flat + at, stretch.parameters + at, n);
            if (zeroes) place_.arithmetic().zero(std::span<T>(gradients + at, n));
        });
    }

    using Wire =
        decltype(start_wire<T>(std::declval<const Place&>(), std::declval<const typename Context::Compression&>(),
                               std::declval<World&>(), std::span<const Slice>(), std::span<const ParameterMatrix>()));
    [[nodiscard]] std::size_t bucket_count() const { return flat_.layout().buckets().size(); }

    using Gradients = GradientSum<World, T, Place, typename Context::Summation::template Sums<T, Place>>;
    static constexpr bool on_grid = Context::Summation::reproducible;
    /// Sums on a grid may go straight from the ranks' numbers, where the reducer combines those of all ranks at once.
    static constexpr bool straight = on_grid && World::transport_type::maps_peers && !Place::on_device &&
                                     !Context::Weighing::needs_samples && !Context::Weighing::needs_tokens &&
                                     requires { requires ReducerRun::combines_at_once; };
    /// The grid finds NaN and infinity by itself; a guard that looks for more sees each micro-batch's gradient.
    static constexpr bool inspects_parts =
        on_grid && Context::Guard::inspects && !requires { requires Context::Guard::only_finite; };

    World* world_;
    Context policies_;
    FlatModel<T> flat_;
    Place place_;
    Gradients gradient_;
    typename Context::Summation::Totals totals_;
    GradientKind kind_;
    Publication<World, T, Place> publication_;
    ReducerRun run_;
    Wire wire_;
    Extents extents_;
    Parts parts_;
    typename Place::template State<T> state_;
    std::vector<Operation> operations_;

    bool alone_ = false;
    UpdateSums sums_;
    Offence offence_;
    double learning_rate_ = 0;
    double norm_ = 0;
    LossScaleRun<typename Context::Scaling> loss_scale_;
    std::uint64_t applied_ = 0;
    std::size_t next_bucket_ = 0;
    Readiness readiness_;
    MicroBatchFacts* micro_ = nullptr;
    Pass* pass_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
