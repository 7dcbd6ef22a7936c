#pragma once

/// \file
/// Adagrad: learning rates that decrease with the sum of squared gradients.

#include "unisono/optimizer/optimizer.hpp"

UNISONO_NAMESPACE_BEGIN

/// g += weight_decay * p; s += g * g; p -= r * g / (sqrt(s) + epsilon) with r = learning_rate / (1
/// + (n - 1) * learning_rate_decay) at update n. Source: Duchi, Hazan & Singer, JMLR 2011, diagonal
/// form.
struct Adagrad {
    double learning_rate = 1e-2;
    double learning_rate_decay = 0;
    double weight_decay = 0;
    double initial_accumulator = 0;
    double epsilon = 1e-10;

    static constexpr std::string_view name = "Adagrad";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const Adagrad&, const Adagrad&) = default;

    void check() const;

    [[nodiscard]] StateArrays state() const {
        StateArrays arrays;
        arrays.add({"sum", initial_accumulator});
        return arrays;
    }

    template <optimizer_element T, class Where = OnHost>
    void update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step, const Where& where = {}) const;

    // Functors of `update`. Public, since nvcc names them outside of this class.
    template <class T>
    struct Element;
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct Adagrad::Element {
    detail::DecayedGradient<T> gradient;
    T minus_rate, epsilon;

    UNISONO_INLINE void operator()(T& p, const T& g, T& sum) const {
        UNISONO_NO_CONTRACTION_HERE
        const T d = gradient(p, g);
        const T s = sum + detail::product(d, d);
        sum = s;
        p = p + detail::quotient(detail::product(minus_rate, d), square_root(s) + epsilon);
    }
};

UNISONO_NO_CONTRACTION_END

template <optimizer_element T, class Where>
void Adagrad::update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                     const OptimizerStep& step, const Where& where) const {
    detail::check_update(state, parameters, gradients);
    const double rate = step.learning_rate / (1 + static_cast<double>(step.number - 1) * learning_rate_decay);
    const Element<T> element{{step, weight_decay}, T(-rate), T(epsilon)};
    where.apply(element, parameters, gradients, std::span<T>(state.arrays[0], state.count));
}

UNISONO_CERTIFY(optimizer_policy<Adagrad>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void Adagrad::check() const {
    detail::check_not_negative(name, "learning_rate", learning_rate);
    detail::check_not_negative(name, "learning_rate_decay", learning_rate_decay);
    detail::check_not_negative(name, "weight_decay", weight_decay);
    detail::check_not_negative(name, "initial_accumulator", initial_accumulator);
    detail::check_not_negative(name, "epsilon", epsilon);
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
