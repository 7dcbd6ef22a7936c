#pragma once

/// \file
/// Policy: the factor of the loss before the backward pass, so that small gradients survive in 16
/// bits.
///
/// The model asks for the factor (`pass.loss_scale()`), multiplies the first gradient of its
/// backward pass by it, and returns its loss without it. The trainer divides by the factor in the
/// optimizer's pass, at no cost. Norms, clipping limits and reports are of gradients without the
/// factor.
///
/// Menu:
/// - `NoLossScaling`: the factor is 1.
/// - `LossScaling`: the largest factor that gradients allow: lower after a gradient that is not
///   finite, higher after many finite ones.
///
/// Laws: all ranks see the same updates, and so have the same factor at any time. Declared
/// property: `scales`. It needs a guard that `inspects`, or reproducible sums, to find gradients
/// that are not finite.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The run's state of a loss scaling.
struct LossScale {
    double scale = 1;
    std::int64_t good_updates = 0; ///< consecutive ones since the scale last changed
    friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// Policies that choose the factor of the loss, so that 16-bit gradients do not vanish.
template <class S>
concept loss_scaling_policy = policy_of<S, Family::loss_scaling> && requires(const S& policy, LossScale& state) {
    policy.check(); ///< refuses bad parameters with bad_input that names the parameter
    { policy.start() } -> std::same_as<LossScale>;
    policy.grow(state); ///< called after an update that happened
    {
        policy.back_off(state)
    } -> std::same_as<bool>; ///< called after a gradient that was not finite; false: the scale cannot be lowered
    { S::scales } -> detail::converts_to<bool>;
};

/// Gradients are those of the loss itself.
struct NoLossScaling {
    static constexpr std::string_view name = "none";
    static constexpr Family family = Family::loss_scaling;
    static constexpr bool scales = false;
    friend bool operator==(const NoLossScaling&, const NoLossScaling&) = default;

    void check() const {}
    [[nodiscard]] LossScale start() const { return {}; }
    void grow(LossScale&) const {}
    bool back_off(LossScale&) const { return false; }
};
UNISONO_CERTIFY(loss_scaling_policy<NoLossScaling>);

/// Dynamic loss scaling, by the rule of PyTorch's GradScaler. If a gradient is not finite on any
/// rank, all ranks discard the update, whatever the guard would do, and multiply the scale by
/// `backoff`. After `growth_interval` consecutive updates without one, the scale is multiplied by
/// `growth`. Unlike PyTorch's, the scale does not fall below `least`: there it is no longer the
/// cause, and the guard decides (FiniteGuard stops, and names rank and parameter). Reports always
/// name rank and parameter. Powers of two keep every bit of the gradients.
/// Source: Micikevicius et al., ICLR 2018.
struct LossScaling {
    double initial = 65536;
    double growth = 2;
    double backoff = 0.5;
    std::int64_t growth_interval = 2000;
    double least = 0x1p-14;

    static constexpr std::string_view name = "loss scaling";
    static constexpr Family family = Family::loss_scaling;
    static constexpr bool scales = true;
    static constexpr double greatest = 0x1p100; ///< further growth would only reach infinity
    friend bool operator==(const LossScaling&, const LossScaling&) = default;

    void check() const;
    [[nodiscard]] LossScale start() const { return {initial, 0}; }
    void grow(LossScale& state) const;
    bool back_off(LossScale& state) const;
};
UNISONO_CERTIFY(loss_scaling_policy<LossScaling>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void LossScaling::check() const {
    if (!(least > 0) || !detail::is_finite(least))
        refuse_input({"LossScaling.least is ", least, "; expected a finite number above 0"});
    if (!(initial >= least && initial <= greatest))
        refuse_input({"LossScaling.initial is ", initial, "; expected at least LossScaling.least, which is ", least,
                      ", and at most 2^100"});
    if (!(growth >= 1) || !detail::is_finite(growth))
        refuse_input({"LossScaling.growth is ", growth, "; expected a finite number of at least 1"});
    if (!(backoff > 0 && backoff < 1))
        refuse_input({"LossScaling.backoff is ", backoff, "; expected more than 0 and less than 1"});
    if (growth_interval < 1)
        refuse_input({"LossScaling.growth_interval is ", growth_interval, "; expected at least 1"});
}

UNISONO_DEFINITION void LossScaling::grow(LossScale& state) const {
    if (++state.good_updates < growth_interval) return;
    state.good_updates = 0;
    if (state.scale * growth <= greatest) state.scale *= growth;
}

UNISONO_DEFINITION bool LossScaling::back_off(LossScale& state) const {
    state.good_updates = 0;
    if (state.scale <= least) return false;
    state.scale *= backoff;
    if (state.scale < least) state.scale = least;
    return true;
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
