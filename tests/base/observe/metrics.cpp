#include <unisono/extensions/observe/classification.hpp>
#include <unisono/observe/metric.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <random>

using namespace unisono;

namespace {

/// Feeds `samples` to one metric, and to several that are sent as bytes and merged. The bits must
/// be equal.
template <class M, class Feed>
void merging_equals_one_rank(std::size_t samples, Feed feed, std::mt19937& random) {
    M whole;
    for (std::size_t i = 0; i < samples; ++i) feed(whole, i);
    for (const std::size_t ranks : {1U, 2U, 3U, 7U, 40U}) {
        std::vector<M> parts(ranks);
        for (std::size_t i = 0; i < samples; ++i) feed(parts[random() % ranks], i);
        M merged;
        for (const M& part : parts) merge_bytes(merged, metric_bytes(part));
        M in_place;
        for (const M& part : parts) in_place.merge(part);
        const auto expected = std::bit_cast<std::uint64_t>(static_cast<double>(whole.value()));
        BOOST_TEST(std::bit_cast<std::uint64_t>(static_cast<double>(merged.value())) == expected, merged.value());
        BOOST_TEST(std::bit_cast<std::uint64_t>(static_cast<double>(in_place.value())) == expected, in_place.value());
    }
}

double uniform(std::mt19937& random) { return static_cast<double>(random()) / 4294967296.0; }

/// The definition, over all pairs.
double area_by_pairs(const std::vector<double>& scores, const std::vector<bool>& labels) {
    double won = 0, pairs = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        for (std::size_t j = 0; j < scores.size(); ++j) {
            if (!labels[i] || labels[j]) continue;
            pairs += 1;
            won += scores[i] > scores[j] ? 1 : (scores[i] == scores[j] ? 0.5 : 0);
        }
    }
    return won / pairs;
}

/// A user's metric.
struct LongestMetric {
    std::size_t length = 0;
    void merge(const LongestMetric& other) { length = std::max(length, other.length); }
    [[nodiscard]] double value() const { return static_cast<double>(length); }
};
static_assert(mergeable_metric<LongestMetric>);

struct NoValue {
    void merge(const NoValue&) {}
};
static_assert(!mergeable_metric<NoValue>);
struct NoWayToTravel {
    std::vector<double> state;
    void merge(const NoWayToTravel&) {}
    [[nodiscard]] double value() const { return 0; }
};
static_assert(!mergeable_metric<NoWayToTravel>);

} // namespace

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(merging_over_any_split_equals_one_rank_to_the_bit) {
    std::mt19937 random(3);
    for (const std::size_t samples : {0U, 1U, 5U, 300U}) {
        std::vector<double> values(samples), weights(samples), scores(samples);
        std::vector<bool> labels(samples), guesses(samples);
        for (std::size_t i = 0; i < samples; ++i) {
            values[i] = std::ldexp(uniform(random) - 0.5, static_cast<int>(random() % 200) - 100);
            weights[i] = uniform(random);
            scores[i] = static_cast<double>(random() % 50) / 49;
            labels[i] = uniform(random) < scores[i];
            guesses[i] = scores[i] > 0.5;
        }
        if (samples != 0) { // otherwise NaN, whose bits are not promised
            merging_equals_one_rank<MeanMetric>(
                samples, [&](auto& m, std::size_t i) { m.add(values[i], weights[i]); }, random);
            merging_equals_one_rank<AccuracyMetric>(
                samples, [&](auto& m, std::size_t i) { m.add(guesses[i], labels[i]); }, random);
        }
        if (samples > 5) {
            merging_equals_one_rank<AucMetric>(
                samples, [&](auto& m, std::size_t i) { m.add(scores[i], labels[i]); }, random);
            merging_equals_one_rank<BinnedAucMetric<>>(
                samples, [&](auto& m, std::size_t i) { m.add(scores[i], labels[i]); }, random);
        }
        merging_equals_one_rank<SumMetric>(
            samples, [&](auto& m, std::size_t i) { m.add(values[i]); }, random);
        merging_equals_one_rank<MaxMetric>(
            samples, [&](auto& m, std::size_t i) { m.add(values[i]); }, random);
        merging_equals_one_rank<MinMetric>(
            samples, [&](auto& m, std::size_t i) { m.add(values[i]); }, random);
        merging_equals_one_rank<F1Metric>(
            samples, [&](auto& m, std::size_t i) { m.add(guesses[i], labels[i]); }, random);
        merging_equals_one_rank<LongestMetric>(
            samples, [&](auto& m, std::size_t i) { m.length = std::max(m.length, i % 17); }, random);
    }
}

