#pragma once

/// \file
/// One update of a model in units, whose gradients (and parameters, maybe) are spread over the ranks: the counterpart of
/// exchange.hpp.
///
/// Sums are formed during the pass, so all ranks go through each pass together: a rank that has no micro-batch (a short last
/// window, uneven replicas) goes through the units by itself and adds zeros. Before each pass the ranks say in one all_reduce of
/// 4 bytes whether they have a micro-batch, and whether it is their last. Buckets play no part: a unit travels by itself.
/// Where the model computes in fewer bits (`Low`) than are trained, its gradient of a unit is added to floats as soon as it is complete.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/model/unit_pass.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/trainer/exchange/loss_scale_run.hpp"
#include "unisono/trainer/exchange/offence.hpp"
#include "unisono/trainer/exchange/shares.hpp"
#include "unisono/trainer/place.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/trainer/units/gradients.hpp"
#include "unisono/trainer/units/store.hpp"
#include "unisono/trainer/units/walk.hpp"
#include "unisono/update/update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `Context` is that of Exchange.
template <class Context, class Low>
class UnitExchange final : private UnitKeeper<Low> {
public:
    using World = typename Context::World;
    using T = typename Context::Element;
    using Element = T;
    using Place = typename Context::Place;
    using ReducerRun = decltype(std::declval<const Context&>().reducer.start(std::declval<World&>()));
    static constexpr bool shards_parameters = requires { requires Context::Sharding::shards_parameters; };

    template <class Model, class Unused>
    UnitExchange(World& world, Model& model, const Context& policies, const Unused&)
        : world_(&world), policies_(policies), place_(world, model),
          slices_(T{}, model, policies_.sharding, world.rank(), world.size()), store_(world, place_, slices_),
          gradients_(started(world)), run_(policies_.reducer.start(world)), loss_scale_(policies_.scaling),
          walk_(slices_.units()), state_(place_.template state<T>(policies_.optimizer.state(), slices_.own_count())) {
        if constexpr (on_grid)
            numbers_ = place_.template allocate_own<T>(std::min(Place::template chunk<T>, slices_.largest()));
        if constexpr (mixed) low_gradient_ = place_.template allocate_own<Low>(slices_.largest());
    }
    UnitExchange(const UnitExchange&) = delete;
    UnitExchange& operator=(const UnitExchange&) = delete;
    ~UnitExchange() { place_.settle(); } // before its memory goes

    /// Once, and collective: the first values are those of rank 0.
    template <class Model>
    void initialise(Model& model) {
        store_.initialise(model);
    }

    // --- collecting ------------------------------------------------------------------------------------------------

    void begin(bool = false) {
        sums_ = {};
        totals_.begin();
        offence_ = {};
        norm_ = 0;
        loss_scale_.begin();
        gradients_.begin();
        if constexpr (inspects) place_.begin_inspection();
        closed_ = world_->size() == 1;
        opened_ = false;
        pass_ = nullptr;
        walk_.forget();
    }

    template <class Model, class Batch>
    void add(Model& model, const Batch& batch, double samples, PassFacts facts, bool last) {
        enter_round(last ? last_one : one_of_more);
        MicroBatchFacts micro{samples, 0, gradient_kind_of<Model>};
        if constexpr (!Context::Weighing::needs_tokens) facts.weight = policies_.weighing.share(micro).multiplier;
        facts.loss_scale = loss_scale_.scale();
        unit_pass_t<Model> pass(facts, *this);
        micro_ = &micro;
        pass_ = &pass;
        weighed_ = false;
        walk_.begin(true);
        const double loss = static_cast<double>(model(batch, pass));
        loss_scale_.check(pass);
        end_pass();
        micro.tokens = pass.tokens();
        const Share share = checked_share(policies_.weighing, micro);
        pass_ = nullptr;
        totals_.add(sums_, share, loss);
        sums_.micro_batches += 1;
        sums_.samples += samples;
        sums_.tokens += micro.tokens;
        if constexpr (Context::Guard::inspects) {
            if (!std::isfinite(loss)) offence_.note({world_->rank(), 0, true});
        }
    }
    /// All ranks have had as many passes; before they talk of anything else.
    void end_round() { close_rounds(); }

