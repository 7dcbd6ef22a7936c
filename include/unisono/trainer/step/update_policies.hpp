#pragma once

/// \file
/// The policies that an update asks, without their types. `UpdatePolicies`: weighing, guard,
/// clipping, loss scaling, learning rate and optimizer, by one virtual call for each micro-batch,
/// range of a gradient, or chunk of parameters. `Mode`: the update policy.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/update/update.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The properties that the policies of an update declare.
struct UpdateFacts {
    std::string_view weighing;
    std::string_view loss_scaling;
    std::string_view learning_rate;
    std::string_view clipping;
    bool needs_samples = false; ///< the weighing
    bool needs_tokens = false;  ///< the weighing
    bool inspects = false;      ///< the guard looks for gradients that are not finite
    bool only_finite = false;   ///< it looks for nothing else
    bool stops = false;         ///< what it finds ends the call with an error
    bool scales = false;        ///< the loss scaling
    bool may_overflow = false;  ///< what the compression leaves over has no bound
    bool widens = false;        ///< the summation repeats an update that does not fit its grid
    bool skips_misfit = false;  ///< it leaves such an update out
};

/// The functions of `UpdatePolicies` (below) that read no elements: their answers are numbers.
class UntypedUpdatePolicies {
public:
    UntypedUpdatePolicies(const UntypedUpdatePolicies&) = delete;
    UntypedUpdatePolicies& operator=(const UntypedUpdatePolicies&) = delete;
    virtual ~UntypedUpdatePolicies() = default;

    const UpdateFacts facts;

    [[nodiscard]] virtual Share share(const MicroBatchFacts& micro) const = 0;
    [[nodiscard]] virtual double clip_factor(double norm) const = 0;
    [[nodiscard]] virtual double rate(const RatePoint& point) const = 0;
    [[nodiscard]] virtual LossScale start_scale() const = 0;
    virtual void grow(LossScale& scale) const = 0;
    virtual bool back_off(LossScale& scale) const = 0;
    [[nodiscard]] virtual StateArrays state() const = 0;

    /// The share of a micro-batch, after a check of its values. `most`: the largest number of the
    /// gradients' type.
    [[nodiscard]] Share checked_share(const MicroBatchFacts& micro, double most) const;
    [[nodiscard]] double checked_rate(const RatePoint& point) const;

protected:
    explicit UntypedUpdatePolicies(const UpdateFacts& declared) : facts(declared) {}
};

/// All of them, for elements of type T.
template <class T>
class UpdatePolicies : public UntypedUpdatePolicies {
public:
    /// Lets the guard look, as Kernels::look. `offender`: an index in `gradient`.
    [[nodiscard]] virtual Findings inspect(const T* gradient, std::size_t count, std::size_t flat, int large) const = 0;
    /// Clips, and runs the optimizer.
    virtual void update(const OptimizerSlice<T>& state, T* parameters, T* gradients,
                        const OptimizerStep& step) const = 0;

protected:
    using UntypedUpdatePolicies::UntypedUpdatePolicies;
};

/// `Policies`: a trainer's (policy_set.hpp). `Computes`: its kernels. Both must outlive this.
template <class T, class Computes, class Policies>
class UpdatePoliciesOf final : public UpdatePolicies<T> {
    using Guard = typename Policies::Guard;
    using Compression = typename Policies::Compression;

public:
    UpdatePoliciesOf(const Policies& policies, const Computes& kernels)
        : UpdatePolicies<T>(declared(policies)), of_(&policies), kernels_(&kernels) {}

    [[nodiscard]] Share share(const MicroBatchFacts& micro) const override { return of_->weighing_policy.share(micro); }
    [[nodiscard]] double clip_factor(double norm) const override { return of_->clipping.factor(norm); }
    [[nodiscard]] double rate(const RatePoint& point) const override {
        return of_->learning_rate.rate(of_->optimizer.learning_rate, point);
    }
    [[nodiscard]] LossScale start_scale() const override { return of_->scaling.start(); }
    void grow(LossScale& scale) const override { of_->scaling.grow(scale); }
    bool back_off(LossScale& scale) const override { return of_->scaling.back_off(scale); }
    [[nodiscard]] StateArrays state() const override { return of_->optimizer.state(); }

