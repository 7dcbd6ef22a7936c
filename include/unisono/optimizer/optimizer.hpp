#pragma once

/// \file
/// Optimizers: how a gradient changes the parameters. A policy is a plain value. Its
/// `OptimizerState` holds the arrays that it needs from one update to the next. `start` makes the
/// state once, and each update changes it slice by slice, so a rank updates only the slices that it
/// owns.
///
/// A policy `P` has
/// - `double learning_rate`: the base rate, which a learning-rate policy may vary;
/// - `check() const`: refuses invalid parameters with bad_input that names the parameter;
/// - `state() const -> StateArrays`: the names and initial values of its arrays. Each array has the
///   length and the element type of the slice;
/// - `update(state, parameters, gradients, step) const` for float and double: one pass over memory.
///   It may take a fifth argument, `const Where& where = {}` with `Where = OnHost`, and run its
///   functor by `where.apply(functor, parameters, gradients, arrays...)`. It then also runs on a
///   device, given that device's `Where` (extensions/thrust/update.hpp).
///
/// Laws
/// - Element i of the parameters, the gradients and the arrays belongs to one parameter; no element
///   reads another. So any cut into slices gives the same bits, and so does any instruction set.
/// - g' = g * step.gradient_scale comes first, in the element type.
/// - `step.number` counts the updates of this state, from 1. All slices of one update have the same
///   number.
/// - `update` does not allocate. It computes with hyperparameters in double and rounds them once to
///   the element type.
///
/// Bits: the formulas and the order of operations are those of PyTorch 2 on the CPU, so float runs
/// can be reproduced bit by bit. Fused multiply-adds are used where PyTorch's add and lerp kernels
/// use them (x + alpha * y is rounded once). They are exact on every machine: a processor without
/// them computes them in software.
///
/// Menu: Sgd (momentum, dampening, Nesterov; the cheapest, with one array), Adam (Kingma & Ba 2015;
/// the usual choice for networks whose gradients differ much in scale), AdamW (decoupled weight
/// decay, Loshchilov & Hutter 2019), Adagrad (sparse features; Duchi et al. 2011), RmsProp
/// (Tieleman & Hinton 2012; centred: Graves 2013). Absent: second-order methods, which combine
/// several elements; layer-wise rates (LARS, LAMB), which need the norm of each layer's parameters.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The element types on which optimizers run.
template <class T>
concept optimizer_element = std::same_as<T, float> || std::same_as<T, double>;

/// One array of an optimizer's state: its name in checkpoints, and the value of its elements before
/// the first update.
struct StateArray {
    std::string_view name = {};
    double initial = 0;
    friend bool operator==(const StateArray&, const StateArray&) = default;
};

/// The arrays of an optimizer's state, in order; at most `capacity`.
class StateArrays {
public:
    static constexpr std::size_t capacity = 4;

    constexpr void add(const StateArray& array) {
        UNISONO_ASSERT(count_ < capacity, "an optimizer has at most StateArrays::capacity arrays");
        arrays_[count_++] = array;
    }
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    [[nodiscard]] constexpr const StateArray& operator[](std::size_t i) const { return arrays_[i]; }
    [[nodiscard]] constexpr const StateArray* begin() const { return arrays_.data(); }
    [[nodiscard]] constexpr const StateArray* end() const { return arrays_.data() + count_; }

private:
    std::array<StateArray, capacity> arrays_ = {};
    std::size_t count_ = 0;
};

/// The values that differ between updates.
struct OptimizerStep {
    double learning_rate = 0;
    std::uint64_t number = 1;  ///< number of updates of this state, including this one
    double gradient_scale = 1; ///< 1 / (sum of weights); multiplies the gradients first
};

/// The state of a range of elements. Does not own the memory.
template <optimizer_element T>
struct OptimizerSlice {
    std::array<T*, StateArrays::capacity> arrays = {};
    std::size_t count = 0;
};

/// The arrays of a policy for `count` elements. Memory: size() * count elements and some padding,
/// allocated once, in the constructor.
template <optimizer_element T>
class OptimizerState {
public:
    OptimizerState() = default;

    OptimizerState(const StateArrays& arrays, std::size_t count);
    /// In memory that allocate(bytes) returns; not initialised.
    template <class Allocate>
    OptimizerState(const StateArrays& arrays, std::size_t count, const Allocate& allocate)
        : arrays_(arrays), count_(count) {
        if (const std::size_t all = lay_out()) memory_ = detail::Array<T>(allocate(all * sizeof(T)), all);
    }

    /// Restores the initial state, as before the first update.
    void reset();

    [[nodiscard]] std::size_t count() const { return count_; }        ///< elements of each array
    [[nodiscard]] std::size_t size() const { return arrays_.size(); } ///< arrays
    [[nodiscard]] std::size_t bytes() const { return size() * count_ * sizeof(T); }
    [[nodiscard]] std::string_view name(std::size_t i) const { return arrays_[i].name; }
    [[nodiscard]] std::span<T> array(std::size_t i) {
        return count_ == 0 ? std::span<T>() : std::span<T>(memory_.data() + i * stride_, count_);
    }
    [[nodiscard]] std::span<const T> array(std::size_t i) const {
        return count_ == 0 ? std::span<const T>() : std::span<const T>(memory_.data() + i * stride_, count_);
    }

    /// Elements [first, first + count) of every array.
    [[nodiscard]] OptimizerSlice<T> slice(std::size_t first, std::size_t count);
    [[nodiscard]] OptimizerSlice<T> all() { return slice(0, count_); }

private:
    std::size_t lay_out();

    StateArrays arrays_;
    std::size_t count_ = 0;
    std::size_t stride_ = 0;
    detail::Array<T> memory_;
};