    /// Forward alone: visit(pass). Any number a rank, and then `end_forward` on every rank.
    template <class GivenPass, class Visit>
    void forward(Visit&& visit) {
        closed_ = false;
        if constexpr (shards_parameters) enter_round(one_of_more);
        GivenPass pass({}, *this);
        walk_.begin(false);
        visit(pass);
        end_pass();
    }
    void end_forward() {
        if constexpr (shards_parameters)
            while (world_->size() > 1 && enter_round(nothing_here) != nothing_here) idle_pass(false);
        closed_ = false;
        walk_.forget();
    }

    [[nodiscard]] const UpdateSums& sums() const { return sums_; }
    [[nodiscard]] const Offence& offence() const { return offence_; }
    [[nodiscard]] const auto& grids() const { return gradients_.sums().range(); }
    [[nodiscard]] auto& grids() { return gradients_.sums().range(); }
    void expect_one() {}
    void set_learning_rate(double rate) { learning_rate_ = rate; }

    // --- the verbs of an update ------------------------------------------------------------------------------------

    void start() { close_rounds(); }

    Verdict agree() {
        if constexpr (on_grid) {
            const std::size_t found = gradients_.sums().first_not_finite();
            if (found != no_offender) offence_.note({world_->rank(), found, false});
        }
        if constexpr (inspects) {
            const std::size_t flat = place_.offender();
            if (flat != no_offender)
                offence_.note({world_->rank(), slices_.layout().element_at(flat).parameter, false});
        }
        sums_.offenders = offence_.rank >= 0 ? 1 : 0;
        totals_.agree(*world_, sums_);
        if (sums_.offenders > 0) {
            if (world_->size() > 1) agree_on_offence(*world_, offence_);
            if (!offence_.loss) loss_scale_.back_off();
            return Verdict::skip;
        }
        if (sums_.micro_batches == 0) return Verdict::empty;
        if (!gradients_.sums().agree(*world_, static_cast<std::int64_t>(sums_.micro_batches))) return Verdict::skip;
        check_divisor<typename Context::Weighing>(sums_);
        return Verdict::commit;
    }

    void finish() { gradients_.finish(); }

    Verdict apply() {
        double scale = 1 / (sums_.divisor * loss_scale_.scale());
        if constexpr (Context::Clipping::measures_norm) {
            norm_ = measure_norm(scale);
            if (!std::isfinite(norm_)) {
                loss_scale_.back_off();
                discard();
                return Verdict::skip;
            }
            scale *= policies_.clipping.factor(norm_);
        }
        const OptimizerStep step{learning_rate_, ++applied_, scale};
        for (std::size_t u = 0; u < slices_.units(); ++u) {
            const std::span<T> parameters = store_.own(u);
            each_chunk(u, [&](std::size_t at, std::size_t n, T* gradient) {
                place_.update(policies_.optimizer, policies_.clipping, state_.slice(slices_.own_at(u) + at, n),
                              parameters.data() + at, gradient, step);
            });
        }
        walk_.forget();
        gradients_.sums().follow();
        loss_scale_.grow();
        return Verdict::commit;
    }

    void publish() {
        if (std::isfinite(norm_)) store_.publish();
    }

    void discard() {
        close_rounds();
        gradients_.finish();
        gradients_.sums().widen();
    }

    // --- what it is made of ----------------------------------------------------------------------------------------

