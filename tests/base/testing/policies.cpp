// Accumulation, guards, learning rates, metrics, schedules.
#include "support.hpp"

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/extensions/observe/classification.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/testing/accumulation_laws.hpp"
#include "unisono/testing/guard_laws.hpp"
#include "unisono/testing/learning_rate_laws.hpp"
#include "unisono/testing/metric_laws.hpp"
#include "unisono/testing/schedule_laws.hpp"

#include <limits>

#include <algorithm>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

BOOST_AUTO_TEST_SUITE(certified_accumulation)

namespace {

struct AfterThree {
    un::Totals sum = {};
    void add(const un::Totals& round) { sum = sum + round; }
    void reset() { sum = {}; }
    [[nodiscard]] bool would_close(const un::Totals& next) const { return sum.micro_batches + next.micro_batches >= 3; }
    [[nodiscard]] bool closed() const { return sum.micro_batches >= 3; }
    [[nodiscard]] bool due_at_end() const { return sum.samples > 0; }
    [[nodiscard]] const un::Totals& totals() const { return sum; }
};
template <class Window, bool CountsTokens = false>
struct Accumulating {
    static constexpr std::string_view name = "mutant accumulation";
    static constexpr un::Family family = un::Family::accumulation;
    static constexpr bool counts_tokens = CountsTokens;
    friend bool operator==(const Accumulating&, const Accumulating&) = default;
    [[nodiscard]] Window window(std::int64_t) const { return {}; }
};

struct OneTooLate : AfterThree {
    [[nodiscard]] bool would_close(const un::Totals&) const { return closed(); }
};
struct NeverReset : AfterThree {
    void reset() {}
};
struct ExactlyThree : AfterThree {
    [[nodiscard]] bool would_close(const un::Totals& next) const { return sum.micro_batches + next.micro_batches == 3; }
    [[nodiscard]] bool closed() const { return sum.micro_batches == 3; }
};
struct Never : AfterThree {
    [[nodiscard]] bool would_close(const un::Totals&) const { return false; }
    [[nodiscard]] bool closed() const { return false; }
};
struct AfterTokens : AfterThree {
    [[nodiscard]] bool would_close(const un::Totals& next) const { return sum.tokens + next.tokens >= 100; }
    [[nodiscard]] bool closed() const { return sum.tokens >= 100; }
};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(accumulation_laws(ArchetypeAccumulation{}));
    for (const std::int64_t hosted : {1, 3}) {
        expect_lawful(accumulation_laws(un::NoAccumulation{}, {.hosted = hosted}));
        expect_lawful(accumulation_laws(un::Accumulate{.steps = 6}, {.hosted = hosted}));
        expect_lawful(
            accumulation_laws(un::Accumulate{.steps = 3, .short_window = un::ShortWindow::drop}, {.hosted = hosted}));
        expect_lawful(accumulation_laws(un::AccumulateSamples{.samples = 40}, {.hosted = hosted}));
        expect_lawful(accumulation_laws(un::AccumulateTokens{.tokens = 500}, {.hosted = hosted}));
    }
    expect_lawful(accumulation_laws(Accumulating<AfterThree>{}));
    expect_lawful(accumulation_laws(Accumulating<AfterTokens, true>{}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(accumulation_laws(Accumulating<OneTooLate>{}),
                    {"mutant accumulation", "although would_close() was false"});
    expect_reported(accumulation_laws(Accumulating<NeverReset>{}), {"a window after reset() has totals"});
    expect_reported(accumulation_laws(Accumulating<ExactlyThree>{}), {"opened again"});
    expect_reported(accumulation_laws(Accumulating<Never>{}), {"did not close within 65536 rounds"});
    expect_reported(accumulation_laws(Accumulating<AfterTokens>{}), {"depends on tokens"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_guards)

namespace {

template <class Find, bool Inspects = true>
struct Guarding {
    static constexpr std::string_view name = "mutant guard";
    static constexpr un::Family family = un::Family::guard;
    static constexpr bool inspects = Inspects;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const Guarding&, const Guarding&) = default;
    template <class T>
    [[nodiscard]] std::size_t first_offender(std::span<const T> values) const {
        return Find::find(values);
    }
    [[nodiscard]] un::OnOffence on_offence() const { return un::OnOffence::skip; }
};
struct WholeVectorsOnly { // forgets the tail
    template <class T>
    static std::size_t find(std::span<const T> values) {
        return un::first_non_finite(values.first(values.size() / 8 * 8));
    }
};
struct FirstVectorsOnly { // ignores what exceeds its buffer
    template <class T>
    static std::size_t find(std::span<const T> values) {
        return un::first_non_finite(values.first(std::min<std::size_t>(values.size(), 4096)));
    }
};
struct TheLast {
    template <class T>
    static std::size_t find(std::span<const T> values) {
        for (std::size_t i = values.size(); i-- > 0;)
            if (un::first_non_finite(values.subspan(i, 1)) == 0) return i;
        return un::no_offender;
    }
};
struct SmallAreBad {
    template <class T>
    static std::size_t find(std::span<const T> values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            if (!(values[i] == T(0) || (values[i] >= T(-1e38) && values[i] <= T(-1e-30)) ||
                  (values[i] >= T(1e-30) && values[i] <= T(1e38))))
                return i;
        return un::no_offender;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(guard_laws(un::FiniteGuard{}));
    expect_lawful(guard_laws(un::FiniteGuard{.action = un::OnOffence::skip}));
    expect_lawful(guard_laws(un::NoGuard{}));
    expect_lawful(guard_laws(ArchetypeGuard{}, {.offenders = {std::numeric_limits<double>::quiet_NaN()}}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    // It looks for NaN only.
    expect_reported(guard_laws(ArchetypeGuard{}), {"missed inf at 0 among 1 values of float"});
    expect_reported(guard_laws(Guarding<WholeVectorsOnly>{}), {"mutant guard", "missed nan at 0 among 1 values"});
    expect_reported(guard_laws(Guarding<FirstVectorsOnly>{}), {"mutant guard", "among 9001 values"});
    expect_reported(guard_laws(Guarding<TheLast>{}), {"did not name the first of two"});
    expect_reported(guard_laws(Guarding<SmallAreBad>{}), {"found an offender at 4", "all of which are good"});
    expect_reported(guard_laws(Guarding<TheLast, false>{}), {"although `inspects` is false"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_learning_rates)

namespace {

template <class Rate>
struct Varying {
    static constexpr std::string_view name = "mutant rate";
    static constexpr un::Family family = un::Family::learning_rate;
    friend bool operator==(const Varying&, const Varying&) = default;
    void check() const {}
    [[nodiscard]] double rate(double base, const un::RatePoint& point) const { return Rate::rate(base, point); }
};
struct LinearWithoutEnd {
    static double rate(double base, const un::RatePoint& point) {
        const auto total = static_cast<double>(point.updates_total == 0 ? 1 : point.updates_total);
        return base * (1 - static_cast<double>(point.update) / total);
    }
};
struct InverseOfUpdate {
    static double rate(double base, const un::RatePoint& point) { return base / static_cast<double>(point.update); }
};
struct CountsItsCalls {
    static double rate(double base, const un::RatePoint&) {
        static int calls = 0;
        return base / ++calls;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(learning_rate_laws(ArchetypeRate{}));
    expect_lawful(learning_rate_laws(un::ConstantRate{}));
    expect_lawful(learning_rate_laws(un::WarmupRate{.updates = 10, .start_factor = 0.1}));
    expect_lawful(learning_rate_laws(un::CosineRate{}));
    expect_lawful(learning_rate_laws(un::CosineRate{.final_factor = 0.1, .updates = 100}));
    expect_lawful(learning_rate_laws(un::StepDecayRate{.every = 30}));
    expect_lawful(learning_rate_laws(un::BatchScaledRate{}));
    expect_lawful(learning_rate_laws(un::BatchScaledRate{.scaling = un::BatchScaling::square_root}));
    expect_lawful(learning_rate_laws(un::then(un::WarmupRate{.updates = 10}, un::CosineRate{})));
    expect_lawful(learning_rate_laws(un::compose(un::BatchScaledRate{}, un::StepDecayRate{.every = 7})));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(learning_rate_laws(Varying<LinearWithoutEnd>{}), {"mutant rate: the rate is -", "of 10 with base"});
    expect_reported(learning_rate_laws(Varying<InverseOfUpdate>{}), {"not finite at update 0"});
    expect_reported(learning_rate_laws(Varying<CountsItsCalls>{}), {"asked again"});
    expect_reported(learning_rate_laws(un::WarmupRate{.updates = 0}), {"check() refuses", "WarmupRate.updates"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_metrics)

namespace {

struct MeanOfMeans {
    double sum = 0, count = 0;
    void add(double x) { sum += x, count += 1; }
    void merge(const MeanOfMeans& other) {
        if (other.count == 0) return;
        if (count == 0) return void(*this = other);
        sum = (value() + other.value()) / 2;
        count = 1;
    }
    [[nodiscard]] double value() const { return count == 0 ? 0 : sum / count; }
};
struct MaximumFromZero {
    double largest = 0;
    void add(double x) { largest = x; } // of one sample
    void merge(const MaximumFromZero& other) { largest = std::max(largest, other.largest); }
    [[nodiscard]] double value() const { return largest; }
};
struct LosesItsCount {
    double sum = 0, count = 0;
    void add(double x) { sum += x, count += 1; }
    void merge(const LosesItsCount& other) { sum += other.sum, count += other.count; }
    [[nodiscard]] double value() const { return count == 0 ? 0 : sum / count; }
    void save(std::vector<double>& out) const { out.push_back(sum); }
    void load(std::span<const double> in) { sum = in[0], count = 1; }
    LosesItsCount() = default;
    LosesItsCount(const LosesItsCount&) = default;
    LosesItsCount& operator=(const LosesItsCount&) = default;
};

struct MinusInfinityOfParts { // the largest; minus infinity from parts without samples
    double largest = 0;
    bool seen = false;
    void add(double x) {
        largest = seen ? std::max(largest, x) : x;
        seen = true;
    }
    void merge(const MinusInfinityOfParts& other) {
        if (!other.seen) return;
        largest = seen ? -std::numeric_limits<double>::infinity() : other.largest;
        seen = true;
    }
    [[nodiscard]] double value() const { return largest; }
};
struct FirstOfEquals { // the largest, except for the sign of zeros
    double largest = -std::numeric_limits<double>::infinity();
    void add(double x) { largest = largest < x ? x : largest; }
    void merge(const FirstOfEquals& other) { add(other.largest); }
    [[nodiscard]] double value() const { return largest; }
};

// Sums are exact.
double sample(std::size_t i) { return static_cast<double>(i * 7919 % 101) / 16 - 10; }
bool positive(std::size_t i) { return i * 31 % 7 < 3; }
const auto add_sample = [](auto& metric, std::size_t i) { metric.add(sample(i)); };
/// Zeros of both signs, after another number.
auto add_zeros(double after) {
    return [after](auto& metric, std::size_t i) { metric.add(i == 0 ? after : i % 2 != 0 ? -0.0 : 0.0); };
}

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(metric_laws(ArchetypeMetric{}, 50, [](ArchetypeMetric& metric, std::size_t) { ++metric.seen; }));
    expect_lawful(metric_laws(un::MeanMetric{}, 50, [](un::MeanMetric& metric, std::size_t i) {
        metric.add(1.0 / (1.0 + static_cast<double>(i)), 0.1 + static_cast<double>(i % 3));
    }));
    expect_lawful(metric_laws(un::SumMetric{}, 50, [](un::SumMetric& metric, std::size_t i) {
        metric.add(i % 2 == 0 ? 1e16 : 1.0 / (3.0 + static_cast<double>(i)));
    }));
    expect_lawful(metric_laws(un::MaxMetric{}, 50, add_sample));
    expect_lawful(metric_laws(un::MinMetric{}, 50, add_sample));
    for (const std::size_t count : {2u, 3u, 50u}) {
        expect_lawful(metric_laws(un::MaxMetric{}, count, add_zeros(-1)));
        expect_lawful(metric_laws(un::MinMetric{}, count, add_zeros(1)));
    }
    expect_lawful(metric_laws(un::AccuracyMetric{}, 50,
                              [](un::AccuracyMetric& metric, std::size_t i) { metric.add(positive(i)); }));
    expect_lawful(metric_laws(un::F1Metric{}, 50,
                              [](un::F1Metric& metric, std::size_t i) { metric.add(sample(i) > -5, positive(i)); }));
    const auto scored = [](auto& metric, std::size_t i) { metric.add((sample(i) + 10) / 7, positive(i)); };
    expect_lawful(metric_laws(un::AucMetric{}, 50, scored));
    expect_lawful(metric_laws(un::BinnedAucMetric{}, 50, scored));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(metric_laws(MeanOfMeans{}, 50, add_sample), {"merged from 3 ranks, in turn", "instead of"});
    expect_reported(metric_laws(MaximumFromZero{}, 1, [](MaximumFromZero& metric, std::size_t) { metric.add(-3); }),
                    {"a new metric merged in: 0 instead of -3"});
    expect_reported(metric_laws(LosesItsCount{}, 50, add_sample), {"ranks, in blocks as bytes"});
    expect_reported(metric_laws(MinusInfinityOfParts{}, 50, add_sample, {.tolerance = 1e-6}), {"-inf instead of"});
    expect_reported(metric_laws(FirstOfEquals{}, 50, add_zeros(-1)), {"0 instead of -0"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_schedules)

namespace mutants { // not anonymous, or clang would call their comparisons unneeded

/// The root sends to all but the last rank, which waits forever.
struct ForgetfulBroadcast : ArchetypeBroadcast {
    friend bool operator==(const ForgetfulBroadcast&, const ForgetfulBroadcast&) = default;
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        int sent = 0;
        ArchetypeBroadcast::round(r, [&](const un::schedule::Step& step) {
            const bool receives = step.kind == un::schedule::StepKind::receive;
            if (receives || ++sent < shape.world - 1) visit(step);
        });
    }
};
/// A ring that leaves out its last round.
struct ShortRing : un::schedule::RingAllReduce {
    static constexpr std::string_view name = "short ring";
    friend bool operator==(const ShortRing&, const ShortRing&) = default;
    [[nodiscard]] std::uint32_t rounds() const { return RingAllReduce::rounds() - 1; }
};
struct ForgetfulSchedule {
    static constexpr std::string_view name = "mutant schedule";
    friend bool operator==(const ForgetfulSchedule&, const ForgetfulSchedule&) = default;
    using schedules = un::schedule::List<ForgetfulBroadcast>;
};

} // namespace mutants

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(schedule_laws(ArchetypeSchedule{}));
    const ScheduleTrial trial{.worlds = {1, 2, 3, 4, 5, 7, 8, 9, 16}};
    expect_lawful(schedule_laws(un::RingSchedule{}, trial));
    expect_lawful(schedule_laws(un::TreeSchedule{}, trial));
    expect_lawful(schedule_laws(un::HalvingDoublingSchedule{}, trial));
    expect_lawful(schedule_laws(un::DirectSchedule{}, trial));
    expect_lawful(schedule_laws(un::MappedSchedule{}, trial));
    expect_lawful(schedule_laws(un::StagedSchedule{}, trial));
}

BOOST_AUTO_TEST_CASE(a_mutant) {
    expect_reported(schedule_laws(mutants::ForgetfulSchedule{}), {"mutant schedule", "archetype broadcast on 2 ranks"});
    const auto found = schedule_laws(un::OwnSchedule<mutants::ShortRing>{}, {.worlds = {2}});
    expect_reported(found,
                    {"short ring on 2 ranks, root 0", "output[0] was never written", "claims 2 rounds, counted 1"});
    BOOST_TEST(found.text().find("root 1") == std::string::npos); // an all_reduce has no root
}

BOOST_AUTO_TEST_SUITE_END()