BOOST_AUTO_TEST_CASE(an_exact_sum_is_rounded_once) {
    const auto sum = [](std::initializer_list<double> values) {
        ExactSum exact;
        for (const double x : values) exact.add(x);
        return exact.value();
    };
    const double most = std::numeric_limits<double>::max();
    const double least = std::numeric_limits<double>::denorm_min();
    const double normal = std::numeric_limits<double>::min();
    BOOST_TEST(sum({}) == 0.0);
    BOOST_TEST(sum({1e100, 1, -1e100}) == 1.0);
    BOOST_TEST(sum({1, 0x1p-53}) == 1.0);                // a tie goes to even
    BOOST_TEST(sum({1, 0x1p-53, least}) == 1 + 0x1p-52); // and anything below it decides
    BOOST_TEST(sum({1, 0x1p-53, -least}) == 1.0);
    BOOST_TEST(sum({1 + 0x1p-52, 0x1p-53}) == 1 + 0x1p-51);
    BOOST_TEST(sum({-1, -0x1p-53, -least}) == -1 - 0x1p-52);
    BOOST_TEST(sum({least}) == least);
    BOOST_TEST(sum({least, least, least}) == 3 * least);
    BOOST_TEST(sum({-least, normal}) == normal - least);
    BOOST_TEST(sum({normal, -least, least}) == normal);
    BOOST_TEST(sum({most}) == most);
    BOOST_TEST(sum({-most}) == -most);
    BOOST_TEST(sum({most, most}) == std::numeric_limits<double>::infinity());
    BOOST_TEST(sum({most, most, -most}) == most);
    BOOST_TEST(sum({-most, -most}) == -std::numeric_limits<double>::infinity());
    BOOST_TEST(std::isnan(sum({1, std::numeric_limits<double>::quiet_NaN()})));
    const double infinite = std::numeric_limits<double>::infinity();
    BOOST_TEST(sum({1, infinite}) == infinite);
    BOOST_TEST(std::isnan(sum({infinite, -infinite})));
    for (int exponent = -1074; exponent < 1024; ++exponent) {
        const double power = std::ldexp(1.0, exponent);
        BOOST_TEST(sum({power}) == power);
        BOOST_TEST(sum({power, power, -power}) == power);
        BOOST_TEST(sum({-power, 3 * least}) ==
                   // Of two numbers, IEEE's sum is the exact one, rounded.
                   -power + 3 * least);
        BOOST_TEST(sum({power, 1.1}) == power + 1.1);
    }
}

BOOST_AUTO_TEST_CASE(two_random_numbers_sum_as_the_processor_has_it) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 100'000; ++i) {
        auto bits = [&] {
            const auto x = std::bit_cast<double>(random());
            return std::isfinite(x) ? x : 1.0;
        };
        const double a = bits();
        const double b =
            i % 2 != 0 ? bits() : a * (uniform(*std::make_unique<std::mt19937>(static_cast<unsigned>(i))) - 1.5);
        if (!std::isfinite(a + b)) continue;
        ExactSum exact;
        exact.add(a);
        exact.add(b);
        BOOST_REQUIRE_EQUAL(exact.value(), a + b);
    }
}

BOOST_AUTO_TEST_CASE(many_additions_are_carried) {
    ExactSum exact;
    ExactSum doubled;
    exact.add(0x1.fffffffffffffp+0);
    // 2^40 times the same number, by doubling.
    for (int i = 0; i < 40; ++i) {
        doubled = exact;
        exact.merge(doubled);
    }
    BOOST_TEST(exact.value() == 0x1.fffffffffffffp+40);
    ExactSum product;
    product.add_product(1.0 / 3, 1.0 / 3);
    product.add(-1.0 / 9);
    BOOST_TEST(product.value() == std::fma(1.0 / 3, 1.0 / 3, -1.0 / 9));
}

