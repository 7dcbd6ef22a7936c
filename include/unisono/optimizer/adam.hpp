#pragma once

/// \file
/// Adam, and AdamW with decoupled weight decay.

#include "unisono/core/math.hpp"
#include "unisono/optimizer/optimizer.hpp"

UNISONO_NAMESPACE_BEGIN

namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// The functor of Adam and AdamW. `keep` is 1 - learning_rate * weight_decay if the decay is
/// decoupled, else 1.
template <class T>
struct AdamElement {
    DecayedGradient<T> gradient;
    Interpolation<T> lerp;
    T keep, beta2, gain2, minus_size, correction2_root, epsilon;

    UNISONO_INLINE void move(T& p, T first_moment, T second_moment) const {
        UNISONO_NO_CONTRACTION_HERE
        const T denominator = quotient(square_root(second_moment), correction2_root) + epsilon;
        const T kept = product(p, keep);
        p = kept + quotient(product(minus_size, first_moment), denominator);
    }
    UNISONO_INLINE void operator()(T& p, const T& g, T& average, T& square) const {
        UNISONO_NO_CONTRACTION_HERE
        const T d = gradient(p, g);
        const T m = lerp(average, d);
        const T v = product(square, beta2) + product(product(gain2, d), d);
        average = m;
        square = v;
        move(p, m, v);
    }
    UNISONO_INLINE void operator()(T& p, const T& g, T& average, T& square, T& largest) const {
        UNISONO_NO_CONTRACTION_HERE
        const T d = gradient(p, g);
        const T m = lerp(average, d);
        const T v = product(square, beta2) + product(product(gain2, d), d);
        const T larger = largest < v ? v : largest;
        const T most = v == v ? larger : v; // NOLINT(misc-redundant-expression): a NaN stays, as in torch.maximum
        average = m;
        square = v;
        largest = most;
        move(p, m, most);
    }
};

UNISONO_NO_CONTRACTION_END

template <class P>
void check_adam(const P& policy) {
    check_not_negative(P::name, "learning_rate", policy.learning_rate);
    check_fraction(P::name, "beta1", policy.beta1);
    check_fraction(P::name, "beta2", policy.beta2);
    check_not_negative(P::name, "epsilon", policy.epsilon);
    check_not_negative(P::name, "weight_decay", policy.weight_decay);
}

StateArrays adam_state(bool amsgrad);

template <class P, class T, class Where>
void update_adam(const P& policy, double decay, double keep, const OptimizerSlice<T>& state, std::span<T> parameters,
                 std::span<const T> gradients, const OptimizerStep& step, const Where& where) {
    check_update(state, parameters, gradients);
    const auto n = static_cast<double>(step.number);
    const double correction1 = 1 - detail::power_of(policy.beta1, n);
    const double correction2 = 1 - detail::power_of(policy.beta2, n);
    const AdamElement<T> element{
        .gradient = {step, decay},
        .lerp = Interpolation<T>(1 - policy.beta1),
        .keep = T(keep),
        .beta2 = T(policy.beta2),
        .gain2 = T(1 - policy.beta2),
        .minus_size = T(-(step.learning_rate / correction1)),
        .correction2_root = T(detail::root_of(correction2)),
        .epsilon = T(policy.epsilon),
    };
    const std::span<T> average(state.arrays[0], state.count);
    const std::span<T> square(state.arrays[1], state.count);
    if (policy.amsgrad)
        return where.apply(element, parameters, gradients, average, square, std::span<T>(state.arrays[2], state.count));
    where.apply(element, parameters, gradients, average, square);
}

} // namespace detail

/// g += weight_decay * p; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g; p
/// -= learning_rate / (1 - beta1^n) * m / (sqrt(v) / sqrt(1 - beta2^n) + epsilon) at update n, with
/// the largest v so far instead of v if `amsgrad` is set. Sources: Kingma & Ba, ICLR 2015,
/// algorithm 1; Reddi et al., ICLR 2018.
struct Adam {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    bool amsgrad = false;

    static constexpr std::string_view name = "Adam";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const Adam&, const Adam&) = default;

    void check() const { detail::check_adam(*this); }
    [[nodiscard]] StateArrays state() const { return detail::adam_state(amsgrad); }

    template <optimizer_element T, class Where = OnHost>
    void update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step, const Where& where = {}) const;
};

template <optimizer_element T, class Where>
void Adam::update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                  const OptimizerStep& step, const Where& where) const {
    detail::update_adam(*this, weight_decay, 1.0, state, parameters, gradients, step, where);
}

/// Adam that begins with p *= 1 - learning_rate * weight_decay, instead of a decay in the gradient.
/// Source: Loshchilov & Hutter, ICLR 2019, algorithm 2 (in PyTorch's form: the decay follows the
/// learning rate).
struct AdamW {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    bool amsgrad = false;

    static constexpr std::string_view name = "AdamW";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const AdamW&, const AdamW&) = default;

    void check() const { detail::check_adam(*this); }
    [[nodiscard]] StateArrays state() const { return detail::adam_state(amsgrad); }

    template <optimizer_element T, class Where = OnHost>
    void update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step, const Where& where = {}) const;
};

template <optimizer_element T, class Where>
void AdamW::update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                   const OptimizerStep& step, const Where& where) const {
    detail::update_adam(*this, 0.0, 1 - step.learning_rate * weight_decay, state, parameters, gradients, step, where);
}

UNISONO_CERTIFY(optimizer_policy<Adam>);
UNISONO_CERTIFY(optimizer_policy<AdamW>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION StateArrays adam_state(bool amsgrad) {
    StateArrays arrays;
    arrays.add({"exp_avg"});
    arrays.add({"exp_avg_sq"});
    if (amsgrad) arrays.add({"max_exp_avg_sq"});
    return arrays;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
