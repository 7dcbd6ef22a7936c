#pragma once

/// \file
/// One update: from the gradients of this rank's micro-batches to the parameters of all ranks.
///
/// An exchange derives from the *store* of its model. The store holds the parameters and the
/// gradient, and moves them. `WholeStore` (exchange/whole.hpp) is for models whose memory is whole
/// on every rank. `UnitStore` (extensions/sharded/store.hpp) is for models in units, which are
/// sharded over the ranks. A store has
/// - for a micro-batch: `before_pass`, `make_pass`, `after_pass`, and `keep`, which adds its
///   gradient to the store;
/// - `start`, which starts the sums over the ranks, and `finish`, which returns when the owners
///   have them;
/// - `sums_of_gradients()` (exchange/sums.hpp), `each_gradient` for norms, `each_owned` for the
///   optimizer, `publish_owned`;
/// - `flat()`, the parameters, and `owned_slices()`, their owners; `begin_update` and `forget`;
/// - `restart`, which drops what a compression has left over, because another training continues
///   here.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/finite.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/trainer/exchange/base.hpp"
#include "unisono/trainer/exchange/offence.hpp"
#include "unisono/trainer/exchange/whole.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/place.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One update, step by step.
template <class Store>
class Exchange : public Store {
public:
    using typename Store::Context;
    using typename Store::Place;
    using typename Store::T;

    template <class World, class Model, class Policies, class Sharding>
    Exchange(World& world, Model& model, const Policies& policies, const Sharding& sharding)
        : Store(world, model, policies, sharding), parts_(model), loss_scale_(*policies_),
          state_(place_.template state<T>(policies_->state(), this->owned_slices().owned_count())) {
        if constexpr (Policies::Clipping::measures_norm) measure_norm_ = &Exchange::measure_norm;
    }
    ~Exchange() { place_.settle(); } // before the memory is released

    // --- collecting ---

    /// Starts an update. `alone`: the update uses this rank's gradients only, and no other rank
    /// sees them.
    void begin(bool alone = false) {
        alone_ = alone || world_->size() == 1;
        sums_ = {};
        totals_.begin();
        offence_ = {};
        untold_ = false;
        norm_ = 0;
        large_ = false;
        refused_ = false;
        loss_scale_.begin();
        scaled_by_ = loss_scale_.scale();
        divisor_ = 0;
        if (this->inspects_) place_.begin_inspection();
        this->begin_update();
    }

    /// Runs the model on one micro-batch. `last`: this rank adds no other micro-batch to this
    /// update, so a gradient may travel as soon as the model reports it as ready.
    template <class Model, class Batch>
    void add(Model& model, const Batch& batch, double samples, PassFacts facts, bool last) {
        this->before_pass(last);
        MicroBatchFacts micro{samples, 0, gradient_kind_of<Model>};
        if (!facts_.needs_tokens) facts.weight = policies_->share(micro).multiplier;
        facts.loss_scale = loss_scale_.scale();
        auto pass = this->template make_pass<Model>(facts, last);
        micro_ = &micro;
        pass_ = &pass;
        const double loss = call(model, batch, pass);
        if constexpr (unisono::model<Model>) look_at_gradients(model, samples);
        if (facts_.scales) loss_scale_.check(pass);
        this->after_pass();
        const Share share = this->weigh();
        if (facts_.needs_tokens && !pass.counted_tokens()) untold_ = true;
        const bool counts = share.multiplier != 0; // a loss of weight 0 may be 0 / 0
        totals_.add(sums_, share, counts ? loss : 0);
        sums_.micro_batches += 1;
        sums_.samples += samples;
        if (micro.tokens != 0)
            // Rounded, so that the sum does not depend on the order.
            sums_.tokens += detail::rounded_to_even(micro.tokens * 0x1p20) * 0x1p-20;
        if (facts_.inspects && counts && !detail::is_finite(loss)) offence_.note({world_->rank(), 0, true});
        this->keep(share.multiplier, last);
    }

    // --- the phases of an update after `start` ---

    /// Combines weights, losses and the guards' findings of all ranks, in one small all_reduce.
    Verdict agree();

    /// Runs the optimizer on what this rank owns. Commits, unless the sum of the gradients is not
    /// finite, or its norm is needed for clipping and is not finite. The verdict is the same on all
    /// ranks.
    Verdict apply();

    /// Sends the owners' parameters to all ranks.
    void publish() {
        if (!refused_) this->publish_owned();
    }

    /// Drops the update: parameters and optimizer state stay as they were.
    void discard() {
        this->forget();
        this->sums_of_gradients().widen();
    }

    // --- accessors ---