BOOST_AUTO_TEST_CASE(values_by_hand) {
    MeanMetric mean;
    BOOST_TEST(std::isnan(mean.value()));
    mean.add(1, 3);
    mean.add(5, 1);
    BOOST_TEST(mean.value() == 2.0);
    BOOST_TEST(mean.weight() == 4.0);
    mean.add(std::nan(""), 0); // a mean over nothing
    mean.add(std::numeric_limits<double>::infinity(), 0);
    BOOST_TEST(mean.value() == 2.0);
    BOOST_TEST(mean.weight() == 4.0);

    AccuracyMetric accuracy;
    accuracy.add(3, 3);
    accuracy.add(3, 4);
    accuracy.add(true);
    accuracy.add(false);
    BOOST_TEST(accuracy.value() == 0.5);
    BOOST_TEST(accuracy.all() == 4U);
    AccuracyMetric of_two_types;
    of_two_types.add(3, std::int64_t{3});
    of_two_types.add(std::size_t{3}, 3);
    of_two_types.add(-1, ~std::size_t{0}); // they differ
    of_two_types.add(std::string("cat"), "cat");
    BOOST_TEST(of_two_types.right() == 3U);
    BOOST_TEST(of_two_types.all() == 4U);

    F1Metric f1;
    BOOST_TEST(f1.value() == 0.0);
    f1.add(true, true);
    f1.add(true, true);
    f1.add(true, false);
    f1.add(false, true);
    f1.add(false, false);
    BOOST_TEST(f1.precision() == 2.0 / 3);
    BOOST_TEST(f1.recall() == 2.0 / 3);
    BOOST_TEST(f1.value() == 4.0 / 6);

    MaxMetric most;
    most.add(-3);
    BOOST_TEST(most.value() == -3.0);
    MaxMetric not_a_number;
    not_a_number.add(std::nan(""));
    not_a_number.add(7);
    most.merge(not_a_number);
    BOOST_TEST(std::isnan(most.value()));
    MinMetric least;
    least.add(2);
    least.add(3);
    BOOST_TEST(least.value() == 2.0);
}

BOOST_AUTO_TEST_CASE(the_area_is_the_share_of_ordered_pairs) {
    std::mt19937 random(11);
    for (int trial = 0; trial < 50; ++trial) {
        std::vector<double> scores(2 + random() % 60);
        std::vector<bool> labels(scores.size());
        AucMetric exact;
        BinnedAucMetric<16> binned;
        for (std::size_t i = 0; i < scores.size(); ++i) {
            scores[i] = static_cast<double>(random() % 16) / 16;
            labels[i] = i == 0 || (i > 1 && random() % 2 == 0);
            exact.add(scores[i], labels[i]);
            binned.add(scores[i], labels[i]);
        }
        const double expected = area_by_pairs(scores, labels);
        BOOST_TEST(std::abs(exact.value() - expected) < 1e-15);
        BOOST_TEST(binned.value() == exact.value()); // scores on the bins' own grid
    }
    AucMetric one_class;
    one_class.add(0.5, true);
    BOOST_TEST(std::isnan(one_class.value()));
    AucMetric self;
    self.add(0.1, false);
    self.add(0.9, true);
    self.merge(self);
    BOOST_TEST(self.size() == 4U);
    BOOST_TEST(self.value() == 1.0);
    BinnedAucMetric<4> outside;
    outside.add(-7, false);
    outside.add(1, true);
    outside.add(std::numeric_limits<double>::infinity(), true);
    BOOST_TEST(outside.value() == 1.0);
}

BOOST_AUTO_TEST_CASE(bad_input_is_refused) {
    AucMetric exact;
    BOOST_CHECK_THROW(exact.add(std::nan(""), true), error);
    BOOST_CHECK_THROW(BinnedAucMetric<>().add(std::nan(""), true), error);
    const std::vector<std::byte> odd(3);
    BOOST_CHECK_THROW(merge_bytes(exact, odd), error);
    const std::vector<std::byte> half(8);
    BOOST_CHECK_THROW(merge_bytes(exact, half), error);
    F1Metric f1;
    BOOST_CHECK_THROW(merge_bytes(f1, half), error);
}

BOOST_AUTO_TEST_SUITE_END()
