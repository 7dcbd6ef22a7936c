#pragma once

/// \file
/// One update: from the gradients of this rank's micro-batches to the parameters of all ranks.
///
/// `Update` knows neither the model nor the group's transport nor the policies, which it calls by
/// `UpdatePolicies` and `Carrier`. The store of a model derives from it, holds the parameters and
/// the gradient, and moves them: `WholeStore` (whole.hpp) if their memory is whole on every rank,
/// `UnitStore` (extensions/sharded/store.hpp) for models in units, which are sharded over the
/// ranks. `Training` (trainer/training.hpp) adds the model's call and the group's type.
///
/// A store also has
/// - `make_pass`, the argument of the model's call;
/// - `start`, which starts the sums over the ranks, and `finish`, which returns when the owners
///   have them;
/// - `flat()`, the parameters.

#include "unisono/collective/of_core.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/finite.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/trainer/exchange/carrier.hpp"
#include "unisono/trainer/exchange/offence.hpp"
#include "unisono/trainer/exchange/owned_slices.hpp"
#include "unisono/trainer/exchange/sums.hpp"
#include "unisono/trainer/exchange/update_policies.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/place.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `ElementType`: of the parameters. `PlaceType`: the memory of gradients and optimizer state
/// (trainer/place.hpp).
template <class ElementType, class PlaceType>
class Update {
public:
    using Element = ElementType;
    using T = ElementType;
    using Place = PlaceType;

    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    virtual ~Update() = default;

    // --- collecting ---

    /// Starts an update. `alone`: the update uses this rank's gradients only, and no other rank
    /// sees them.
    void begin(bool alone = false);

    /// Before the model's call on a micro-batch. `last`: this rank adds no other micro-batch to
    /// this update, so a gradient may travel as soon as the model reports it as ready.
    void before_call(MicroBatchFacts& micro, PassFacts& facts, bool last);
    /// After it, with the loss that it has returned.
    void after_call(double loss, bool last);

    // --- the phases of an update after the store's `start` ---

    /// Combines weights, losses and the guards' findings of all ranks, in one small all_reduce.
    Verdict agree();

    /// Runs the optimizer on what this rank owns. Commits, unless the sum of the gradients is not
    /// finite, or its norm is needed for clipping and is not finite. The verdict is the same on all
    /// ranks.
    Verdict apply();

    /// Sends the owners' parameters to all ranks.
    void publish() {
        if (!refused_) publish_owned();
    }

    /// Drops the update: parameters and optimizer state stay as they were.
    void discard() {
        forget();
        sums_of_gradients().widen();
    }

    // --- accessors ---

    [[nodiscard]] const Place& place() const { return place_; }
    [[nodiscard]] const UpdatePolicies<T, Place>& policies() const { return *policies_; }
    [[nodiscard]] Carrier& carrier() { return *carrier_; }
    [[nodiscard]] const OwnedSlices& owned_slices() const { return *owned_slices_; }
    /// The elements that this rank updates, in flat order.
    [[nodiscard]] std::span<const Slice> owned() const { return owned_slices_->owned(); }
    [[nodiscard]] const Parts& parts() const { return parts_; }
    [[nodiscard]] const auto& state() const { return state_; }
    [[nodiscard]] auto& state() { return state_; }
    [[nodiscard]] const LossScaleRun& loss_scale() const { return loss_scale_; }
    [[nodiscard]] LossScaleRun& loss_scale() { return loss_scale_; }
    /// The grids on which gradients are summed; only for sums on a grid.
    [[nodiscard]] GridRange& grids() { return *sums_of_gradients().grids(); }

    /// The learning rate that the optimizer gets if the update commits.
    void set_learning_rate(double rate) { learning_rate_ = rate; }
    [[nodiscard]] double learning_rate() const { return learning_rate_; }
    [[nodiscard]] std::uint64_t applied() const { return applied_; }
    /// Continues a training that has made `updates` updates.
    void restore_applied(std::uint64_t updates) {
        applied_ = updates;
        restart();
    }