template <optimizer_element T>
[[gnu::cold]] OptimizerState<T>::OptimizerState(const StateArrays& arrays, std::size_t count)
    : OptimizerState(arrays, count, [](std::size_t bytes) { return detail::memory_for_rank(0, bytes); }) {
    reset();
}

/// Returns the number of elements of all arrays.
template <optimizer_element T>
[[gnu::cold]] std::size_t OptimizerState<T>::lay_out() {
    // The starts of arrays differ by an odd number of cache lines: if they differed by a multiple
    // of 4 KiB, their loads and stores would collide.
    const std::size_t line = 64 / sizeof(T);
    if (count_ > std::numeric_limits<std::size_t>::max() / sizeof(T) / (StateArrays::capacity + 1) - 64 * line) {
        refuse_input({"optimizer state for ", count_, " elements overflows"});
    }
    if (arrays_.size() == 0 || count_ == 0) return 0;
    stride_ = ((count_ + line - 1) / line | 1) * line;
    return arrays_.size() * stride_;
}

template <optimizer_element T>
[[gnu::cold]] void OptimizerState<T>::reset() {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
        for (T& value : array(i)) value = static_cast<T>(arrays_[i].initial);
    }
}

template <optimizer_element T>
OptimizerSlice<T> OptimizerState<T>::slice(std::size_t first, std::size_t count) {
    if (first > count_ || count > count_ - first) {
        refuse_input({"optimizer state of ", count_, " elements has no slice [", first, ", +", count, ")"});
    }
    OptimizerSlice<T> part;
    part.count = count;
    for (std::size_t i = 0; i < size() && count != 0; ++i) part.arrays[i] = memory_.data() + i * stride_ + first;
    return part;
}

/// Policies that change parameters by their gradients, with a state per element.
template <class P>
concept optimizer_policy =
    policy_of<P, Family::optimizer> &&
    requires(const P& policy, const OptimizerSlice<float>& state, std::span<float> parameters,
             std::span<const float> gradients, const OptimizerSlice<double>& wide_state,
             std::span<double> wide_parameters, std::span<const double> wide_gradients, const OptimizerStep& step) {
        { policy.learning_rate } -> detail::converts_to<double>;
        policy.check();
        { policy.state() } -> std::same_as<StateArrays>;
        policy.update(state, parameters, gradients, step);
        policy.update(wide_state, wide_parameters, wide_gradients, step);
    };

/// The state of a checked policy for `count` elements of type T:
/// `auto state = start<float>(Sgd{...}, count)`.
template <optimizer_element T, optimizer_policy P>
OptimizerState<T> start(const P& policy, std::size_t count) {
    policy.check();
    return OptimizerState<T>(policy.state(), count);
}

namespace detail {

/// Refuses a hyperparameter unless `fits`; the negation catches NaN.
void check_parameter(bool fits, std::string_view policy, std::string_view parameter, double found,
                     std::string_view expected);

[[gnu::cold]] inline void check_not_negative(std::string_view policy, std::string_view parameter, double found) {
    check_parameter(found >= 0, policy, parameter, found, "a finite number of at least 0");
}

inline void check_fraction(std::string_view policy, std::string_view parameter, double found) {
    check_parameter(found >= 0 && found < 1, policy, parameter, found, "at least 0 and less than 1");
}

/// Asserts that the sizes of one update agree.
template <class T>
void check_update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients) {
    UNISONO_ASSERT(parameters.size() == gradients.size(), "as many gradients as parameters");
    UNISONO_ASSERT(state.count == parameters.size(), "the slice of the state is as long as the parameters");
    static_cast<void>(state), static_cast<void>(parameters), static_cast<void>(gradients);
}

UNISONO_NO_CONTRACTION_BEGIN

/// a * b + c, rounded once.
UNISONO_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
UNISONO_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// Makes one choice for all elements, by operations on their bits. A branch in the loop would
/// prevent vectorisation, and one kernel per combination of options would have to be compiled for
/// each instruction set.
template <class T>
class Choice {
public:
    explicit Choice(bool first) : mask_(first ? ~Bits{0} : Bits{0}) {}
    /// `a` if the condition given to the constructor held, else `b`.
    UNISONO_INLINE T operator()(T a, T b) const {
        return std::bit_cast<T>(
            static_cast<Bits>((std::bit_cast<Bits>(a) & mask_) | (std::bit_cast<Bits>(b) & ~mask_)));
    }

private:
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    Bits mask_;
};

/// The first step of every optimizer: scales the gradient, and adds the weight decay unless it is
/// 0.
template <class T>
struct DecayedGradient {
    T scale, decay;
    Choice<T> decays;

    DecayedGradient(const OptimizerStep& step, double weight_decay)
        : scale(T(step.gradient_scale)), decay(T(weight_decay)), decays(weight_decay != 0) {}
    UNISONO_INLINE T operator()(T p, T g) const {
        UNISONO_NO_CONTRACTION_HERE
        const T scaled = product(g, scale);
        return decays(fused(decay, p, scaled), scaled);
    }
};

/// from + weight * (to - from), in torch.lerp's two forms.
template <class T>
struct Interpolation {
    T weight, rest;
    Choice<T> from_start;

    explicit Interpolation(double share) : weight(T(share)), rest(T(share) - T(1)), from_start(share < 0.5) {}
    UNISONO_INLINE T operator()(T from, T to) const {
        UNISONO_NO_CONTRACTION_HERE
        const T way = to - from;
        return fused(from_start(weight, rest), way, from_start(from, to));
    }
};

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void check_parameter(bool fits, std::string_view policy, std::string_view parameter, double found,
                                        std::string_view expected) {
    if (fits && detail::is_finite(found)) return;
    refuse_input({policy, ".", parameter, " is ", found, "; expected ", expected});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
