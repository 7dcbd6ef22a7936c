// Laws of every optimizer.
#include "support/allocation_counter.hpp"

#include <unisono/optimizer/adagrad.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/rmsprop.hpp>
#include <unisono/optimizer/sgd.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

using namespace unisono;

namespace {

/// Calls `check` for every policy in every mode that has its own arithmetic.
template <class Check>
void for_each_policy(Check check) {
    check(Sgd{.learning_rate = 0.1});
    check(Sgd{.learning_rate = 0.1, .weight_decay = 0.01});
    check(Sgd{.learning_rate = 0.1, .momentum = 0.9});
    check(Sgd{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01});
    check(Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
    check(Adam{.learning_rate = 0.01});
    check(Adam{.learning_rate = 0.01, .beta1 = 0.3, .weight_decay = 0.1, .amsgrad = true});
    check(AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
    check(AdamW{.learning_rate = 0.01, .amsgrad = true});
    check(Adagrad{.learning_rate = 0.1, .learning_rate_decay = 0.1, .weight_decay = 0.01, .initial_accumulator = 0.5});
    check(RmsProp{.learning_rate = 0.01});
    check(RmsProp{.learning_rate = 0.01, .weight_decay = 0.1, .momentum = 0.9});
    check(RmsProp{.learning_rate = 0.01, .alpha = 0.4, .centered = true});
    check(RmsProp{.learning_rate = 0.01, .momentum = 0.9, .centered = true});
}

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(static_cast<double>(random()) / 2147483648.0 - 1.0);
    return values;
}

/// Parameters after a few updates, each made in the given slices.
template <class T, class Policy>
std::vector<T> train(const Policy& policy, std::size_t count, const std::vector<std::size_t>& cuts, double scale = 1,
                     T gradient_factor = 1) {
    auto parameters = random_values<T>(count, 1);
    auto state = start<T>(policy, count);
    for (unsigned number = 1; number <= 4; ++number) {
        auto gradients = random_values<T>(count, 10 + number);
        for (T& g : gradients) g *= gradient_factor;
        std::size_t begin = 0;
        for (std::size_t c = 0; c <= cuts.size(); ++c) {
            const std::size_t end = c < cuts.size() ? cuts[c] : count;
            policy.update(state.slice(begin, end - begin), std::span<T>(parameters).subspan(begin, end - begin),
                          std::span<const T>(gradients).subspan(begin, end - begin),
                          OptimizerStep{policy.learning_rate, number, scale});
            begin = end;
        }
    }
    return parameters;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class Check>
void with_both_types(Check check) {
    check(float());
    check(double());
}

bool names(const error& e, const std::string& parameter) {
    return e.code() == ErrorCode::bad_input && std::string(e.what()).find(parameter) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(optimizer_laws)

BOOST_AUTO_TEST_CASE(any_cut_into_slices_gives_the_same_bits) {
    for_each_policy([](const auto& policy) {
        with_both_types([&](auto zero) {
            using T = decltype(zero);
            const auto whole = train<T>(policy, 203, {});
            BOOST_TEST_CONTEXT(policy.name << " of " << sizeof(T) << " bytes") {
                BOOST_CHECK(same_bits(whole, train<T>(policy, 203, {101})));
                BOOST_CHECK(same_bits(whole, train<T>(policy, 203, {1, 2, 2, 3, 5, 8, 24, 25, 61, 94, 125, 126, 200})));
                std::vector<std::size_t> singles(202);
                for (std::size_t i = 0; i < singles.size(); ++i) singles[i] = i + 1;
                BOOST_CHECK(same_bits(whole, train<T>(policy, 203, singles)));
                BOOST_TEST(train<T>(policy, 0, {}).empty());
            }
        });
    });
}

BOOST_AUTO_TEST_CASE(gradients_are_scaled_first) {
    for_each_policy([](const auto& policy) {
        with_both_types([&](auto zero) {
            using T = decltype(zero);
            const double third = 1.0 / 3;
            BOOST_TEST_CONTEXT(policy.name) {
                BOOST_CHECK(same_bits(train<T>(policy, 100, {}, third), train<T>(policy, 100, {}, 1, T(third))));
                BOOST_CHECK(!same_bits(train<T>(policy, 100, {}, third), train<T>(policy, 100, {})));
            }
        });
    });
}

BOOST_AUTO_TEST_CASE(an_update_does_not_allocate) {
    for_each_policy([](const auto& policy) {
        std::vector<float> parameters(1000, 1.0F);
        const std::vector<float> gradients(1000, 0.5F);
        auto state = start<float>(policy, parameters.size());
        const std::size_t before = unisono_test::allocations_of_thread();
        for (unsigned number = 1; number <= 3; ++number) {
            policy.update(state.slice(10, 900), std::span<float>(parameters).subspan(10, 900),
                          std::span<const float>(gradients).subspan(10, 900), OptimizerStep{0.1, number, 0.5});
        }
        BOOST_TEST(unisono_test::allocations_of_thread() == before);
        BOOST_TEST(parameters[9] == 1.0F);
        BOOST_TEST(parameters[10] != 1.0F);
        BOOST_TEST(parameters[909] == parameters[10]);
        BOOST_TEST(parameters[910] == 1.0F);
    });
}

BOOST_AUTO_TEST_CASE(state_has_names_and_first_values) {
    BOOST_TEST(start<float>(Sgd{}, 7).size() == 0U);
    BOOST_TEST(start<float>(Sgd{}, 7).bytes() == 0U);
    auto state = start<float>(RmsProp{.momentum = 0.9, .centered = true}, 7);
    BOOST_REQUIRE_EQUAL(state.size(), 3U);
    BOOST_TEST(state.name(0) == "square_avg");
    BOOST_TEST(state.name(1) == "momentum_buffer");
    BOOST_TEST(state.name(2) == "grad_avg");
    BOOST_TEST(state.bytes() == 84U);
    for (std::size_t i = 0; i < 3; ++i) {
        BOOST_REQUIRE_EQUAL(state.array(i).size(), 7U);
        for (float& value : state.array(i)) BOOST_TEST(std::exchange(value, 2.0F) == 0.0F);
    }
    BOOST_TEST(state.slice(3, 2).arrays[1] == state.array(1).data() + 3);
    state.reset();
    BOOST_TEST(state.array(2)[6] == 0.0F);
    BOOST_TEST(start<double>(Adagrad{.initial_accumulator = 0.25}, 2).array(0)[1] == 0.25);
    BOOST_TEST(start<float>(Adam{.amsgrad = true}, 5).name(2) == "max_exp_avg_sq");
    BOOST_CHECK_EXCEPTION((void)state.slice(7, 1), error, [](const error& e) { return names(e, "slice"); });
    BOOST_CHECK_EXCEPTION((void)state.slice(1, std::numeric_limits<std::size_t>::max()), error,
                          [](const error& e) { return names(e, "slice"); });
    BOOST_CHECK_EXCEPTION(start<float>(Adam{}, std::numeric_limits<std::size_t>::max() / 4), error,
                          [](const error& e) { return names(e, "overflows"); });
}

// An independent loop whose every rounding is forced through memory. The results differ if a
// compiler contracts, here or in the library.
BOOST_AUTO_TEST_CASE(every_rounding_is_where_the_formula_has_it) {
    const Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    const Adam adam{.learning_rate = 0.01};
    std::vector<float> p1 = random_values<float>(5000, 1), p2 = p1;
    auto expected1 = p1, expected2 = p1;
    std::vector<float> buffer(5000), m(5000), v(5000);
    auto state1 = start<float>(sgd, 5000);
    auto state2 = start<float>(adam, 5000);
    for (unsigned number = 1; number <= 5; ++number) {
        const auto g = random_values<float>(5000, 10 + number);
        sgd.update(state1.all(), std::span<float>(p1), std::span<const float>(g), OptimizerStep{0.1, number, 1});
        adam.update(state2.all(), std::span<float>(p2), std::span<const float>(g), OptimizerStep{0.01, number, 1});
        const auto size = static_cast<float>(-(0.01 / (1 - std::pow(0.9, number))));
        const auto root = static_cast<float>(std::sqrt(1 - std::pow(0.999, number)));
        for (std::size_t i = 0; i < g.size(); ++i) {
            volatile float kept = 0.9F * buffer[i];
            buffer[i] = kept + g[i];
            expected1[i] = std::fma(-0.1F, buffer[i], expected1[i]);

            volatile float way = g[i] - m[i];
            m[i] = std::fma(static_cast<float>(1 - 0.9), way, m[i]);
            volatile float old = 0.999F * v[i];
            volatile float once = static_cast<float>(1 - 0.999) * g[i];
            volatile float twice = once * g[i];
            v[i] = old + twice;
            volatile float mean = std::sqrt(v[i]);
            volatile float corrected = mean / root;
            volatile float denominator = corrected + 1e-8F;
            volatile float numerator = size * m[i];
            volatile float change = numerator / denominator;
            expected2[i] = expected2[i] + change;
        }
    }
    BOOST_CHECK(same_bits(p1, expected1));
    BOOST_CHECK(same_bits(p2, expected2));
}

BOOST_AUTO_TEST_CASE(every_instruction_set_gives_the_same_bits) {
    const OptimizerStep step{0.1, 3, 1.0 / 3};
    const detail::DecayedGradient<float> gradient(step, 0.01);
    const detail::Interpolation<float> lerp(0.1);
    const auto functor = [ gradient, lerp ](float& p, const float& g, float& m) __attribute__((always_inline)) {
        m = lerp(m, gradient(p, g));
        p = detail::fused(-0.1F, m, p);
    };
    const auto g = random_values<float>(1003, 3);
    std::vector<float> expected;
    for (const InstructionSet set : {InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512}) {
        if (static_cast<int>(set) > static_cast<int>(best_instruction_set())) continue;
        auto p = random_values<float>(1003, 1), m = random_values<float>(1003, 2);
        detail::apply_on(set, functor, p.size(), p.data(), g.data(), m.data());
        if (set == InstructionSet::portable) expected = p;
        BOOST_CHECK_MESSAGE(same_bits(p, expected), name_of(set));
    }
}

BOOST_AUTO_TEST_CASE(dampening_does_not_touch_the_first_update) {
    const Sgd sgd{.learning_rate = 1, .momentum = 0.5, .dampening = 0.5};
    std::vector<double> p(1, 0.0);
    const std::vector<double> g(1, 1.0);
    auto state = start<double>(sgd, 1);
    sgd.update(state.all(), std::span<double>(p), std::span<const double>(g), OptimizerStep{1, 1, 1});
    BOOST_TEST(p[0] == -1.0);
    sgd.update(state.all(), std::span<double>(p), std::span<const double>(g), OptimizerStep{1, 2, 1});
    BOOST_TEST(p[0] == -2.0);
    BOOST_TEST(state.array(0)[0] == 1.0);
}

BOOST_AUTO_TEST_CASE(nan_in_a_gradient_stays_in_its_element) {
    for_each_policy([](const auto& policy) {
        std::vector<float> p(40, 1.0F), g(40, 0.5F);
        g[17] = std::numeric_limits<float>::quiet_NaN();
        auto state = start<float>(policy, p.size());
        policy.update(state.all(), std::span<float>(p), std::span<const float>(g), OptimizerStep{0.1, 1, 1});
        for (std::size_t i = 0; i < p.size(); ++i)
            BOOST_TEST(std::isnan(p[i]) == (i == 17), policy.name << " at " << i);
    });
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused_by_name) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinite = std::numeric_limits<double>::infinity();
    const auto refused = [](const auto& policy, const std::string& parameter) {
        BOOST_CHECK_EXCEPTION(start<float>(policy, 3), error,
                              [&](const error& e) { return names(e, std::string(policy.name) + "." + parameter); });
    };
    for (const double bad : {nan, infinite, -infinite, -0.1}) {
        refused(Sgd{.learning_rate = bad}, "learning_rate");
        refused(Sgd{.momentum = bad}, "momentum");
        refused(Sgd{.weight_decay = bad}, "weight_decay");
        refused(Adam{.learning_rate = bad}, "learning_rate");
        refused(Adam{.beta1 = bad}, "beta1");
        refused(Adam{.beta2 = bad}, "beta2");
        refused(Adam{.epsilon = bad}, "epsilon");
        refused(AdamW{.learning_rate = bad}, "learning_rate");
        refused(AdamW{.weight_decay = bad}, "weight_decay");
        refused(Adagrad{.learning_rate = bad}, "learning_rate");
        refused(Adagrad{.learning_rate_decay = bad}, "learning_rate_decay");
        refused(Adagrad{.weight_decay = bad}, "weight_decay");
        refused(Adagrad{.initial_accumulator = bad}, "initial_accumulator");
        refused(Adagrad{.epsilon = bad}, "epsilon");
        refused(RmsProp{.learning_rate = bad}, "learning_rate");
        refused(RmsProp{.alpha = bad}, "alpha");
        refused(RmsProp{.epsilon = bad}, "epsilon");
        refused(RmsProp{.weight_decay = bad}, "weight_decay");
        refused(RmsProp{.momentum = bad}, "momentum");
    }
    // A momentum that does not fade, or grows, is refused.
    for (const double bad : {1.0, 2.0, 1e300}) {
        refused(Sgd{.momentum = bad}, "momentum");
        refused(RmsProp{.momentum = bad}, "momentum");
        refused(RmsProp{.alpha = bad}, "alpha");
        refused(Adam{.beta1 = bad}, "beta1");
        refused(Adam{.beta2 = bad}, "beta2");
        refused(AdamW{.beta1 = bad}, "beta1");
        refused(AdamW{.beta2 = bad}, "beta2");
    }
    for (const double bad : {nan, -0.1, 1.1}) refused(Sgd{.momentum = 0.9, .dampening = bad}, "dampening");
    refused(Sgd{.nesterov = true}, "nesterov");
    refused(Sgd{.momentum = 0.9, .dampening = 0.1, .nesterov = true}, "nesterov");
    BOOST_CHECK_NO_THROW(start<float>(Sgd{.learning_rate = 0}, 3));
}

// Computed by hand: the state of earlier updates shows in the second and third.
BOOST_AUTO_TEST_CASE(three_updates_by_hand) {
    const auto after = [](const auto& policy, std::initializer_list<double> gradients) {
        auto state = start<double>(policy, 1);
        std::vector<double> parameter(1);
        std::uint64_t number = 0;
        for (const double g : gradients) {
            const std::vector<double> gradient = {g};
            policy.update(state.all(), std::span<double>(parameter), std::span<const double>(gradient),
                          {policy.learning_rate, ++number, 1.0});
        }
        return parameter[0];
    };
    const auto close = [](double found, double expected) { BOOST_TEST(std::abs(found - expected) < 1e-12); };
    close(after(Adagrad{.learning_rate = 1, .learning_rate_decay = 1, .epsilon = 0}, {1, 1, 1}),
          -(1 + 1 / (2 * std::sqrt(2.0)) + 1 / (3 * std::sqrt(3.0))));
    const Adam amsgrad{.learning_rate = 1, .beta1 = 0, .beta2 = 0.5, .epsilon = 0, .amsgrad = true};
    close(after(amsgrad, {4, 1, 1}), -(1 + (std::sqrt(0.75) + std::sqrt(0.875)) / std::sqrt(8.0)));
    close(after(Sgd{.learning_rate = 1, .momentum = 0.5, .dampening = 0.25}, {1, 1, 1}), -(1 + 1.25 + 1.375));
}

BOOST_AUTO_TEST_CASE(policies_are_plain_values) {
    static_assert(std::is_aggregate_v<Sgd> && std::is_aggregate_v<Adam> && std::is_aggregate_v<AdamW>);
    static_assert(std::is_aggregate_v<Adagrad> && std::is_aggregate_v<RmsProp>);
    BOOST_CHECK((Sgd{.learning_rate = 1} == Sgd{.learning_rate = 1}));
    BOOST_CHECK((Sgd{.learning_rate = 1} != Sgd{.learning_rate = 2}));
}

BOOST_AUTO_TEST_SUITE_END()
