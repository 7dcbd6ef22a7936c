#pragma once

/// \file
/// The laws of optimizer/optimizer.hpp for any optimizer, and a minimal optimizer.

#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal optimizer: p -= rate * g, without state. The update is a functor that the library
/// applies in a region where the compiler must not fuse multiplications and additions. So any cut
/// into slices gives the same bits.
struct ArchetypeOptimizer {
    double learning_rate = 0.1;

    static constexpr std::string_view name = "archetype optimizer";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const ArchetypeOptimizer&, const ArchetypeOptimizer&) = default;

    void check() const {
        if (!(learning_rate >= 0 && learning_rate <= std::numeric_limits<double>::max()))
            refuse_input(
                {"ArchetypeOptimizer.learning_rate is ", learning_rate, "; expected a finite number of at least 0"});
    }
    [[nodiscard]] StateArrays state() const { return {}; }

    template <optimizer_element T>
    void update(const OptimizerSlice<T>&, std::span<T> parameters, std::span<const T> gradients,
                const OptimizerStep& step) const {
        apply(Element<T>{T(step.gradient_scale), T(step.learning_rate)}, parameters, gradients);
    }

private:
    template <class T>
    struct Element;
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct ArchetypeOptimizer::Element {
    T scale, rate;
    UNISONO_INLINE void operator()(T& p, const T& g) const {
        UNISONO_NO_CONTRACTION_HERE
        const T scaled = g * scale;
        p = p - rate * scaled;
    }
};

UNISONO_NO_CONTRACTION_END

static_assert(optimizer_policy<ArchetypeOptimizer>);

namespace detail {

/// Parameters and state after a few updates. `cuts` gives the slices, and their offset in a larger
/// memory.
template <class T, optimizer_policy Policy>
class OptimizerRun {
public:
    static constexpr std::size_t count = 5003;
    static constexpr std::size_t margin = 5; ///< elements around the slices, which an update must not change
    static constexpr unsigned updates = 4;

    std::vector<std::size_t> cuts = {};
    double gradient_scale = 1;
    bool prescaled = false; ///< the gradients are scaled already, and the scale is 1