    /// The learning rate that the optimizer gets if the update commits.
    void set_learning_rate(double rate) { learning_rate_ = rate; }
    [[nodiscard]] double learning_rate() const { return learning_rate_; }
    [[nodiscard]] const UpdateSums& sums() const { return sums_; }
    /// The grids on which gradients are summed. Templates, since other sums have none.
    template <class = void>
    [[nodiscard]] auto& grids() {
        return this->sums_of_gradients().range();
    }
    template <class = void>
    [[nodiscard]] const auto& grids() const {
        return this->sums_of_gradients().range();
    }
    /// True if an offence that a guard finds ends the call with an error; false if only the update
    /// is left out.
    [[nodiscard]] bool stops_on_offence() const { return facts_.stops; }
    [[nodiscard]] const auto& state() const { return state_; }
    [[nodiscard]] auto& state() { return state_; }
    [[nodiscard]] std::uint64_t applied() const { return applied_; }
    /// Continues a training that has made `updates` updates.
    void restore_applied(std::uint64_t updates) {
        applied_ = updates;
        this->restart();
    }
    /// The elements that this rank updates, in flat order.
    [[nodiscard]] std::span<const Slice> owned() const { return this->owned_slices().owned(); }
    [[nodiscard]] const Parts& parts() const { return parts_; }
    [[nodiscard]] const auto& loss_scale() const { return loss_scale_; }
    [[nodiscard]] auto& loss_scale() { return loss_scale_; }
    /// True if this update's gradients are so large that sums may overflow. In an update that is
    /// `alone`, only this rank's gradients count.
    [[nodiscard]] bool large() const { return large_; }
    /// Notes that servers have left out the update, since the sum of this parameter's gradients is
    /// not finite.
    void note_sum(std::size_t parameter) {
        offence_ = {.rank = -1, .parameter = parameter, .loss = false, .elsewhere = false, .sum = true};
    }
    /// The norm of this update's gradient, if clipping measured it; else 0. The same on all ranks.
    [[nodiscard]] double gradient_norm() const { return norm_; }

private:
    /// Not inlined: the compiler then optimizes the model's loops without keeping the exchange's
    /// members in registers.
    template <class Model, class Batch, class GivenPass>
    [[gnu::noinline]] static double call(Model& model, const Batch& batch, GivenPass& pass) {
        return static_cast<double>(model(batch, pass));
    }

    /// Checks after a call of the model that its memory has not moved. After the first call on rank
    /// 0, warns if all gradients are zero.
    template <class Model>
    void look_at_gradients(Model& model, double samples) {
        this->flat().check_in_place(model);
        if constexpr (!model_on_device<Model>) {
            if (world_->rank() != 0 || applied_ != 0 || !(samples > 0) || std::exchange(looked_, true) ||
                this->has_started())
                return;
            if (this->flat().any_gradient()) return;
            const std::string text = concat({"unisono: warning: the model's first call left all ", this->flat().count(),
                                             " elements of gradients() at zero (on rank 0); expected that model(batch, "
                                             "pass) adds the gradient there\n"});
            static_cast<void>(std::fputs(text.c_str(), stderr));
        }
    }

    /// Leaves the update out after its gradients were summed.
    Verdict refuse();
    /// Looks at the sums of all gradients. Returns false, on all ranks, if one is not finite.
    /// Called only if gradients are so large that sums may overflow; other updates pay nothing.
    [[gnu::noinline]] bool sums_are_finite();

    /// Measures the norm: the same bits on all ranks.
    double measure_norm(double scale);

    /// All ranks together have no sample, or no token, of what their weights count.
    [[nodiscard]] bool weighs_nothing() const {
        return (facts_.needs_samples && sums_.samples == 0) || (facts_.needs_tokens && sums_.tokens == 0 && !untold_);
    }
    /// Refuses a sum of weights by which gradients of this type cannot be divided.
    void check_divisor() const;

    using Store::alone_, Store::divisor_, Store::facts_, Store::large_, Store::micro_, Store::offence_, Store::pass_,
        Store::place_, Store::policies_, Store::scaled_by_, Store::world_;
    Parts parts_;
    typename Context::Summation::Totals totals_;
    UpdateSums sums_;
    LossScaleRun loss_scale_;
    typename Place::template State<T> state_;
    double learning_rate_ = 0;
    double (Exchange::*measure_norm_)(double) = nullptr; ///< null: the clipping needs no norm
    double norm_ = 0;
    std::uint64_t applied_ = 0;
    bool untold_ = false;  ///< a micro-batch of this rank, weighed by tokens, did not count them
    bool looked_ = false;  ///< the gradients of the first call were checked
    bool refused_ = false; ///< the update was left out after its gradients were summed
};