    [[nodiscard]] const UpdateSums& sums() const { return sums_; }
    [[nodiscard]] const Offence& offence() const { return offence_; }
    /// Notes that servers have left out the update, since the sum of this parameter's gradients is
    /// not finite.
    void note_sum(std::size_t parameter) {
        offence_ = {.rank = -1, .parameter = parameter, .loss = false, .elsewhere = false, .sum = true};
    }
    /// The norm of this update's gradient, if clipping measured it; else 0. The same on all ranks.
    [[nodiscard]] double gradient_norm() const { return norm_; }
    /// True if this update's gradients are so large that sums may overflow. In an update that is
    /// `alone`, only this rank's gradients count.
    [[nodiscard]] bool large() const { return large_; }
    /// True if sums of gradients that overflow must not become parameters.
    [[nodiscard]] bool guards_sums() const { return facts_.inspects || on_grid_; }
    /// True if an offence that a guard finds ends the call with an error; false if only the update
    /// is left out.
    [[nodiscard]] bool stops_on_offence() const { return facts_.stops; }

protected:
    /// `policies`: the trainer's, which must outlive this. `sharding`: who owns the parameters.
    template <class World, class Model, class Policies, class Sharding>
    [[gnu::cold]] Update(World& world, Model& model, const Policies& policies, const Sharding&);

    /// A store's constructor says where the parameters are in flat order, and who owns them. Both
    /// must live as long as the store.
    void begin_store(const Layout& layout, const OwnedSlices& owned) {
        layout_ = &layout;
        owned_slices_ = &owned;
        state_ = place_.template state<T>(policies_->state(), owned.owned_count());
    }

    // --- what a store does ---

    virtual void begin_update() = 0;
    virtual void before_pass(bool last) = 0;
    virtual void after_pass() {}
    /// Adds a micro-batch's gradient, of weight `multiplier`, to those of this update.
    virtual void keep(double multiplier, bool last) = 0;
    [[nodiscard]] virtual SumsOfGradients& sums_of_gradients() = 0;
    /// The factor that the optimizer must still apply to gradients.
    [[nodiscard]] virtual double left_over() const { return 1; }
    /// Calls visit(parameter, flat, values, n) for the sum of the gradients: for each element on
    /// one rank if slices have owners, else on all ranks.
    using GradientVisit = FunctionRef<void(std::size_t, std::size_t, const T*, std::size_t)>;
    virtual void each_gradient(GradientVisit visit) = 0;
    /// An upper bound of the number of these calls on a device.
    [[nodiscard]] virtual std::size_t most_gradients() const = 0;
    /// Calls `update_chunk` for the elements that this rank updates.
    virtual void update_owned(const OptimizerStep& step) = 0;
    virtual void publish_owned() = 0;
    /// Drops this update's gradients.
    virtual void forget() = 0;
    /// Drops what a compression has left over, because another training continues here.
    virtual void restart() {}

    // --- what a store calls ---

    /// `state`: index of the first element among owned elements.
    void update_chunk(const OptimizerStep& step, std::size_t state, std::size_t n, T* parameters, T* gradients) {
        policies_->update(place_, state_.slice(state, n), parameters, gradients, step);
    }
    /// The share of the micro-batch in progress, computed from the tokens counted so far.
    Share weigh() {
        micro_->tokens = pass_->tokens();
        return policies_->checked_share(*micro_, static_cast<double>(std::numeric_limits<T>::max()));
    }
    void note_offender(std::size_t parameter) { offence_.note({world_->rank(), parameter, false}); }
    /// Lets the guard look at elements of this rank's gradient. The first one has index `flat` in
    /// the flat order. Calls found(index) for the first offender.
    template <class Found>
    void inspect(const T* gradient, std::size_t count, std::size_t flat, Found&& found) {
        const Findings findings = policies_->inspect(place_, gradient, count, flat, large_from_);
        if (findings.offender != no_offender) found(findings.offender);
        if (findings.large) large_ = true;
    }
    /// Notes the weight with which a gradient that the guard has seen is summed.
    void note_weight(double weight) {
        if (weight > detail::scaled_by_bits(1.0, room_for_weights)) large_ = true;
    }

    GroupCore* world_;
    std::unique_ptr<UpdatePolicies<T, Place>> policies_;
    const UpdateFacts& facts_; ///< of `policies_`
    const bool on_grid_;
    /// The guard looks at each micro-batch's gradient. A grid finds NaN and infinity by itself, so
    /// a guard that looks only for these is not asked.
    bool inspects_;
    Place place_;
    std::unique_ptr<Carrier> carrier_;
    bool alone_ = false;   ///< the update uses only this rank's gradients, and no other rank sees them
    double scaled_by_ = 1; ///< the loss scale of this update
    /// This update's sum of weights over all ranks; known once they have agreed to make the update.
    double divisor_ = 0;
    MicroBatchFacts* micro_ = nullptr;
    Pass* pass_ = nullptr; ///< the pass of this rank's micro-batch, while the model works on it

private:
    /// Bits reserved for weights and ranks: if all elements are below 2^large_from_, and the
    /// weights of each rank add up to at most 2^room_for_weights, then the sum over all ranks is at
    /// most half of the largest T.
    static constexpr int room_for_weights = 40;

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

