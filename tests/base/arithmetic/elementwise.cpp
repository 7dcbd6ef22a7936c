#include "support.hpp"

#include <unisono/arithmetic/accumulate.hpp>
#include <unisono/arithmetic/apply.hpp>
#include <unisono/arithmetic/scan.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace un = unisono;
using namespace arithmetic_test;

namespace {

using FloatingTypes = std::tuple<float, double, un::bfloat16, un::float16>;

constexpr std::size_t counts[] = {0,  1,  2,  3,  7,   8,   15,  16,  17,  31,   32,
                                  33, 63, 64, 65, 127, 129, 511, 512, 513, 1000, 4099};

template <class T>
std::vector<T> numbers(std::uint64_t seed, std::size_t count) {
    Values<T> values(seed);
    std::vector<T> result(count);
    for (T& x : result) x = values.next();
    return result;
}

template <class T>
void require_same(const std::vector<T>& found, const std::vector<T>& wanted, const std::string& where) {
    BOOST_REQUIRE_EQUAL(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_REQUIRE_MESSAGE(same_bits(found[i], wanted[i]), where << ", count " << found.size() << ", element " << i);
}

/// The result in T of a computation in the accumulator: rounded once, with one NaN.
template <class T>
T rounded(un::accumulator_t<T> value) {
    if (std::isnan(value)) return static_cast<T>(std::numeric_limits<un::accumulator_t<T>>::quiet_NaN());
    return static_cast<T>(value);
}

template <class W>
[[gnu::noinline]] W product(W a, W b) {
    volatile W result = a * b;
    return result;
}

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct Root {
    T shift;
    UNISONO_INLINE void operator()(T& p, const T& g, T& m) const {
        m = m + g * g;
        p = p - g / (un::square_root(m) + shift);
    }
};

UNISONO_NO_CONTRACTION_END

bool is_bad_input(const un::error& e) { return e.code() == un::ErrorCode::bad_input; }

} // namespace

BOOST_AUTO_TEST_SUITE(apply)

using PlainTypes = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_a_loop_on_every_instruction_set, T, PlainTypes) {
    for (const un::InstructionSet set : instruction_sets())
        for (const std::size_t count : counts) {
            auto p = numbers<T>(1, count + 1);
            const auto g = numbers<T>(2, count + 1);
            auto m = numbers<T>(3, count + 1);
            for (T& x : m) x = std::abs(x);
            auto wanted_p = p;
            auto wanted_m = m;
            const Root<T> root{T(1e-3)};
            for (std::size_t i = 1; i < count + 1; ++i) { // from 1: off the vectors' boundary
                const T square = product(g[i], g[i]);
                wanted_m[i] = m[i] + square;
                const T divisor = std::sqrt(wanted_m[i]) + root.shift;
                const T move = g[i] / divisor;
                wanted_p[i] = p[i] - move;
            }
            un::detail::apply_on(set, root, count, p.data() + 1, g.data() + 1, m.data() + 1);
            // NaN payloads of a user's formula are the user's.
            const auto unify = [](std::vector<T>& v) {
                for (T& x : v)
                    if (std::isnan(x)) x = std::numeric_limits<T>::quiet_NaN();
            };
            for (auto* v : {&p, &m, &wanted_p, &wanted_m}) unify(*v);
            require_same(p, wanted_p, "p, " + std::string(name_of(set)));
            require_same(m, wanted_m, "m, " + std::string(name_of(set)));
        }
}

BOOST_AUTO_TEST_CASE(takes_any_number_of_spans_and_types) {
    std::vector<float> a(100, 1.0f);
    const std::vector<un::bfloat16> b(100, un::bfloat16(2.0f));
    std::vector<double> c(100, 3.0);
    std::vector<std::int32_t> d(100, 4);
    un::apply([](float& x) { x += 1; }, std::span(a));
    un::apply(
        [](float& x, const un::bfloat16& y, double& z, std::int32_t& n) {
            x += float(y);
            z += static_cast<double>(x);
            n *= 2;
        },
        std::span(a), std::span(b), std::span(c), std::span(d));
    BOOST_TEST(a[99] == 4.0f);
    BOOST_TEST(c[99] == 7.0);
    BOOST_TEST(d[99] == 8);
}