    [[nodiscard]] World& world() const { return *world_; }
    [[nodiscard]] const auto& flat() const { return store_; }
    [[nodiscard]] const auto& state() const { return state_; }
    [[nodiscard]] auto& state() { return state_; }
    [[nodiscard]] const Place& place() const { return place_; }
    [[nodiscard]] std::uint64_t applied() const { return applied_; }
    void restore_applied(std::uint64_t updates) { applied_ = updates; }
    /// Calls visit(flat, std::span<T>), or DeviceSpan, for the parameters that this rank holds, to be written.
    template <class Visit>
    void rewrite_parameters(Visit&& visit) {
        store_.visit({0, store_.count()},
                     [&](const Stretch<T>& one) { visit(one.flat, place_.view(one.parameters, one.count)); });
        if constexpr (mixed) store_.publish();
        walk_.forget();
    }
    [[nodiscard]] std::span<const Slice> owned() const { return slices_.extents().owned(); }
    [[nodiscard]] ReducerRun& run() { return run_; }
    [[nodiscard]] const auto& loss_scale() const { return loss_scale_; }
    [[nodiscard]] auto& loss_scale() { return loss_scale_; }
    [[nodiscard]] double gradient_norm() const { return norm_; }
    [[nodiscard]] const Context& policies() const { return policies_; }
    [[nodiscard]] std::size_t parameter_bytes() const { return store_.bytes(); }
    [[nodiscard]] std::size_t gradient_bytes() const { return gradients_.bytes(); }
    /// Of the units in use.
    [[nodiscard]] std::size_t image_bytes() const {
        return store_.room_bytes() + gradients_.room_bytes() + low_gradient_.size() * sizeof(Low);
    }

private:
    static constexpr bool on_grid = Context::Summation::reproducible;
    static constexpr bool mixed = !std::same_as<T, Low>;
    static constexpr bool compresses = Context::Compression::compresses;
    template <class C>
    struct SumsOf {
        using type = typename Context::Summation::template Sums<T, Place>;
    };
    template <class C>
        requires(C::compresses)
    struct SumsOf<C> {
        using type = CastSums<T, Place, C>;
    };
    using Sums = typename SumsOf<typename Context::Compression>::type;
    UnitGradients<World, T, Place, Sums> started(World& world) const {
        if constexpr (compresses)
            return {world, place_, slices_, policies_.summation, policies_.compression, world.size()};
        else return {world, place_, slices_, policies_.summation};
    }
    /// A grid finds NaN and infinity by itself.
    static constexpr bool inspects =
        Context::Guard::inspects && !(on_grid && requires { requires Context::Guard::only_finite; });

    // --- as UnitKeeper: what the pass asks for -----------------------------------------------------------------------

    std::span<const Low> acquire(std::size_t unit) override {
        go_to(walk_.step_of_parameters(unit));
        walk_.hold();
        return store_.values(walk_.turn(), unit);
    }
    void release() noexcept override { walk_.release(); }

    std::span<Low> gradient(std::size_t unit) override {
        go_to(walk_.step_of_gradient(unit));
        if constexpr (mixed) {
            const std::span<Low> room(low_gradient_.data(), slices_.unit(unit).count);
            if (!std::exchange(opened_, true)) place_.clear(room.data(), room.size());
            return room;
        } else return std::exchange(opened_, true) ? gradients_.opened(unit) : gradients_.open(unit);
    }
    void complete(std::size_t unit) override {
        go_to(walk_.step_of_gradient(unit));
        complete_this();
    }

    /// Goes through the steps of the pass: a unit's parameters are there when its step begins, and the next one's on their way.
    void go_to(std::size_t step) {
        while (walk_.before(step)) {
            complete_this();
            walk_.advance();
            if constexpr (shards_parameters) {
                if (!walk_.gathers()) continue;
                if (walk_.at_first() && !walk_.has_first()) store_.start(walk_.turn(), walk_.unit());
                store_.wait();
                if (walk_.gathers_again()) store_.start(walk_.turn() + 1, walk_.next_unit());
            }
        }
    }