    const Layout* layout_ = nullptr;
    const OwnedSlices* owned_slices_ = nullptr;
    Parts parts_;
    std::unique_ptr<Tally> tally_;
    std::unique_ptr<NormSquares<T>> squares_; ///< null: the clipping needs no norm
    UpdateSums sums_;
    LossScaleRun loss_scale_;
    typename Place::template State<T> state_;
    double (Update::*measure_norm_)(double) = nullptr;
    Offence offence_;
    double learning_rate_ = 0;
    double norm_ = 0;
    std::uint64_t applied_ = 0;
    int large_from_;       ///< sums of elements below 2^large_from_ cannot overflow
    bool large_ = false;   ///< some rank has larger elements or weights: check the sums
    bool untold_ = false;  ///< a micro-batch of this rank, weighed by tokens, did not count them
    bool refused_ = false; ///< the update was left out after its gradients were summed
};

/// The type of a compression's run in a trainer; NoCompression's for models in units, which use the
/// format alone.
template <class World, class T, class Place, class Policies>
struct WireRun {
    using type = NoCompression::Run;
};
template <class World, class T, class Place, class Policies>
    requires(Policies::Compression::compresses && !shards_gradients<typename Policies::Sharding>)
struct WireRun<World, T, Place, Policies> {
    using type =
        decltype(start_wire<T>(std::declval<const Place&>(), std::declval<const typename Policies::Compression&>(),
                               std::declval<World&>(), {}, {}));
};

/// True if slices may have owners.
template <class Policies, class Sharding>
inline constexpr bool may_have_owners = gives_owners<typename Policies::Reducer> || may_give_owners<Sharding>;

template <class T, class Place>
template <class World, class Model, class Policies, class Sharding>
Update<T, Place>::Update(World& world, Model& model, const Policies& policies, const Sharding&)
    : world_(&world), policies_(std::make_unique<UpdatePoliciesOf<T, Place, Policies>>(policies)),
      facts_(policies_->facts), on_grid_(Policies::Summation::reproducible),
      inspects_(facts_.inspects && !(on_grid_ && facts_.only_finite)), place_(world, model), parts_(model),
      tally_(std::make_unique<typename Policies::Summation::Totals>()), loss_scale_(*policies_),
      large_from_(std::numeric_limits<T>::max_exponent - 1 - room_for_weights -
                  static_cast<int>(std::bit_width(static_cast<unsigned>(world.size())))) {
    using Summation = typename Policies::Summation;
    // A device's gradients travel through the host.
    constexpr bool wire_is_on_host = requires { requires WireRun<World, T, Place, Policies>::type::is_on_host; };
    using Carried =
        decltype(carried_types<may_have_owners<Policies, Sharding>, Place::on_device, !wire_is_on_host, T,
                               typename Summation::template Sums<T, Place>::Sum, typename Policies::Compression>());
    carrier_ = make_carrier<Carried>(world, policies.reducer);
    if constexpr (Policies::Clipping::measures_norm) {
        squares_ = std::make_unique<typename Summation::template Squares<T>>();
        measure_norm_ = &Update::measure_norm;
    }
    keep_native<Collective::all_reduce, Collective::broadcast>(world);
}

template <class T, class Place>
void Update<T, Place>::begin(bool alone) {
    alone_ = alone || world_->size() == 1;
    sums_ = {};
    tally_->begin();
    offence_ = {};
    untold_ = false;
    norm_ = 0;
    large_ = false;
    refused_ = false;
    loss_scale_.begin();
    scaled_by_ = loss_scale_.scale();
    divisor_ = 0;
    if (inspects_) place_.begin_inspection();
    begin_update();
}

template <class T, class Place>
void Update<T, Place>::before_call(MicroBatchFacts& micro, PassFacts& facts, bool last) {
    before_pass(last);
    if (!facts_.needs_tokens) facts.weight = policies_->share(micro).multiplier;
    facts.loss_scale = loss_scale_.scale();
    micro_ = &micro;
}