    [[nodiscard]] Findings inspect(const T* gradient, std::size_t count, std::size_t flat, int large) const override {
        return kernels_->inspect(of_->guard, gradient, count, flat, large);
    }
    void update(const OptimizerSlice<T>& state, T* parameters, T* gradients, const OptimizerStep& step) const override {
        kernels_->update(of_->optimizer, of_->clipping, state, parameters, gradients, step);
    }

private:
    static UpdateFacts declared(const Policies& policies) {
        using Weighing = typename Policies::Weighing;
        UpdateFacts facts;
        facts.weighing = Weighing::name;
        facts.loss_scaling = Policies::Scaling::name;
        facts.learning_rate = Policies::LearningRate::name;
        facts.clipping = Policies::Clipping::name;
        facts.needs_samples = Weighing::needs_samples;
        facts.needs_tokens = Weighing::needs_tokens;
        facts.inspects = Guard::inspects;
        facts.only_finite = requires { requires Guard::only_finite; };
        facts.stops = policies.guard.on_offence() != OnOffence::skip;
        facts.scales = Policies::Scaling::scales;
        facts.may_overflow = Compression::compresses && !requires { typename Compression::Wire; }; // a cast cuts
        if constexpr (Policies::Summation::reproducible) {
            using OnMisfit = decltype(policies.summation.on_misfit);
            facts.widens = policies.summation.on_misfit == OnMisfit::widen;
            facts.skips_misfit = policies.summation.on_misfit == OnMisfit::skip;
        }
        return facts;
    }

    const Policies* of_;
    const Computes* kernels_;
};

/// The loss scale of a training.
class LossScaleRun {
public:
    explicit LossScaleRun(const UntypedUpdatePolicies& policies)
        : policies_(&policies), state_(policies.start_scale()) {}

    /// Starts an update.
    void begin() { backed_off_ = false; }
    void grow() { policies_->grow(state_); }
    void back_off() { backed_off_ = policies_->back_off(state_); }

    [[nodiscard]] double scale() const { return state_.scale; }
    [[nodiscard]] const LossScale& state() const { return state_; }
    /// True if this update was left out and the scale lowered.
    [[nodiscard]] bool backed_off() const { return backed_off_; }

    /// Refuses a model that does not ask for the loss scale: its gradients would be divided by a
    /// scale that the model did not apply.
    void check(const Pass& pass) const;
    void restore(const LossScale& saved);

private:
    const UntypedUpdatePolicies* policies_;
    LossScale state_;
    bool backed_off_ = false;
};

/// The run of an update policy (update/update.hpp) without its type: when ranks exchange what.
class Mode {
public:
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;
    virtual ~Mode() = default;

    const bool agrees;    ///< as the run declares it
    const bool optimizes; ///< as the run declares it

    [[nodiscard]] virtual bool alone(std::uint64_t updates) const = 0;
    virtual void before() = 0;
    virtual Verdict apply() = 0;
    virtual void publish() = 0;
    virtual Verdict discard(Verdict verdict) = 0;
    virtual bool after(Verdict verdict) = 0;
    virtual void synchronise() = 0;
    [[nodiscard]] virtual int workers() const = 0;
    virtual void tell(UpdateReport& report) = 0;

protected:
    Mode(bool agreeing, bool optimizing) : agrees(agreeing), optimizes(optimizing) {}
};