    /// The gradient of the unit in whose step we are; zeros where nobody asked for it.
    void complete_this() {
        if (!walk_.complete_gradient()) return;
        const std::size_t unit = walk_.unit();
        const std::span<T> values = opened_ && !mixed ? gradients_.opened(unit) : gradients_.open(unit);
        if constexpr (mixed)
            if (opened_)
                place_.arithmetic().accumulate(values, std::span<const Low>(low_gradient_.data(), values.size()), 1.0);
        opened_ = false;
        double multiplier = 1;
        if (pass_ != nullptr) {
            micro_->tokens = pass_->tokens();
            multiplier = checked_share(policies_.weighing, *micro_).multiplier;
            if (std::exchange(weighed_, true) && multiplier != multiplier_)
                refuse_input({"unit ", unit,
                              ": tokens were counted after the first gradient was complete; expected "
                              "all before it"});
            multiplier_ = multiplier;
            if constexpr (inspects) {
                const auto note = [&](std::size_t) { offence_.note({world_->rank(), unit, false}); };
                place_.inspect(policies_.guard, values.data(), values.size(), slices_.unit(unit).first, note);
            }
        }
        gradients_.start(unit, run_, multiplier, pass_ != nullptr);
    }

    void end_pass() {
        go_to(walk_.last_step());
        complete_this();
        walk_.end();
    }
    /// What a rank without a micro-batch does meanwhile.
    void idle_pass(bool trains) {
        pass_ = nullptr;
        walk_.begin(trains);
        end_pass();
    }

    // --- rounds: one pass on each rank -------------------------------------------------------------------------------

    enum Here : std::int32_t { nothing_here, last_one, one_of_more };

    /// What all ranks say, at most.
    Here enter_round(Here mine) {
        if (world_->size() == 1) return mine;
        if (closed_ && mine != nothing_here)
            refuse_input("a micro-batch was added after the last one of this update was announced");
        std::array<std::int32_t, 1> most = {mine};
        all_reduce(*world_, most, Max{});
        closed_ = most[0] == last_one;
        return static_cast<Here>(most[0]);
    }
    void close_rounds() {
        while (!closed_ && world_->size() > 1) {
            if (enter_round(nothing_here) == nothing_here) return;
            idle_pass(true);
        }
    }

    // --- the update --------------------------------------------------------------------------------------------------

    /// visit(first, count, gradient) for what this rank owns of a unit; on the host in pieces that stay in the first cache.
    template <class Visit>
    void each_chunk(std::size_t u, Visit&& visit) {
        const std::size_t count = slices_.own(u).count;
        for (std::size_t at = 0, n = 0; at < count; at += n) {
            n = std::min(Place::template chunk<T>, count - at);
            visit(at, n, const_cast<T*>(gradients_.numbers(u, at, numbers_.data(), n)));
        }
    }
    double measure_norm(double scale) {
        typename Context::Summation::Squares squares(gradients_.sums(), static_cast<std::int64_t>(sums_.micro_batches));
        auto measured = place_.template measure<T>(squares, slices_.units());
        for (std::size_t u = 0; u < slices_.units(); ++u)
            each_chunk(u, [&](std::size_t, std::size_t n, T* values) { measured.add(std::span<const T>(values, n)); });
        measured.finish();
        if (slices_.extents().cut()) squares.agree(*world_);
        return std::sqrt(squares.value()) * scale;
    }

    World* world_;
    Context policies_;
    Place place_;
    UnitSlices slices_;
    UnitStore<World, T, Low, Place, shards_parameters> store_;
    UnitGradients<World, T, Place, Sums> gradients_;
    ReducerRun run_;
    typename Context::Summation::Totals totals_;
    LossScaleRun<typename Context::Scaling> loss_scale_;
    UnitWalk walk_;
    typename Place::template State<T> state_;
    typename Place::template OwnArray<T> numbers_;        ///< of a chunk, where sums are none
    typename Place::template OwnArray<Low> low_gradient_; ///< where the model writes, if that is not what is trained

    UpdateSums sums_;
    Offence offence_;
    double learning_rate_ = 0;
    double norm_ = 0;
    std::uint64_t applied_ = 0;
    bool closed_ = false; ///< no rank has another micro-batch of this update
    bool opened_ = false; ///< the model has asked for the gradient of the step's unit
    bool weighed_ = false;
    double multiplier_ = 1; ///< of this pass, once its first gradient was complete
    MicroBatchFacts* micro_ = nullptr;
    Pass* pass_ = nullptr; ///< of this rank's micro-batch, while the model works on it
};

} // namespace detail
UNISONO_NAMESPACE_END