BOOST_AUTO_TEST_CASE(a_span_may_be_given_twice) {
    std::vector<float> x(77, 3.0f);
    un::apply([](float& y, const float& z) { y = y * z; }, std::span<float>(x), std::span<const float>(x));
    BOOST_TEST(x == std::vector<float>(77, 9.0f), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(different_lengths_are_refused) {
    std::vector<float> a(5), b(6);
    BOOST_CHECK_EXCEPTION(
        un::apply([](float& x, float& y) { x = y; }, std::span(a), std::span(b)), un::error, [](const un::error& e) {
            return is_bad_input(e) && std::string(e.what()).find("6 elements; expected 5") != std::string::npos;
        });
}

BOOST_AUTO_TEST_CASE(square_roots_are_correctly_rounded) {
    for (const float x : numbers<float>(5, 3000))
        if (x >= 0) BOOST_REQUIRE(same_bits(un::square_root(x), static_cast<float>(std::sqrt(static_cast<double>(x)))));
    for (const double x : numbers<double>(6, 3000))
        if (x >= 0) BOOST_REQUIRE(same_bits(un::square_root(x), std::sqrt(x)));
    BOOST_TEST(std::isnan(un::square_root(-1.0f)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(scale)

BOOST_AUTO_TEST_CASE_TEMPLATE(multiplies_and_divides_with_one_rounding, T, FloatingTypes) {
    using W = un::accumulator_t<T>;
    for (const std::size_t count : counts)
        for (const double factor : {0.0, -0.5, 1.0 / 3.0, 7.0}) {
            const auto x = numbers<T>(11, count);
            auto scaled = x;
            auto in_place = x;
            auto divided = x;
            std::vector<T> wanted_product(count), wanted_quotient(count);
            for (std::size_t i = 0; i < count; ++i) {
                wanted_product[i] = rounded<T>(static_cast<W>(factor) * static_cast<W>(x[i]));
                wanted_quotient[i] = rounded<T>(static_cast<W>(x[i]) / static_cast<W>(factor));
            }
            un::scale(std::span<T>(scaled), std::span<const T>(x), factor);
            un::scale(std::span<T>(in_place), factor);
            un::divide(std::span<T>(divided), factor);
            require_same(scaled, wanted_product, "scale");
            require_same(in_place, wanted_product, "scale in place");
            require_same(divided, wanted_quotient, "divide");
        }
}

BOOST_AUTO_TEST_CASE(one_copies) {
    const auto x = numbers<float>(12, 100);
    std::vector<float> out(100, 5.0f);
    un::scale(std::span<float>(out), std::span<const float>(x), 1.0);
    require_same(out, x, "factor 1");
    un::divide(std::span<float>(out), 1.0);
    require_same(out, x, "divisor 1");
}

BOOST_AUTO_TEST_CASE(different_lengths_are_refused) {
    std::vector<float> a(5), b(6);
    BOOST_CHECK_EXCEPTION(un::scale(std::span<float>(a), std::span<const float>(b), 2.0), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(un::accumulate(std::span<float>(a), std::span<const float>(b)), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(un::accumulate_first(std::span<float>(a), std::span<const float>(b), 2.0), un::error,
                          is_bad_input);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(accumulate)

template <class To, class T>
void check_accumulation() {
    using W = un::accumulator_t<To>;
    for (const std::size_t count : counts)
        for (const double weight : {1.0, 0.0, 0.3, -2.0}) {
            auto y = numbers<To>(21, count);
            const auto x = numbers<T>(22, count);
            auto wanted = y;
            std::vector<To> first(count), wanted_first(count);
            for (std::size_t i = 0; i < count; ++i) {
                const W weighted =
                    product(static_cast<W>(weight), static_cast<W>(static_cast<un::accumulator_t<T>>(x[i])));
                wanted[i] = rounded<To>(static_cast<W>(y[i]) + weighted);
                wanted_first[i] =
                    weight == 1.0 && std::is_same_v<To, T> ? static_cast<To>(x[i]) : rounded<To>(weighted);
            }
            un::accumulate(std::span<To>(y), std::span<const T>(x), weight);
            un::accumulate_first(std::span<To>(first), std::span<const T>(x), weight);
            require_same(y, wanted, "accumulate, weight " + std::to_string(weight));
            require_same(first, wanted_first, "accumulate_first, weight " + std::to_string(weight));
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_a_loop, T, FloatingTypes) { check_accumulation<T, T>(); }
BOOST_AUTO_TEST_CASE(into_a_wider_type) {
    check_accumulation<float, un::bfloat16>();
    check_accumulation<float, un::float16>();
    check_accumulation<double, float>();
}

BOOST_AUTO_TEST_CASE(instruction_sets_agree) {
    const auto x = numbers<float>(23, 1003);
    const auto y = numbers<float>(24, 1003);
    auto portable = y;
    const un::detail::AddWeighted<float, float> add{0.7f};
    un::detail::apply_on(un::InstructionSet::portable, add, x.size(), portable.data(), x.data());
    for (const un::InstructionSet set : instruction_sets()) {
        auto found = y;
        un::detail::apply_on(set, add, x.size(), found.data(), x.data());
        require_same(found, portable, std::string(name_of(set)));
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(scan)

BOOST_AUTO_TEST_CASE_TEMPLATE(first_non_finite_finds_the_first, T, FloatingTypes) {
    using W = un::accumulator_t<T>;
    const T bad[] = {static_cast<T>(std::numeric_limits<W>::infinity()),
                     static_cast<T>(-std::numeric_limits<W>::infinity()),
                     static_cast<T>(std::numeric_limits<W>::quiet_NaN())};
    for (const un::InstructionSet set : instruction_sets())
        for (const std::size_t count : {0u, 1u, 7u, 64u, 65u, 4097u, 10000u}) {
            std::vector<T> x(count, static_cast<T>(W(65280))); // large, finite in all four
            const auto find = [&] { return un::detail::first_non_finite_on<T>(set, std::span<const T>(x)); };
            BOOST_REQUIRE_EQUAL(find(), un::npos);
            for (std::size_t at = 0; at < count; at += 1 + count / 13) {
                const T good = x[at];
                x[at] = bad[at % 3];
                x[count - 1] = bad[0];
                BOOST_REQUIRE_EQUAL(find(), at);
                x[count - 1] = good;
                x[at] = good;
            }
            if (count > 0) {
                x[count - 1] = bad[2];
                BOOST_REQUIRE_EQUAL(find(), count - 1);
            }
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(first_at_least_finds_the_first, T, FloatingTypes) {
    using W = un::accumulator_t<T>;
    for (const un::InstructionSet set : instruction_sets())
        for (const std::size_t count : {1u, 64u, 65u, 4097u}) {
            std::vector<T> x(count, static_cast<T>(W(-3.5)));
            const auto find = [&](int exponent) {
                return un::detail::first_at_least_on<T>(set, std::span<const T>(x),
                                                        un::detail::exponent_bits<T>(exponent));
            };
            BOOST_REQUIRE_EQUAL(find(2), un::npos);
            BOOST_REQUIRE_EQUAL(find(1), 0u);
            x[count - 1] = static_cast<T>(W(-4));
            BOOST_REQUIRE_EQUAL(find(2), count - 1);
            BOOST_REQUIRE_EQUAL(find(3), un::npos);
            x[count - 1] = static_cast<T>(std::numeric_limits<W>::quiet_NaN());
            BOOST_REQUIRE_EQUAL(find(3), count - 1);
            BOOST_REQUIRE_EQUAL(find(100'000), count - 1); // no number is as large
            x[count - 1] = T{};
            BOOST_REQUIRE_EQUAL(find(-100'000), count > 1 ? 0 : un::npos);
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sum_of_squares_in_its_fixed_order, T, FloatingTypes) {
    using W = un::accumulator_t<T>;
    for (const std::size_t count : counts) {
        auto x = numbers<T>(31, count);
        for (T& value : x) {
            const auto wide = static_cast<double>(static_cast<W>(value));
            if (!std::isfinite(wide) || std::abs(wide) > 1e10) value = static_cast<T>(W(3));
        }
        double lane[16] = {};
        double oracle = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const auto wide = static_cast<double>(static_cast<W>(x[i]));
            lane[i % 16] += product(wide, wide);
            oracle += wide * wide;
        }
        for (std::size_t width = 8; width > 0; width /= 2)
            for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
        for (const un::InstructionSet set : instruction_sets()) {
            const double found = un::detail::sum_of_squares_on<T>(set, std::span<const T>(x));
            BOOST_REQUIRE(same_bits(found, lane[0]));
            BOOST_REQUIRE_CLOSE_FRACTION(found, oracle, 1e-13);
        }
    }
    std::vector<T> x(100, static_cast<T>(W(1)));
    BOOST_TEST(un::sum_of_squares(std::span<T>(x)) == 100.0);
    x[57] = static_cast<T>(std::numeric_limits<W>::quiet_NaN());
    BOOST_TEST(std::isnan(un::sum_of_squares(std::span<T>(x))));
}

BOOST_AUTO_TEST_CASE(millions_of_ones_do_not_saturate) {
    const std::vector<float> x(20'000'000, 1.0f);
    BOOST_TEST(un::sum_of_squares(std::span<const float>(x)) == 2e7);
}

BOOST_AUTO_TEST_SUITE_END()
