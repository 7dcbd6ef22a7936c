#pragma once

/// \file
/// An optimizer's update on a system of Thrust: gradients unscaled, clipped and, where they are narrower, widened, the
/// optimizer's formula, and the model's 16-bit image of the parameters, in one pass through memory.
///
///     auto state = un::ThrustOptimizerState<thrust::device_vector<float>>(policy.state(), parameters.size());
///     un::update_on(on, policy, state.all(), parameters, gradients, {.learning_rate = 1e-3, .number = n});

#include "unisono/arithmetic/thrust.hpp"
#include "unisono/guard/clip_by_value.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

struct UnclippedElement {
    template <class T>
    UNISONO_INLINE void operator()(T&) const {}
};

/// The optimizer's functor behind the clipping, and before the rounding of what it made.
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

/// What an optimizer's `update` is given as the place to run: it puts clipping and casts around the functor.
template <class Policy, class G, class Clip, class Low>
struct FusedOnThrust {
    const ThrustArithmetic<Policy>& on;
    std::span<const G> narrow; ///< the gradients as they are
    Clip clip;
    std::span<Low> low;

    template <class Functor, class T, class... Arrays>
    void apply(const Functor& functor, std::span<T> parameters, std::span<const T>, std::span<Arrays>... arrays) const {
        if (low.empty()) on.apply(FusedElement<Functor, Clip, void>{{functor, clip}}, parameters, narrow, arrays...);
        else on.apply(FusedElement<Functor, Clip, Low>{functor, clip}, low, parameters, narrow, arrays...);
    }
};

} // namespace detail

/// The arrays of an optimizer's state in vectors of Thrust's. As `OptimizerState`.
template <class Vector>
class ThrustOptimizerState {
public:
    using T = typename Vector::value_type;

    ThrustOptimizerState() = default;
    ThrustOptimizerState(const StateArrays& arrays, std::size_t count) : count_(count) {
        vectors_.reserve(arrays.size());
        for (const StateArray& one : arrays) vectors_.emplace_back(count, static_cast<T>(one.initial));
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t size() const { return vectors_.size(); }
    [[nodiscard]] std::span<T> array(std::size_t i) { return span_of(vectors_[i]); }
    [[nodiscard]] OptimizerSlice<T> slice(std::size_t first, std::size_t count) {
        if (first > count_ || count > count_ - first)
            refuse_input({"optimizer state of ", count_, " elements has no slice [", first, ", +", count, ")"});
        OptimizerSlice<T> part;
        part.count = count;
        for (std::size_t i = 0; i < size() && count != 0; ++i) part.arrays[i] = array(i).data() + first;
        return part;
    }
    [[nodiscard]] OptimizerSlice<T> all() { return slice(0, count_); }

private:
    std::vector<Vector> vectors_;
    std::size_t count_ = 0;
};

/// One update of the slice, in one pass: g = gradients[i] in T, clipped by `clipping` (which takes over step.gradient_scale
/// where it changes elements, as the Trainer does), then the optimizer's formula. A norm's factor is part of
/// step.gradient_scale. Where `low` is not empty, low[i] = parameters[i], rounded. Same bits as `clipping.clip`, `update` and
/// `accumulate_first` one after the other on the host. `policy.update` takes a place to run as its fifth argument, as all of
/// ours do. \throws error bad_input: sizes that differ
template <class Policy, class Optimizer, optimizer_element T, class G, class Clipping = NoClipping,
          class Low = bfloat16>
    requires floating_element<std::remove_const_t<G>>
void update_on(const ThrustArithmetic<Policy>& on, const Optimizer& policy, const OptimizerSlice<T>& state,
               std::span<T> parameters, std::span<G> gradients, OptimizerStep step, const Clipping& clipping = {},
               std::span<Low> low = {}) {
    using Narrow = std::remove_const_t<G>;
    detail::check_sizes("update_on", gradients.size(), parameters.size());
    detail::check_sizes("update_on", state.count, parameters.size());
    if (!low.empty()) detail::check_sizes("update_on", low.size(), parameters.size());
    // Only its size is looked at: the place knows the gradients.
    const std::span<const T> sized(parameters.data(), parameters.size());
    const auto run = [&](const auto& clip) {
        using Clip = std::remove_cvref_t<decltype(clip)>;
        using Place = detail::FusedOnThrust<Policy, Narrow, Clip, Low>;
        static_assert(
            requires(const Place& place) { policy.update(state, parameters, sized, step, place); },
            "unisono::update_on: found an optimizer whose update takes no place to run. Required: a fifth argument, as "
            "optimizer/optimizer.hpp says. Why: its functor must be given to Thrust.");
        policy.update(state, parameters, sized, step, Place{on, gradients, clip, low});
    };
    if constexpr (Clipping::changes_elements) {
        static_assert(
            requires { clipping.template element<T>(1.0); },
            "unisono::update_on: found a clipping that changes elements and has no element<T>(scale). Required: that "
            "functor, as ClipByValue has it. Why: it becomes a part of the optimizer's pass.");
        const auto clip = clipping.template element<T>(step.gradient_scale);
        step.gradient_scale = 1;
        run(clip);
    } else {
        run(detail::UnclippedElement{});
    }
}

UNISONO_NAMESPACE_END