template <class Store>
Verdict Exchange<Store>::agree() {
    if (const std::size_t found = this->sums_of_gradients().first_not_finite(); found != no_offender)
        this->note_offender(found);
    if (this->inspects_) {
        const Findings told = place_.findings();
        if (told.offender != no_offender)
            this->note_offender(this->flat().layout().element_at(told.offender).parameter);
        large_ = large_ || told.large;
    }
    sums_.offenders = offence_.rank >= 0 ? 1 : 0;
    sums_.large = large_ ? 1 : 0;
    if (!alone_ || world_->size() == 1) totals_.agree(*world_, sums_, parts_.order());
    if (sums_.offenders > 0 && !alone_) agree_on_offence(*world_, offence_);
    const bool in_gradient = sums_.offenders > 0 && !offence_.loss;
    const auto [offenders, in_gradients, large] =
        parts_.sum(std::array{sums_.offenders, in_gradient ? 1.0 : 0.0, sums_.large});
    if (offenders > 0) {
        if (offence_.rank < 0) offence_ = {.rank = 0, .parameter = 0, .loss = true, .elsewhere = true};
        if (in_gradients > 0) loss_scale_.back_off();
        return Verdict::skip;
    }
    if (sums_.micro_batches == 0 || (sums_.divisor == 0 && weighs_nothing())) return Verdict::empty;
    if (!this->sums_of_gradients().agree(*world_, static_cast<std::int64_t>(sums_.micro_batches))) return Verdict::skip;
    check_divisor();
    divisor_ = sums_.divisor;
    if (alone_) this->note_weight(this->left_over());
    large_ = large_ || large > 0 || (facts_.may_overflow && !alone_);
    if constexpr (Store::on_grid)
        large_ = large_ || grids().above_sums(static_cast<std::int64_t>(sums_.micro_batches)) >=
                               std::numeric_limits<T>::max_exponent;
    return Verdict::commit;
}

template <class Store>
Verdict Exchange<Store>::apply() {
    if (this->guards_sums() && large_ && !sums_are_finite()) return refuse();
    double scale = this->left_over() / (sums_.divisor * loss_scale_.scale());
    if (measure_norm_ != nullptr) {
        norm_ = (this->*measure_norm_)(scale);
        if (!detail::is_finite(norm_)) return refuse();
        scale *= policies_->clip_factor(norm_);
    }
    const OptimizerStep step{learning_rate_, ++applied_, scale};
    this->each_owned([&](std::size_t state, std::size_t n, T* parameters, T* gradients) {
        policies_->update(place_, state_.slice(state, n), parameters, gradients, step);
    });
    this->sums_of_gradients().follow();
    loss_scale_.grow();
    return Verdict::commit;
}

template <class Store>
Verdict Exchange<Store>::refuse() {
    loss_scale_.back_off();
    discard();
    refused_ = true;
    return Verdict::skip;
}

template <class Store>
bool Exchange<Store>::sums_are_finite() {
    std::size_t first = no_offender;
    place_.begin_inspection();
    this->each_gradient([&](std::size_t parameter, std::size_t flat, const T* values, std::size_t n) {
        place_.inspect(FiniteGuard{}, values, n, flat, std::numeric_limits<T>::max_exponent,
                       [&](std::size_t) { first = std::min(first, parameter); });
    });
    if (const std::size_t found = place_.findings().offender; found != no_offender)
        first = this->flat().layout().element_at(found).parameter;
    if (this->owned_slices().cut() && !alone_) first = agree_on_sums(*world_, first);
    const bool here = first != no_offender;
    if (parts_.sum(std::array{here ? 1.0 : 0.0})[0] == 0) return true;
    note_sum(here ? first : 0);
    offence_.elsewhere = !here;
    return false;
}

template <class Store>
double Exchange<Store>::measure_norm(double scale) {
    typename Context::Summation::Squares squares(this->sums_of_gradients(),
                                                 static_cast<std::int64_t>(sums_.micro_batches));
    auto measured = place_.template measure<T>(squares, this->most_gradients());
    this->each_gradient(
        [&](std::size_t, std::size_t, const T* values, std::size_t n) { measured.add(std::span<const T>(values, n)); });
    measured.finish();
    if (this->owned_slices().cut()) squares.agree(*world_);
    return detail::root_of(parts_.sum(std::array{squares.value()})[0]) * scale;
}

template <class Store>
void Exchange<Store>::check_divisor() const {
    const auto inverse = static_cast<T>(1 / (sums_.divisor * loss_scale_.scale()));
    if (inverse > 0 && detail::is_finite(inverse)) return;
    refuse_input({"weighing ", facts_.weighing, ": the weights of ", static_cast<std::uint64_t>(sums_.micro_batches),
                  " micro-batches add up to ", number_text(sums_.divisor, std::chars_format::general, 6),
                  "; expected more than 0, so that gradients can be divided by it",
                  (facts_.needs_tokens ? " (does the model call pass.count_tokens?)" : "")});
}

/// An exchange with the type of its group, for the run of an update policy (update/update.hpp).
template <class WorldType, class Store>
class Training final : public Exchange<Store> {
public:
    using World = WorldType;

    template <class Model, class Policies, class Sharding>
    Training(World& world, Model& model, const Policies& policies, const Sharding& sharding)
        : Exchange<Store>(world, model, policies, sharding), group_(&world) {}
    [[nodiscard]] World& world() const { return *group_; }

private:
    World* group_;
};

} // namespace detail
UNISONO_NAMESPACE_END
