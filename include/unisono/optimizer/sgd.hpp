#pragma once

/// \file
/// Stochastic gradient descent, with momentum as in PyTorch.

#include "unisono/core/text.hpp"
#include "unisono/optimizer/optimizer.hpp"

UNISONO_NAMESPACE_BEGIN

/// g += weight_decay * p; b = momentum * b + (1 - dampening) * g, at the first update b = g; d =
/// nesterov ? g + momentum * b : b; p -= learning_rate * d. Without momentum, d = g and there is no
/// state.
/// Source: Sutskever et al., ICML 2013, in PyTorch's form (the rate outside of the velocity).
struct Sgd {
    double learning_rate = 1e-3;
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;

    static constexpr std::string_view name = "Sgd";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const Sgd&, const Sgd&) = default;

    void check() const;

    [[nodiscard]] StateArrays state() const {
        StateArrays arrays;
        if (momentum != 0) arrays.add({"momentum_buffer"});
        return arrays;
    }

    template <optimizer_element T, class Where = OnHost>
    void update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step, const Where& where = {}) const;

    // Functors of `update`. Public, since nvcc names them outside of this class.
    template <class T>
    struct Plain;
    template <class T>
    struct Heavy;
    template <class T>
    struct Velocity;
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct Sgd::Plain {
    detail::DecayedGradient<T> gradient;
    T minus_rate;

    UNISONO_INLINE void operator()(T& p, const T& g) const {
        UNISONO_NO_CONTRACTION_HERE
        p = detail::fused(minus_rate, gradient(p, g), p);
    }
};

template <class T>
struct Sgd::Heavy {
    Plain<T> plain;
    T momentum, gain;
    detail::Choice<T> nesterov, first;

    UNISONO_INLINE void operator()(T& p, const T& g, T& buffer) const {
        UNISONO_NO_CONTRACTION_HERE
        const T d = plain.gradient(p, g);
        const T b = first(d, detail::fused(gain, d, detail::product(momentum, buffer)));
        buffer = b;
        p = detail::fused(plain.minus_rate, nesterov(detail::fused(momentum, b, d), b), p);
    }
};

/// Sgd without weight decay, dampening and Nesterov, the usual case: the same bits at half the
/// cost.
template <class T>
struct Sgd::Velocity {
    T scale, momentum, gain, minus_rate;

    UNISONO_INLINE void operator()(T& p, const T& g, T& buffer) const {
        UNISONO_NO_CONTRACTION_HERE
        const T b = detail::fused(gain, detail::product(g, scale), detail::product(momentum, buffer));
        buffer = b;
        p = detail::fused(minus_rate, b, p);
    }
};

UNISONO_NO_CONTRACTION_END

template <optimizer_element T, class Where>
void Sgd::update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                 const OptimizerStep& step, const Where& where) const {
    detail::check_update(state, parameters, gradients);
    const Plain<T> plain{{step, weight_decay}, T(-step.learning_rate)};
    if (momentum == 0) return where.apply(plain, parameters, gradients);
    const std::span<T> buffer(state.arrays[0], state.count);
    if (!nesterov && weight_decay == 0 && step.number != 1) {
        const Velocity<T> velocity{T(step.gradient_scale), T(momentum), T(1 - dampening), T(-step.learning_rate)};
        return where.apply(velocity, parameters, gradients, buffer);
    }
    const Heavy<T> heavy{plain, T(momentum), T(1 - dampening), detail::Choice<T>(nesterov),
                         detail::Choice<T>(step.number == 1)};
    where.apply(heavy, parameters, gradients, buffer);
}

UNISONO_CERTIFY(optimizer_policy<Sgd>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION void Sgd::check() const {
    detail::check_not_negative(name, "learning_rate", learning_rate);
    detail::check_fraction(name, "momentum", momentum);
    detail::check_parameter(dampening >= 0 && dampening <= 1, name, "dampening", dampening, "between 0 and 1");
    detail::check_not_negative(name, "weight_decay", weight_decay);
    if (nesterov && (momentum == 0 || dampening != 0)) {
        refuse_input({"Sgd.nesterov is set with momentum ", momentum, " and dampening ", dampening,
                      "; expected a momentum above 0 and no dampening"});
    }
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