    std::vector<T> operator()(const Policy& policy) {
        std::vector<T> parameters = values(count + 2 * margin, 1);
        OptimizerState<T> state = start<T>(policy, count + 2 * margin);
        const std::vector<T> before = all_values(parameters, state);
        for (unsigned number = 1; number <= updates; ++number) {
            std::vector<T> gradients = values(count + 2 * margin, 1 + number);
            if (prescaled)
                for (T& g : gradients) g = g * static_cast<T>(gradient_scale);
            const OptimizerStep step{0.05 / number, number, prescaled ? 1.0 : gradient_scale};
            std::size_t begin = margin;
            for (std::size_t c = 0; c <= cuts.size(); ++c) {
                const std::size_t end = margin + (c < cuts.size() ? cuts[c] : count);
                policy.update(state.slice(begin, end - begin), std::span<T>(parameters).subspan(begin, end - begin),
                              std::span<const T>(gradients).subspan(begin, end - begin), step);
                begin = end;
            }
        }
        std::vector<T> after = all_values(parameters, state);
        const std::size_t row = count + 2 * margin;
        for (std::size_t i = 0; i < after.size(); ++i) {
            const bool outside = i % row < margin || i % row >= margin + count;
            if (outside && std::memcmp(&after[i], &before[i], sizeof(T)) != 0) stayed_within = false;
        }
        return after;
    }
    bool stayed_within = true;

private:
    static std::vector<T> values(std::size_t n, std::uint32_t stream) {
        CounterRandom random{7, stream};
        std::vector<T> made(n);
        for (T& value : made) value = static_cast<T>(random.uniform() * 2 - 1);
        return made;
    }
    static std::vector<T> all_values(const std::vector<T>& parameters, const OptimizerState<T>& state) {
        std::vector<T> all = parameters;
        for (std::size_t i = 0; i < state.size(); ++i)
            all.insert(all.end(), state.array(i).begin(), state.array(i).end());
        return all;
    }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T, optimizer_policy Policy>
void optimizer_laws_of(const Policy& policy, Violations& found) {
    using Run = OptimizerRun<T, Policy>;
    const std::string of = sizeof(T) == 4 ? " (float)" : " (double)";
    Run whole_run;
    const std::vector<T> whole = whole_run(policy);
    if (!whole_run.stayed_within) found.add(concat({"an update changed elements outside of its slice", of}));
    if (!same_bits(whole, Run{}(policy))) found.add(concat({"the same updates twice give different bits", of}));
    if (!same_bits(whole, Run{}(Policy(policy)))) found.add(concat({"a copy gives different bits", of}));

    std::vector<std::size_t> singles(Run::count - 1);
    for (std::size_t i = 0; i < singles.size(); ++i) singles[i] = i + 1;
    const std::vector<std::size_t> splits[] = {
        {101}, {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, Run::count}, {7, 64, 128, 192, 4096}, singles};
    for (const auto& cuts : splits) {
        Run run;
        run.cuts = cuts;
        const auto cut = run(policy);
        if (!same_bits(whole, cut))
            found.add(concat({"updating [0, n) at once and in ", cuts.size() + 1,
                              " slices give different bits: an element depends on another, or on its position", of}));
        if (!run.stayed_within) found.add(concat({"updating in slices changed elements outside of them", of}));
    }

    for (const double scale : {0.25, 1.0 / 3.0}) {
        Run scaled, prescaled;
        scaled.gradient_scale = prescaled.gradient_scale = scale;
        prescaled.prescaled = true;
        if (!same_bits(scaled(policy), prescaled(policy)))
            found.add(concat({"gradient_scale ", number_text(scale),
                              " and gradients multiplied by it give different bits: it must come first", of}));
    }

    // The rate of an update is that of the step. The policy's own rate is only the base from which
    // the step's rate was computed.
    if constexpr (requires(Policy changed) { changed.learning_rate = 0.5; }) {
        Policy changed = policy;
        changed.learning_rate = policy.learning_rate + 0.5;
        if (!same_bits(whole, Run{}(changed)))
            found.add(
                concat({"update() uses the policy's learning_rate; it must use the step's, which schedules vary", of}));
    }
}

} // namespace detail

/// Slices, gradient scale, determinism, names and refusals, for float and double.
template <optimizer_policy Policy>
Violations optimizer_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    try {
        policy.check();
    } catch (const std::exception& refusal) {
        found.add(concat({"check() refuses the policy that is tried: ", refusal.what()}));
        return found;
    }
    if constexpr (requires(Policy bad) { bad.learning_rate = 0.5; }) {
        for (const double rate :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0}) {
            Policy bad = policy;
            bad.learning_rate = rate;
            const std::string what = concat({"a learning_rate of ", number_text(rate)});
            try {
                bad.check();
                found.add(concat({"check() accepts ", what}));
            } catch (const error& refusal) {
                if (refusal.code() != ErrorCode::bad_input)
                    found.add(
                        concat({"check() refuses ", what, " with ", name_of(refusal.code()), "; expected bad_input"}));
                if (std::string(refusal.what()).find("learning_rate") == std::string::npos)
                    found.add(concat({"check() refuses ", what, " without naming it: ", refusal.what()}));
            } catch (const std::exception& other) {
                found.add(
                    concat({"check() refuses ", what, " with something that is not a unisono::error: ", other.what()}));
            }
        }
    }
    const StateArrays arrays = policy.state();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (arrays[i].name.empty()) found.add(concat({"array ", i, " of the state has no name"}));
        for (std::size_t j = 0; j < i; ++j)
            if (arrays[i].name == arrays[j].name)
                found.add(concat({"two arrays of the state are named ", arrays[i].name}));
    }
    const StateArrays again = policy.state();
    if (!std::equal(arrays.begin(), arrays.end(), again.begin(), again.end()))
        found.add("state() differs from call to call");
    detail::optimizer_laws_of<float>(policy, found);
    detail::optimizer_laws_of<double>(policy, found);
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