/// `Policy`: of the family update.
template <class Policy, class Training>
class ModeOf final : public Mode {
public:
    static_assert(
        requires(const Policy& policy, Training& training) { policy.start(training); },
        "unisono::Trainer: the update policy lacks what update/update.hpp asks of one: start(training) returns a run, "
        "for instance one that derives from UpdateRun");
    using Run = decltype(std::declval<const Policy&>().start(std::declval<Training&>()));
    static_assert(update_run<Run>,
                  "unisono::Trainer: the update's run lacks what update/update.hpp asks of one. UpdateRun and LocalRun "
                  "have a default for each function: a function that hides one has the same result and arguments");
    static_assert(
        Policy::agrees || Run::agrees() || !requires { Run::synchronise(); }, // that of UpdateRun is static
        "unisono::Trainer: found an update whose ranks train on their own, with a run that does not replace "
        "`synchronise`. Required: `void synchronise()`. Why: UpdateRun's does nothing, so ranks would never hold the "
        "same parameters");
    static_assert(Policy::agrees || !Run::agrees() || std::is_same_v<Run, UpdateRun<Training>>,
                  "unisono::Trainer: found an update that does not declare `agrees`, with a run that does. Required: a "
                  "run that derives from LocalRun or AsynchronousRun (update/local.hpp, "
                  "unisono/updates.hpp). "
                  "Why: the trainer asks the run whether ranks must synchronise");
    static_assert(!Policy::agrees || Run::agrees(),
                  "unisono::Trainer: found an update that declares `agrees`, with a run that does not. Required: a "
                  "policy that does not declare it. Why: between two synchronisations its ranks have different "
                  "parameters, which not every policy allows");
    static_assert(
        !asynchronous<Policy> || !Run::reduces(),
        "unisono::Trainer: found an update that declares `asynchronous`, with a run that does not derive from "
        "AsynchronousRun. Required: one that does (unisono/updates.hpp). Why: its ranks stop at "
        "different updates, and that run gives all of them one position at the end of fit");

    ModeOf(const Policy& policy, Training& training)
        : Mode(Run::agrees(), Run::optimizes()), run(policy.start(training)) {}

    [[nodiscard]] bool alone(std::uint64_t updates) const override { return run.alone(updates); }
    void before() override { run.before(); }
    Verdict apply() override { return run.apply(); }
    void publish() override { run.publish(); }
    Verdict discard(Verdict verdict) override { return run.discard(verdict); }
    bool after(Verdict verdict) override { return run.after(verdict); }
    void synchronise() override { run.synchronise(); }
    [[nodiscard]] int workers() const override { return run.workers(); }
    void tell(UpdateReport& report) override { run.tell(report); }

    Run run;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION Share UntypedUpdatePolicies::checked_share(const MicroBatchFacts& micro, double most) const {
    if (!(micro.tokens >= 0) || !detail::is_finite(micro.tokens))
        refuse_input({"pass.count_tokens: found ", micro.tokens,
                      " tokens in a micro-batch; expected a finite number of at least 0"});
    const Share found = share(micro);
    if (!(found.multiplier >= 0) || !(found.divisor >= 0) || !detail::is_finite(found.multiplier) ||
        !detail::is_finite(found.divisor))
        refuse_input({"weighing ", facts.weighing, ": a micro-batch of ", micro.samples, " samples and ", micro.tokens,
                      " tokens got multiplier ", found.multiplier, " and divisor ", found.divisor,
                      "; expected finite numbers of at least 0"});
    if (found.multiplier > most)
        refuse_input({"weighing ", facts.weighing, ": a micro-batch got multiplier ",
                      number_text(found.multiplier, std::chars_format::general, 6),
                      "; expected a number that the gradients' type holds"});
    return found;
}

UNISONO_DEFINITION double UntypedUpdatePolicies::checked_rate(const RatePoint& point) const {
    const double found = rate(point);
    if (!(found >= 0) || !detail::is_finite(found))
        refuse_input({facts.learning_rate, ": the rate of update ", point.update, " is ", found,
                      "; expected a finite number of at least 0"});
    return found;
}

UNISONO_DEFINITION void LossScaleRun::check(const Pass& pass) const {
    if (pass.asked_for_scale()) return;
    refuse_input({policies_->facts.loss_scaling, ": the model did not ask for pass.loss_scale(); expected a model that "
                                                 "multiplies its loss by it before its backward pass"});
}

UNISONO_DEFINITION void LossScaleRun::restore(const LossScale& saved) {
    if (!(saved.scale > 0) || !detail::is_finite(saved.scale) || saved.good_updates < 0)
        refuse_input({"restore_loss_scale: found the scale ", saved.scale, " after ", saved.good_updates,
                      " good updates; expected a finite scale above 0, and at least 0 good updates"});
    state_ = saved;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
