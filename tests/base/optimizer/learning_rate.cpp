#include <unisono/optimizer/learning_rate.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

using namespace unisono;

namespace {

RatePoint at(std::uint64_t update, std::uint64_t total = 0, std::uint64_t batch = 0) { return {update, total, batch}; }

void near(double found, double expected) {
    BOOST_TEST(std::abs(found - expected) <= 1e-15 * std::abs(expected), found << ", expected " << expected);
}

template <class Policy>
void refused(const Policy& policy, const std::string& parameter) {
    BOOST_CHECK_EXCEPTION(policy.check(), error, [&](const error& e) {
        return e.code() == ErrorCode::bad_input && std::string(e.what()).find(parameter) != std::string::npos;
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(learning_rate)

BOOST_AUTO_TEST_CASE(constant) { BOOST_TEST(ConstantRate{}.rate(0.3, at(1000)) == 0.3); }

BOOST_AUTO_TEST_CASE(warm_up_reaches_the_base_at_its_last_update) {
    const WarmupRate plain{.updates = 4};
    near(plain.rate(2, at(0)), 0.5);
    near(plain.rate(2, at(1)), 1.0);
    near(plain.rate(2, at(3)), 2.0);
    near(plain.rate(2, at(4)), 2.0);
    near(plain.rate(2, at(1000)), 2.0);
    const WarmupRate high{.updates = 4, .start_factor = 0.5};
    near(high.rate(2, at(0)), 1.25);
    near(high.rate(2, at(3)), 2.0);
}

BOOST_AUTO_TEST_CASE(cosine_falls_from_the_base_to_the_end) {
    const CosineRate cosine{.final_factor = 0.1};
    near(cosine.rate(2, at(0, 100)), 2.0);
    near(cosine.rate(2, at(50, 100)), 1.1);
    near(cosine.rate(2, at(25, 100)), 2 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
    near(cosine.rate(2, at(100, 100)), 0.2);
    near(cosine.rate(2, at(1000, 100)), 0.2);
    near(CosineRate{.updates = 10}.rate(2, at(5, 100)), 1.0);
    double before = 3;
    for (std::uint64_t u = 0; u < 100; ++u) {
        const double rate = cosine.rate(2, at(u, 100));
        BOOST_TEST(rate < before);
        before = rate;
    }
    BOOST_CHECK_THROW((void)cosine.rate(2, at(0)), error);
}

BOOST_AUTO_TEST_CASE(steps) {
    const StepDecayRate policy{.every = 10, .factor = 0.5};
    near(policy.rate(2, at(0)), 2.0);
    near(policy.rate(2, at(9)), 2.0);
    near(policy.rate(2, at(10)), 1.0);
    near(policy.rate(2, at(35)), 0.25);
}

BOOST_AUTO_TEST_CASE(the_rate_grows_with_the_global_batch) {
    near(BatchScaledRate{.base_batch = 256}.rate(0.1, at(0, 0, 1024)), 0.4);
    near(BatchScaledRate{.base_batch = 256, .scaling = BatchScaling::square_root}.rate(0.1, at(0, 0, 1024)), 0.2);
    near(BatchScaledRate{.base_batch = 256}.rate(0.1, at(0, 0, 64)), 0.025);
    BOOST_CHECK_THROW((void)BatchScaledRate{}.rate(0.1, at(0)), error);
}

BOOST_AUTO_TEST_CASE(warm_up_then_cosine) {
    const auto both = then(WarmupRate{.updates = 10}, CosineRate{});
    near(both.rate(2, at(0, 110)), 0.2);
    near(both.rate(2, at(9, 110)), 2.0);
    near(both.rate(2, at(10, 110)), 2.0);
    near(both.rate(2, at(60, 110)), 1.0);
    BOOST_TEST(both.rate(2, at(110, 110)) < 1e-15);
    BOOST_TEST(std::isfinite(both.rate(2, at(12, 5))));
    BOOST_CHECK_THROW((void)both.rate(2, at(12)), error);
}

BOOST_AUTO_TEST_CASE(scaled_then_warmed_up) {
    const auto all =
        compose(BatchScaledRate{.base_batch = 100}, then(WarmupRate{.updates = 2}, StepDecayRate{.every = 5}));
    near(all.rate(0.1, at(0, 0, 300)), 0.15);
    near(all.rate(0.1, at(6, 0, 300)), 0.3);
    near(all.rate(0.1, at(7, 0, 300)), 0.03);
    BOOST_CHECK(all == all);
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused_by_name) {
    refused(WarmupRate{.updates = 0}, "WarmupRate.updates");
    refused(StepDecayRate{.every = 0}, "StepDecayRate.every");
    refused(BatchScaledRate{.base_batch = 0}, "BatchScaledRate.base_batch");
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0}) {
        refused(WarmupRate{.updates = 1, .start_factor = bad}, "WarmupRate.start_factor");
        refused(CosineRate{.final_factor = bad}, "CosineRate.final_factor");
        refused(StepDecayRate{.every = 1, .factor = bad}, "StepDecayRate.factor");
        refused(then(WarmupRate{.updates = 1}, CosineRate{.final_factor = bad}), "CosineRate.final_factor");
        refused(compose(BatchScaledRate{}, CosineRate{.final_factor = bad}), "CosineRate.final_factor");
    }
    refused(then(CosineRate{.updates = 0}, ConstantRate{}), "CosineRate.updates");
    BOOST_CHECK_NO_THROW(then(WarmupRate{}, CosineRate{}).check());
}

BOOST_AUTO_TEST_SUITE_END()
