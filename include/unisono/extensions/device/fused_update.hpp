#pragma once

/// \file
/// An optimizer's update on a device, in one pass through memory. It unscales and clips the
/// gradients, widens them if they are narrower, applies the optimizer's formula, and writes the
/// model's 16-bit copy of the parameters.

#include "unisono/arithmetic/values.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

struct UnclippedElement {
    template <class T>
    UNISONO_INLINE void operator()(T&) const {}
};

/// The optimizer's functor between the clipping of the gradient and the rounding of the result.
template <class Functor, class Clip, class Low>
struct FusedElement {
    Functor functor;
    Clip clip;

    template <class T, class G, class... Arrays>
    UNISONO_INLINE void operator()(Low& low, T& parameter, const G& gradient, Arrays&... arrays) const {
        update(parameter, gradient, arrays...);
        low = canonical(static_cast<Low>(static_cast<accumulator_t<Low>>(parameter)));
    }
    template <class T, class G, class... Arrays>
    UNISONO_INLINE void update(T& parameter, const G& gradient, Arrays&... arrays) const {
        T g = static_cast<T>(widen(gradient));
        clip(g);
        functor(parameter, static_cast<const T&>(g), arrays...);
    }
};
template <class Functor, class Clip>
struct FusedElement<Functor, Clip, void> {
    FusedElement<Functor, Clip, float> with;

    template <class T, class G, class... Arrays>
    UNISONO_INLINE void operator()(T& parameter, const G& gradient, Arrays&... arrays) const {
        with.update(parameter, gradient, arrays...);
    }
};

UNISONO_NO_CONTRACTION_END

/// The `Where` of an optimizer's `update`: puts clipping and casts around the functor.
template <class Arithmetic, class G, class Clip, class Low>
struct FusedPlace {
    const Arithmetic& on;
    std::span<const G> narrow; ///< the gradients as they are
    Clip clip;
    std::span<Low> low;

    template <class Functor, class T, class... Arrays>
    void apply(const Functor& functor, std::span<T> parameters, std::span<const T>, std::span<Arrays>... arrays) const {
        if (low.empty()) on.apply(FusedElement<Functor, Clip, void>{{functor, clip}}, parameters, narrow, arrays...);
        else on.apply(FusedElement<Functor, Clip, Low>{functor, clip}, low, parameters, narrow, arrays...);
    }
};
/// Without a 16-bit copy.
template <class Arithmetic, class G, class Clip>
struct FusedPlace<Arithmetic, G, Clip, void> {
    const Arithmetic& on;
    std::span<const G> narrow;
    Clip clip;

    template <class Functor, class T, class... Arrays>
    void apply(const Functor& functor, std::span<T> parameters, std::span<const T>, std::span<Arrays>... arrays) const {
        on.apply(FusedElement<Functor, Clip, void>{{functor, clip}}, parameters, narrow, arrays...);
    }
};

/// `place_for(clip)` returns the optimizer's `Where`, with that functor in front of it.
template <class Optimizer, class T, class Clipping, class PlaceFor>
void fused_update(const Optimizer& policy, const OptimizerSlice<T>& state, std::span<T> parameters,
                  std::size_t gradients, OptimizerStep step, const Clipping& clipping, const PlaceFor& place_for) {
    check_sizes("update_on", gradients, parameters.size());
    check_sizes("update_on", state.count, parameters.size());
    // Only the size is used: `place_for` has the gradients.
    const std::span<const T> sized(parameters.data(), parameters.size());
    const auto run = [&](const auto& place) {
        static_assert(
            requires { policy.update(state, parameters, sized, step, place); },
            "unisono::update_on: found an optimizer whose update takes no place to run. Required: a fifth argument, as "
            "optimizer/optimizer.hpp says. Why: its functor must be given to the device.");
        policy.update(state, parameters, sized, step, place);
    };
    if constexpr (Clipping::changes_elements) {
        static_assert(
            requires { clipping.template element<T>(1.0); },
            "unisono::update_on: found a clipping that changes elements and has no element<T>(scale). Required: that "
            "functor, as ClipByValue has it. Why: it becomes a part of the optimizer's pass.");
        const auto clip = clipping.template element<T>(step.gradient_scale);
        step.gradient_scale = 1;
        run(place_for(clip));
    } else {
        run(place_for(UnclippedElement{}));
    }
}

} // namespace detail

/// One update of the slice, in one pass: g = gradients[i] in T, clipped by `clipping`, then the
/// optimizer's formula. If `clipping` changes elements, it applies step.gradient_scale itself, as
/// in the Trainer; the factor of a norm is part of step.gradient_scale. The bits are those of
/// `clipping.clip` followed by `update` on the host. `on`: a ThrustArithmetic or a similar type.
/// `policy.update` takes a `Where` as its fifth argument, as the library's optimizers do. \throws
/// error bad_input: the sizes differ
template <class Arithmetic, class Optimizer, optimizer_element T, class G, class Clipping = NoClipping>
    requires floating_element<std::remove_const_t<G>>
void update_on(const Arithmetic& on, const Optimizer& policy, const OptimizerSlice<T>& state, std::span<T> parameters,
               std::span<G> gradients, const OptimizerStep& step, const Clipping& clipping = {}) {
    using Narrow = std::remove_const_t<G>;
    detail::fused_update(policy, state, parameters, gradients.size(), step, clipping, [&](const auto& clip) {
        using Clip = std::remove_cvref_t<decltype(clip)>;
        return detail::FusedPlace<Arithmetic, Narrow, Clip, void>{on, gradients, clip};
    });
}
/// As above. Also writes the rounded parameters to `low`, unless it is empty: low[i] =
/// parameters[i], rounded as by `accumulate_first`.
template <class Arithmetic, class Optimizer, optimizer_element T, class G, class Clipping, class Low>
    requires floating_element<std::remove_const_t<G>>
void update_on(const Arithmetic& on, const Optimizer& policy, const OptimizerSlice<T>& state, std::span<T> parameters,
               std::span<G> gradients, const OptimizerStep& step, const Clipping& clipping, std::span<Low> low) {
    using Narrow = std::remove_const_t<G>;
    if (!low.empty()) detail::check_sizes("update_on", low.size(), parameters.size());
    detail::fused_update(policy, state, parameters, gradients.size(), step, clipping, [&](const auto& clip) {
        using Clip = std::remove_cvref_t<decltype(clip)>;
        return detail::FusedPlace<Arithmetic, Narrow, Clip, Low>{on, gradients, clip, low};
    });
}

UNISONO_NAMESPACE_END