template <class T, class Place>
void Update<T, Place>::after_call(double loss, bool last) {
    if (facts_.scales) loss_scale_.check(*pass_);
    after_pass();
    const Share share = weigh();
    if (facts_.needs_tokens && !pass_->counted_tokens()) untold_ = true;
    const bool counts = share.multiplier != 0; // a loss of weight 0 may be 0 / 0
    tally_->add(sums_, share, counts ? loss : 0);
    sums_.micro_batches += 1;
    sums_.samples += micro_->samples;
    if (micro_->tokens != 0)
        // Rounded, so that the sum does not depend on the order.
        sums_.tokens += detail::rounded_to_even(micro_->tokens * 0x1p20) * 0x1p-20;
    if (facts_.inspects && counts && !detail::is_finite(loss)) offence_.note({world_->rank(), 0, true});
    keep(share.multiplier, last);
}

template <class T, class Place>
Verdict Update<T, Place>::agree() {
    SumsOfGradients& gradients = sums_of_gradients();
    if (const std::size_t found = gradients.first_not_finite(); found != no_offender) note_offender(found);
    if (inspects_) {
        const Findings told = place_.findings();
        if (told.offender != no_offender) note_offender(layout_->element_at(told.offender).parameter);
        large_ = large_ || told.large;
    }
    sums_.offenders = offence_.rank >= 0 ? 1 : 0;
    sums_.large = large_ ? 1 : 0;
    if (!alone_ || world_->size() == 1) tally_->agree(*world_, sums_, parts_.order());
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
    const auto micro_batches = static_cast<std::int64_t>(sums_.micro_batches);
    if (!gradients.agree(*world_, micro_batches)) return Verdict::skip;
    check_divisor();
    divisor_ = sums_.divisor;
    if (alone_) note_weight(left_over());
    large_ = large_ || large > 0 || (facts_.may_overflow && !alone_) ||
             (on_grid_ && gradients.above(micro_batches) >= std::numeric_limits<T>::max_exponent);
    return Verdict::commit;
}

template <class T, class Place>
Verdict Update<T, Place>::apply() {
    if (guards_sums() && large_ && !sums_are_finite()) return refuse();
    double scale = left_over() / (sums_.divisor * loss_scale_.scale());
    if (measure_norm_ != nullptr) {
        norm_ = (this->*measure_norm_)(scale);
        if (!detail::is_finite(norm_)) return refuse();
        scale *= policies_->clip_factor(norm_);
    }
    update_owned({learning_rate_, ++applied_, scale});
    sums_of_gradients().follow();
    loss_scale_.grow();
    return Verdict::commit;
}

template <class T, class Place>
Verdict Update<T, Place>::refuse() {
    loss_scale_.back_off();
    discard();
    refused_ = true;
    return Verdict::skip;
}

template <class T, class Place>
bool Update<T, Place>::sums_are_finite() {
    std::size_t first = no_offender;
    place_.begin_inspection();
    each_gradient([&](std::size_t parameter, std::size_t flat, const T* values, std::size_t n) {
        place_.inspect(FiniteGuard{}, values, n, flat, std::numeric_limits<T>::max_exponent,
                       [&](std::size_t) { first = std::min(first, parameter); });
    });
    if (const std::size_t found = place_.findings().offender; found != no_offender)
        first = layout_->element_at(found).parameter;
    if (owned_slices_->cut() && !alone_) first = agree_on_sums(*world_, first);
    const bool here = first != no_offender;
    if (parts_.sum(std::array{here ? 1.0 : 0.0})[0] == 0) return true;
    note_sum(here ? first : 0);
    offence_.elsewhere = !here;
    return false;
}

template <class T, class Place>
double Update<T, Place>::measure_norm(double scale) {
    squares_->begin(sums_of_gradients().above(static_cast<std::int64_t>(sums_.micro_batches)));
    auto measured = place_.template measure<T>(*squares_, most_gradients());
    each_gradient(
        [&](std::size_t, std::size_t, const T* values, std::size_t n) { measured.add(std::span<const T>(values, n)); });
    measured.finish();
    if (owned_slices_->cut()) squares_->agree(*world_);
    return detail::root_of(parts_.sum(std::array{squares_->value()})[0]) * scale;
}

template <class T, class Place>
void Update<T, Place>::check_divisor() const {
    const auto inverse = static_cast<T>(1 / (sums_.divisor * loss_scale_.scale()));
    if (inverse > 0 && detail::is_finite(inverse)) return;
    refuse_input({"weighing ", facts_.weighing, ": the weights of ", static_cast<std::uint64_t>(sums_.micro_batches),
                  " micro-batches add up to ", number_text(sums_.divisor, std::chars_format::general, 6),
                  "; expected more than 0, so that gradients can be divided by it",
                  (facts_.needs_tokens ? " (does the model call pass.count_tokens?)" : "")});
}

} // namespace detail
UNISONO_NAMESPACE_END
