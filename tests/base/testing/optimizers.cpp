#include "support.hpp"

#include "unisono/optimizer/adagrad.hpp"
#include "unisono/optimizer/adam.hpp"
#include "unisono/optimizer/rmsprop.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/testing/optimizer_laws.hpp"

#include <algorithm>
#include <cmath>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

namespace {

/// The archetype, except for what `Way` does.
template <class Way>
struct MutantOptimizer {
    double learning_rate = 0.1;
    static constexpr std::string_view name = "mutant optimizer";
    static constexpr un::Family family = un::Family::optimizer;
    friend bool operator==(const MutantOptimizer&, const MutantOptimizer&) = default;
    void check() const { Way::check(learning_rate); }
    [[nodiscard]] un::StateArrays state() const { return Way::state(); }
    template <un::optimizer_element T>
    void update(const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                const un::OptimizerStep& step) const {
        Way::update(*this, state, p, g, step);
    }
};

struct Lawful {
    static void check(double rate) {
        if (!(rate >= 0) || std::isinf(rate)) un::refuse_input("learning_rate is bad");
    }
    static un::StateArrays state() { return {}; }
    template <class T>
    static void update(const auto&, const un::OptimizerSlice<T>&, std::span<T> p, std::span<const T> g,
                       const un::OptimizerStep& step) {
        for (std::size_t i = 0; i < p.size(); ++i) {
            const T scaled = g[i] * T(step.gradient_scale);
            p[i] = T(std::fma(-T(step.learning_rate), scaled, p[i]));
        }
    }
};
struct DividesByTheNorm : Lawful {
    template <class T>
    static void update(const auto&, const un::OptimizerSlice<T>&, std::span<T> p, std::span<const T> g,
                       const un::OptimizerStep& step) {
        T norm = 0;
        for (const T x : g) norm += x * x;
        for (std::size_t i = 0; i < p.size(); ++i) p[i] -= T(step.learning_rate * step.gradient_scale) * g[i] / norm;
    }
};
struct ForgetsTheRest : Lawful { // of what exceeds its buffer
    template <class T>
    static void update(const auto& self, const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                       const un::OptimizerStep& step) {
        const std::size_t n = std::min<std::size_t>(p.size(), 1024);
        Lawful::update(self, state, p.first(n), g.first(n), step);
    }
};
struct IgnoresTheScale : Lawful {
    template <class T>
    static void update(const auto& self, const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                       un::OptimizerStep step) {
        step.gradient_scale = 1;
        Lawful::update(self, state, p, g, step);
    }
};
struct ScalesTheDecayToo : Lawful {
    template <class T>
    static void update(const auto&, const un::OptimizerSlice<T>&, std::span<T> p, std::span<const T> g,
                       const un::OptimizerStep& step) {
        for (std::size_t i = 0; i < p.size(); ++i)
            p[i] -= T(step.learning_rate) * ((g[i] + T(0.1) * p[i]) * T(step.gradient_scale));
    }
};
struct UsesItsOwnRate : Lawful {
    template <class T>
    static void update(const auto& self, const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                       un::OptimizerStep step) {
        step.learning_rate = self.learning_rate;
        Lawful::update(self, state, p, g, step);
    }
};
struct RunsOver : Lawful {
    template <class T>
    static void update(const auto& self, const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                       const un::OptimizerStep& step) {
        Lawful::update(self, state, p, g, step);
        if (!p.empty()) p.data()[p.size()] = T(0); // the trial has room there
    }
};
struct Remembers : Lawful {
    template <class T>
    static void update(const auto& self, const un::OptimizerSlice<T>& state, std::span<T> p, std::span<const T> g,
                       un::OptimizerStep step) {
        static int updates = 0;
        step.learning_rate /= ++updates;
        Lawful::update(self, state, p, g, step);
    }
};
struct TwoOfOneName : Lawful {
    static un::StateArrays state() {
        un::StateArrays arrays;
        arrays.add({"velocity"});
        arrays.add({"velocity"});
        return arrays;
    }
};
struct AcceptsAnything : Lawful {
    static void check(double) {}
};
struct RefusesWithoutWords : Lawful {
    static void check(double rate) {
        if (!(rate >= 0) || std::isinf(rate)) un::refuse_input("bad");
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(certified_optimizers)

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(optimizer_laws(ArchetypeOptimizer{}));
    expect_lawful(optimizer_laws(MutantOptimizer<Lawful>{}));
    expect_lawful(optimizer_laws(un::Sgd{.learning_rate = 0.1, .weight_decay = 0.01}));
    expect_lawful(optimizer_laws(un::Sgd{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.3}));
    expect_lawful(optimizer_laws(un::Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}));
    expect_lawful(optimizer_laws(un::Adam{}));
    expect_lawful(optimizer_laws(un::Adam{.weight_decay = 0.1, .amsgrad = true}));
    expect_lawful(optimizer_laws(un::AdamW{.weight_decay = 0.1}));
    expect_lawful(optimizer_laws(un::Adagrad{.learning_rate_decay = 0.1, .initial_accumulator = 0.5}));
    expect_lawful(optimizer_laws(un::RmsProp{}));
    expect_lawful(optimizer_laws(un::RmsProp{.momentum = 0.9, .centered = true}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(optimizer_laws(MutantOptimizer<DividesByTheNorm>{}),
                    {"mutant optimizer", "an element depends on another"});
    expect_reported(optimizer_laws(MutantOptimizer<ForgetsTheRest>{}), {"at once and in 2 slices", "its position"});
    expect_reported(optimizer_laws(MutantOptimizer<IgnoresTheScale>{}), {"gradient_scale 0.25 "});
    expect_reported(optimizer_laws(MutantOptimizer<ScalesTheDecayToo>{}), {"it must come first"});
    expect_reported(optimizer_laws(MutantOptimizer<UsesItsOwnRate>{}), {"it must use the step's"});
    expect_reported(optimizer_laws(MutantOptimizer<RunsOver>{}), {"outside of"});
    expect_reported(optimizer_laws(MutantOptimizer<Remembers>{}), {"twice give different bits"});
    expect_reported(optimizer_laws(MutantOptimizer<TwoOfOneName>{}), {"named velocity"});
    expect_reported(optimizer_laws(MutantOptimizer<AcceptsAnything>{}), {"check() accepts a learning_rate of nan"});
    expect_reported(optimizer_laws(MutantOptimizer<RefusesWithoutWords>{}), {"without naming it"});
}

BOOST_AUTO_TEST_SUITE_END()
