#pragma once

/// \file
/// RMSprop: gradients divided by their running root mean square.

#include "unisono/optimizer/optimizer.hpp"

UNISONO_NAMESPACE_BEGIN

/// g += weight_decay * p; s = alpha * s + (1 - alpha) * g * g; d = g / (sqrt(s) + epsilon); p -=
/// learning_rate * d, or with momentum b = momentum * b + d and p -= learning_rate * b. If
/// `centered` is set, a += (1 - alpha) * (g - a), and the variance s - a * a replaces s in d.
/// Sources: Tieleman & Hinton, Coursera lecture 6.5, 2012; Graves 2013, section 4.2 (centred).
struct RmsProp {
    double learning_rate = 1e-2;
    double alpha = 0.99;
    double epsilon = 1e-8;
    double weight_decay = 0;
    double momentum = 0;
    bool centered = false;

    static constexpr std::string_view name = "RmsProp";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const RmsProp&, const RmsProp&) = default;

    void check() const;

    [[nodiscard]] StateArrays state() const;

    template <optimizer_element T, class Where = OnHost>
    void update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step, const Where& where = {}) const;

    // Functors of `update`. Public, since nvcc names them outside of this class.
    template <class T>
    struct Element;
    template <class T>
    struct Plain;
    template <class T>
    struct Heavy;
    template <class T>
    struct Centered;
    template <class T>
    struct CenteredHeavy;
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct RmsProp::Element {
    detail::DecayedGradient<T> gradient;
    detail::Interpolation<T> lerp;
    T minus_rate, alpha, gain, epsilon, momentum;

    UNISONO_INLINE T squares(T before, T d) const {
        UNISONO_NO_CONTRACTION_HERE
        return detail::product(before, alpha) + detail::product(detail::product(gain, d), d);
    }
    UNISONO_INLINE T denominator(T square) const {
        UNISONO_NO_CONTRACTION_HERE
        return square_root(square) + epsilon;
    }
    UNISONO_INLINE T denominator(T square, T average) const {
        UNISONO_NO_CONTRACTION_HERE
        return square_root(square - detail::product(average, average)) + epsilon;
    }
    UNISONO_INLINE void move(T& p, T d, T divisor) const {
        UNISONO_NO_CONTRACTION_HERE
        p = p + detail::quotient(detail::product(minus_rate, d), divisor);
    }
    UNISONO_INLINE void move(T& p, T d, T divisor, T& buffer) const {
        UNISONO_NO_CONTRACTION_HERE
        const T b = detail::product(buffer, momentum) + detail::quotient(d, divisor);
        buffer = b;
        p = detail::fused(minus_rate, b, p);
    }
};

template <class T>
struct RmsProp::Plain {
    Element<T> with;
    UNISONO_INLINE void operator()(T& p, const T& g, T& square) const {
        const T d = with.gradient(p, g);
        square = with.squares(square, d);
        with.move(p, d, with.denominator(square));
    }
};

template <class T>
struct RmsProp::Heavy {
    Element<T> with;
    UNISONO_INLINE void operator()(T& p, const T& g, T& square, T& buffer) const {
        const T d = with.gradient(p, g);
        square = with.squares(square, d);
        with.move(p, d, with.denominator(square), buffer);
    }
};

template <class T>
struct RmsProp::Centered {
    Element<T> with;
    UNISONO_INLINE void operator()(T& p, const T& g, T& square, T& average) const {
        const T d = with.gradient(p, g);
        square = with.squares(square, d);
        average = with.lerp(average, d);
        with.move(p, d, with.denominator(square, average));
    }
};

template <class T>
struct RmsProp::CenteredHeavy {
    Element<T> with;
    UNISONO_INLINE void operator()(T& p, const T& g, T& square, T& buffer, T& average) const {
        const T d = with.gradient(p, g);
        square = with.squares(square, d);
        average = with.lerp(average, d);
        with.move(p, d, with.denominator(square, average), buffer);
    }
};

UNISONO_NO_CONTRACTION_END

template <optimizer_element T, class Where>
void RmsProp::update(const OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                     const OptimizerStep& step, const Where& where) const {
    detail::check_update(state, parameters, gradients);
    const Element<T> element{{step, weight_decay},
                             detail::Interpolation<T>(1 - alpha),
                             T(-step.learning_rate),
                             T(alpha),
                             T(1 - alpha),
                             T(epsilon),
                             T(momentum)};
    const auto array = [&](std::size_t i) { return std::span<T>(state.arrays[i], state.count); };
    if (momentum != 0 && centered)
        where.apply(CenteredHeavy<T>{element}, parameters, gradients, array(0), array(1), array(2));
    else if (momentum != 0) where.apply(Heavy<T>{element}, parameters, gradients, array(0), array(1));
    else if (centered) where.apply(Centered<T>{element}, parameters, gradients, array(0), array(1));
    else where.apply(Plain<T>{element}, parameters, gradients, array(0));
}

UNISONO_CERTIFY(optimizer_policy<RmsProp>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void RmsProp::check() const {
    detail::check_not_negative(name, "learning_rate", learning_rate);
    detail::check_fraction(name, "alpha", alpha);
    detail::check_not_negative(name, "epsilon", epsilon);
    detail::check_not_negative(name, "weight_decay", weight_decay);
    detail::check_fraction(name, "momentum", momentum);
}

UNISONO_DEFINITION StateArrays RmsProp::state() const {
    StateArrays arrays;
    arrays.add({"square_avg"});
    if (momentum != 0) arrays.add({"momentum_buffer"});
    if (centered) arrays.add({"grad_avg"});
    return arrays;
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
