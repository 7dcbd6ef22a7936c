// Sums on a grid. The image is the exact product, rounded once. Every order and grouping gives one
// result, as close to the exact sum as promised. What does not fit is marked, and stays marked.
#include "support.hpp"

#include <unisono/arithmetic/grid.hpp>
#include <unisono/arithmetic/grid_sum.hpp>
#include <unisono/arithmetic/narrow_grid.hpp>
#include <unisono/core/error.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace {

namespace un = unisono;
using arithmetic_test::instruction_sets;
using arithmetic_test::same_bits;
__extension__ using Wide = __int128;

/// Any finite double as mantissa * 2^exponent.
struct Parts {
    std::int64_t mantissa;
    int exponent;
};
Parts parts(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const int field = static_cast<int>(bits >> 52 & 0x7ff);
    auto mantissa = static_cast<std::int64_t>(bits & 0xfffffffffffffu);
    if (field != 0) mantissa |= std::int64_t{1} << 52;
    return {bits >> 63 != 0 ? -mantissa : mantissa, (field == 0 ? 1 : field) - 1075};
}

/// x * w / 2^(E - 51), rounded to the nearest integer, ties to even, with integers only.
std::int64_t exact_image(double x, double w, std::int32_t exponent) {
    const Parts a = parts(x);
    const Parts b = parts(w);
    Wide product = static_cast<Wide>(a.mantissa) * b.mantissa;
    const bool negative = product < 0;
    if (negative) product = -product;
    const int shift = a.exponent + b.exponent - (exponent - 51);
    if (product == 0) return 0;
    Wide rounded = 0;
    if (shift >= 0) {
        rounded = product << shift;
    } else if (-shift <= 110) {
        const Wide unit = static_cast<Wide>(1) << -shift;
        rounded = product / unit;
        const Wide rest = product % unit;
        if (2 * rest > unit || (2 * rest == unit && rounded % 2 != 0)) ++rounded;
    }
    return static_cast<std::int64_t>(negative ? -rounded : rounded);
}

template <class T>
T number(double x) {
    if constexpr (sizeof(T) == 2) return static_cast<T>(static_cast<float>(x));
    else return static_cast<T>(x);
}
template <class T>
double wide(T x) {
    if constexpr (sizeof(T) == 2) return static_cast<double>(static_cast<float>(x));
    else return static_cast<double>(x);
}

/// Finite numbers with very different exponents, including subnormals and signed zeros.
template <class T>
class Wild {
public:
    explicit Wild(std::uint64_t seed) : values_(seed) {}
    std::uint64_t bits() { return values_.bits(); }
    /// Exponents within `spread` below `top`.
    double next(int top, int spread) {
        const std::uint64_t random = bits();
        if (random % 23 == 0) return random % 2 != 0 ? 0.0 : -0.0;
        const double fraction = 0.5 + static_cast<double>(random >> 12) * 0x1p-53;
        const double value = std::ldexp(fraction, top - static_cast<int>(bits() % static_cast<unsigned>(spread + 1)));
        return (random >> 5) % 2 != 0 ? -value : value;
    }

private:
    arithmetic_test::Values<double> values_;
};

template <class T>
void check_images() {
    const int top = std::is_same_v<T, un::float16> ? 14 : std::is_same_v<T, double> ? 700 : 100;
    const int bottom = std::is_same_v<T, double> ? -1060 : -145;
    Wild<T> wild(1);
    for (int round = 0; round < 400; ++round) {
        const std::size_t count = wild.bits() % 70;
        const int high = static_cast<int>(wild.bits() % static_cast<unsigned>(top - bottom)) + bottom;
        std::vector<T> x(count);
        for (T& one : x) one = number<T>(wild.next(high, round % 2 == 0 ? 20 : 80));
        double weight = 1;
        if (round % 3 == 1) weight = static_cast<double>(1 + wild.bits() % 1000);
        if (round % 3 == 2) weight = wild.next(3, 6);
        const std::int32_t needed = un::needed_exponent(std::span<const T>(x), weight);
        for (const T& one : x) { // above all products, and no higher than necessary
            const double product = std::abs(wide(one)) * std::abs(weight);
            if (product != 0) BOOST_REQUIRE(std::ldexp(1.0, needed) > product);
        }
        const un::Grid grid = un::Grid::above<T>(needed);
        std::vector<std::int64_t> expected(count);
        for (std::size_t i = 0; i < count; ++i) expected[i] = exact_image(wide(x[i]), weight, grid.exponent);
        for (const auto set : instruction_sets()) {
            std::vector<std::int64_t> image(count, 7);
            un::detail::image_on<T, false>(set, image.data(), x.data(), count, weight, grid.exponent);
            BOOST_REQUIRE(image == expected);
            un::detail::image_on<T, true>(set, image.data(), x.data(), count, weight, grid.exponent);
            for (std::size_t i = 0; i < count; ++i) BOOST_REQUIRE(image[i] == 2 * expected[i]);
        }
        std::vector<std::int64_t> image(count);
        BOOST_REQUIRE(un::to_grid(std::span(image), std::span<const T>(x), weight, grid) == needed);
        BOOST_REQUIRE(image == expected);
    }
}

template <class T>
void check_numbers() {
    Wild<T> wild(2);
    for (const std::int32_t exponent : {un::Grid::least<T>, -20, 0, 7, std::is_same_v<T, double> ? 900 : 60}) {
        std::vector<std::int64_t> image(333);
        for (std::size_t i = 0; i < image.size(); ++i) {
            const int shift = static_cast<int>(wild.bits() % 62) + 2;
            image[i] = static_cast<std::int64_t>(wild.bits()) >> shift;
        }
        image[5] = -(std::int64_t{1} << 62);
        image[6] = (std::int64_t{1} << 62) - 1;
        image[7] = 0;
        std::vector<T> expected(image.size());
        for (std::size_t i = 0; i < image.size(); ++i)
            expected[i] = number<T>(std::ldexp(static_cast<double>(image[i]), exponent - 51));
        for (const auto set : instruction_sets()) {
            std::vector<T> found(image.size());
            BOOST_TEST(un::detail::from_image_on(set, found.data(), image.data(), image.size(), exponent));
            for (std::size_t i = 0; i < image.size(); ++i) BOOST_REQUIRE(same_bits(found[i], expected[i]));
        }
    }
}

template <class T>
void check_straight() {
    Wild<T> wild(3);
    for (int round = 0; round < 300; ++round) {
        const std::size_t sources = 1 + wild.bits() % 9;
        const std::size_t targets = 1 + wild.bits() % 5;
        const std::size_t count = 1 + wild.bits() % 700;
        const double weight = round % 3 == 0 ? 1.0 : round % 3 == 1 ? 3.0 : 0.1;
        const un::detail::GridStretch stretches[] = {{100, 4}, {100, 9}, {421, -3}, {2000, 11}};
        const un::detail::GridMap map{.stretches = stretches, .first = wild.bits() % 500, .weight = weight};
        const std::size_t position = wild.bits() % 300;
        std::vector<std::vector<T>> from(sources, std::vector<T>(count));
        for (auto& one : from)
            for (T& x : one) x = number<T>(wild.next(-7, 30));
        std::vector<T> expected(count);
        map.visit(position, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
            std::vector<std::int64_t> image(n);
            for (const auto& one : from)
                un::add_to_grid(std::span(image), std::span<const T>(one).subspan(at, n), weight, un::Grid{exponent});
            BOOST_REQUIRE(un::from_grid(std::span(expected).subspan(at, n), std::span<const std::int64_t>(image),
                                        un::Grid{exponent}) == n);
        });
        for (const auto set : instruction_sets()) {
            for (const bool in_place : {false, true}) {
                std::vector<std::vector<T>> sums(targets, std::vector<T>(count));
                auto copy = from;
                std::vector<const std::byte*> in;
                std::vector<std::byte*> out;
                for (const auto& one : copy) in.push_back(reinterpret_cast<const std::byte*>(one.data()));
                for (std::size_t t = 0; t < targets; ++t)
                    out.push_back(
                        reinterpret_cast<std::byte*>(in_place && t < sources ? copy[t].data() : sums[t].data()));
                un::detail::combine_on_grid<T>(set, map, in.data(), sources, out.data(), targets, count, position);
                for (std::size_t t = 0; t < targets; ++t)
                    for (std::size_t i = 0; i < count; ++i)
                        BOOST_REQUIRE(same_bits(reinterpret_cast<const T*>(out[t])[i], expected[i]));
            }
        }
    }
}

/// Addends for one element, added in many ways.
template <class T>
struct Addends {
    std::vector<T> values;
    double weight = 1;

    [[nodiscard]] std::int64_t image(std::size_t i, const un::Grid& grid) const {
        std::int64_t one = 0;
        un::to_grid(std::span(&one, 1), std::span(&values[i], 1), weight, grid);
        return one;
    }
    /// Adds in this order, in groups that end at random. A random tree adds the groups.
    template <class Random>
    [[nodiscard]] std::int64_t grouped(const std::vector<std::size_t>& order, const un::Grid& grid,
                                       Random&& random) const {
        std::vector<std::int64_t> sums;
        for (std::size_t at = 0; at < order.size();) {
            std::int64_t sum = 0;
            for (std::size_t n = 1 + random() % order.size(); n > 0 && at < order.size(); --n, ++at)
                un::add_to_grid(std::span(&sum, 1), std::span(&values[order[at]], 1), weight, grid);
            sums.push_back(sum);
        }
        while (sums.size() > 1) {
            const std::size_t a = random() % sums.size();
            const std::int64_t taken = sums[a];
            sums.erase(sums.begin() + static_cast<std::ptrdiff_t>(a));
            std::int64_t& other = sums[random() % sums.size()];
            other = un::GridSum{}(taken, other);
        }
        return sums.empty() ? 0 : sums.front();
    }
};

/// Compares with the exact sum of weight * values in units of 2^(E - 51 - 170), if all bits lie
/// above that and the sum fits 128 bits.
template <class T>
void check_vectors(std::uint64_t seed, int vectors) {
    Wild<T> wild(seed);
    int marked = 0;
    int inexact = 0;
    for (int round = 0; round < vectors; ++round) {
        Addends<T> all;
        const std::size_t count = 1 + wild.bits() % 24;
        const int top = std::is_same_v<T, un::float16> ? static_cast<int>(wild.bits() % 20) - 6
                                                       : static_cast<int>(wild.bits() % 160) - 80;
        for (std::size_t i = 0; i < count; ++i) {
            all.values.push_back(number<T>(wild.next(top, round % 4 == 0 ? 60 : 25)));
            const std::uint64_t odd = wild.bits();
            if (odd % 211 == 0) all.values.back() = number<T>(std::numeric_limits<double>::infinity());
            if (odd % 223 == 0) all.values.back() = number<T>(-std::numeric_limits<double>::infinity());
            if (odd % 227 == 0) all.values.back() = number<T>(std::numeric_limits<double>::quiet_NaN());
        }
        if (round % 2 == 0) all.weight = wild.next(2, 3) + 0.25;
        const std::int32_t needed = un::needed_exponent(std::span<const T>(all.values), all.weight);
        const bool finite = needed != un::Grid::not_finite;
        un::Grid grid = un::Grid::above<T>(finite ? needed : top + 4);
        // Too fine.
        if (wild.bits() % 40 == 0) grid.exponent = std::max(grid.exponent - 2, un::Grid::least<T>);
        const bool fits = un::fits(needed, grid);

        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        const std::int64_t sum = all.grouped(order, grid, [&] { return wild.bits(); });
        BOOST_REQUIRE(un::detail::is_marked(sum) == !fits); // marked if and only if it does not fit
        for (int again = 0; again < 3; ++again) {
            if (again == 0) std::reverse(order.begin(), order.end());
            else
                for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[wild.bits() % i]);
            const std::int64_t other = all.grouped(order, grid, [&] { return wild.bits(); });
            if (fits) BOOST_REQUIRE(sum == other);
            else BOOST_REQUIRE(un::detail::is_marked(other));
        }
        T result{};
        const std::size_t first = un::from_grid(std::span(&result, 1), std::span<const std::int64_t>(&sum, 1), grid);
        if (!fits) {
            ++marked;
            BOOST_REQUIRE(first == 0);
            BOOST_REQUIRE(std::isnan(wide(result)));
            continue;
        }
        BOOST_REQUIRE(first == 1);
        // The exact sum, in units of 2^(E - 51 - 60). Bits below are 2^-60 of a step per addend,
        // and are ignored.
        Wide exact = 0;
        for (const T value : all.values) {
            const Parts a = parts(wide(value));
            const Parts b = parts(all.weight);
            Wide product = static_cast<Wide>(a.mantissa) * b.mantissa;
            const int shift = a.exponent + b.exponent - (grid.exponent - 51 - 60);
            if (shift >= 0) product *= static_cast<Wide>(1) << shift;
            else if (-shift < 120) product /= static_cast<Wide>(1) << -shift;
            else product = 0;
            exact += product;
        }
        Wide error = (static_cast<Wide>(sum) << 60) - exact;
        if (error < 0) error = -error;
        inexact += error != 0 ? 1 : 0;
        const Wide half_step = static_cast<Wide>(1) << 59;
        BOOST_REQUIRE(error <= static_cast<Wide>(count) * half_step + static_cast<Wide>(count));
        // Compares with the single rounding to T: half an ulp of the sum on the grid.
        BOOST_REQUIRE(same_bits(result, number<T>(std::ldexp(static_cast<double>(sum), grid.exponent - 51))));
    }
    BOOST_TEST(marked > vectors / 100);
    BOOST_TEST(inexact > vectors / 10);
}

} // namespace

BOOST_AUTO_TEST_SUITE(arithmetic_grid)

BOOST_AUTO_TEST_CASE(an_image_is_the_exact_product_rounded_once_on_every_instruction_set) {
    check_images<float>();
    check_images<double>();
    check_images<un::bfloat16>();
    check_images<un::float16>();
}

BOOST_AUTO_TEST_CASE(an_image_becomes_a_number_by_one_rounding_on_every_instruction_set) {
    check_numbers<float>();
    check_numbers<double>();
    check_numbers<un::bfloat16>();
    check_numbers<un::float16>();
}

BOOST_AUTO_TEST_CASE(straight_from_the_sources_gives_the_bits_of_images) {
    check_straight<float>();
    check_straight<double>();
    check_straight<un::bfloat16>();
    check_straight<un::float16>();
}

BOOST_AUTO_TEST_CASE(a_hundred_thousand_vectors_in_every_order_and_grouping) {
    check_vectors<float>(11, 40000);
    check_vectors<double>(12, 30000);
    check_vectors<un::bfloat16>(13, 15000);
    check_vectors<un::float16>(14, 15000);
}

BOOST_AUTO_TEST_CASE(the_bound_is_reached_by_ties_and_headroom_by_the_largest) {
    // L addends that all lie half a step off the grid and are rounded the same way: the error is L
    // * 2^(E - 52).
    const un::Grid grid{0};
    const double off = 0x1p-51 * 1.5; // a tie, rounded to even: up to 2 steps
    std::vector<std::int64_t> image(1);
    for (int i = 0; i < 100; ++i) un::add_to_grid(std::span(image), std::span(&off, 1), 1.0, grid);
    BOOST_TEST(image[0] == 200);
    // The largest allowed number of the largest addends, of both signs.
    for (const double sign : {1.0, -1.0}) {
        const double largest = sign * std::nextafter(1.0, 0.0);
        image[0] = 0;
        for (std::int64_t i = 0; i < un::Grid::most_addends; ++i) {
            un::add_to_grid(std::span(image), std::span(&largest, 1), 1.0, grid);
            BOOST_REQUIRE(!un::detail::is_marked(image[0]));
        }
        double sum = 0;
        un::from_grid(std::span(&sum, 1), std::span<const std::int64_t>(image), grid);
        BOOST_TEST(sum == sign * 2047.0);
    }
    // With many more addends, partial sums are marked before they can wrap.
    bool marked = false;
    const double large = std::nextafter(1.0, 0.0);
    for (int i = 0; i < 10000; ++i) {
        un::add_to_grid(std::span(image), std::span(&large, 1), 1.0, grid);
        std::int64_t half = image[0];
        image[0] = un::GridSum{}(half, half);
        marked = marked || un::detail::is_marked(image[0]);
        BOOST_REQUIRE(!marked || un::detail::is_marked(image[0]));
    }
    BOOST_TEST(marked);
    BOOST_TEST(un::Grid::bits_for(2047) == 0);
    BOOST_TEST(un::Grid::bits_for(2048) == 1);
    BOOST_TEST(un::Grid::bits_for(8188) == 2);
    BOOST_TEST(un::Grid::bits_for(8189) == 3);
}

BOOST_AUTO_TEST_CASE(a_mark_outlives_any_additions) {
    const un::Grid grid{3};
    std::vector<float> values(1000, 1.5f);
    values[17] = std::numeric_limits<float>::quiet_NaN();
    values[400] = -std::numeric_limits<float>::infinity();
    values[999] = 8.0f; // does not fit: |x| < 8
    std::vector<std::int64_t> image(1000);
    BOOST_TEST(un::to_grid(std::span(image), std::span<const float>(values), 1.0, grid) == un::Grid::not_finite);
    const std::vector<float> ones(1000, -7.99f);
    for (int i = 0; i < 2000; ++i) un::add_to_grid(std::span(image), std::span<const float>(ones), 1.0, grid);
    un::add_to_grid(std::span(image), std::span<const float>(values), 1.0, grid);
    std::vector<float> sum(1000);
    BOOST_TEST(un::from_grid(std::span(sum), std::span<const std::int64_t>(image), grid) == 17);
    for (std::size_t i = 0; i < sum.size(); ++i) BOOST_TEST(std::isnan(sum[i]) == (i == 17 || i == 400 || i == 999));
    BOOST_TEST(un::needed_exponent(std::span<const float>(values).subspan(999), 1.0) == 4);
    BOOST_TEST(un::needed_exponent(std::span<const float>(values).subspan(999), 0.99) == 3);
}

BOOST_AUTO_TEST_CASE(four_bytes_an_image_any_order_within_their_bound) {
    Wild<float> wild(21);
    int marked = 0;
    for (int round = 0; round < 20000; ++round) {
        const std::size_t count = 1 + wild.bits() % 20;
        const int top = static_cast<int>(wild.bits() % 100) - 50;
        const double weight = round % 2 == 0 ? 1.0 : wild.next(2, 3) + 0.25;
        std::vector<float> values(count);
        for (float& x : values) x = static_cast<float>(wild.next(top, 30));
        if (round % 50 == 0) values[0] = std::numeric_limits<float>::quiet_NaN();
        const std::int32_t needed = un::needed_exponent(std::span<const float>(values), weight);
        const bool finite = needed != un::Grid::not_finite;
        const auto grid = un::NarrowGrid::above<float>(finite ? needed : top + 4, static_cast<std::int64_t>(count));
        std::int32_t sum = 0;
        std::int32_t other = 0;
        double exact =
            // Of at most 20 products within 30 binades: not exact, but much closer than the bound.
            0;
        for (std::size_t i = 0; i < count; ++i) {
            un::add_to_grid(std::span(&sum, 1), std::span<const float>(&values[i], 1), weight, grid);
            exact += static_cast<double>(values[i]) * weight;
        }
        std::int32_t half = 0;
        for (std::size_t i = count; i-- > count / 2;)
            un::add_to_grid(std::span(&half, 1), std::span<const float>(&values[i], 1), weight, grid);
        for (std::size_t i = count / 2; i-- > 0;)
            un::add_to_grid(std::span(&other, 1), std::span<const float>(&values[i], 1), weight, grid);
        other = un::GridSum{}(half, other);
        float result = 0;
        const std::size_t good = un::from_grid(std::span(&result, 1), std::span<const std::int32_t>(&sum, 1), grid);
        if (!finite) {
            ++marked;
            BOOST_REQUIRE(good == 0);
            BOOST_REQUIRE(std::isnan(result));
            BOOST_REQUIRE(un::detail::is_marked(other));
            continue;
        }
        BOOST_REQUIRE(good == 1);
        BOOST_REQUIRE(sum == other);
        const double bound =
            static_cast<double>(count) * std::ldexp(1.0, grid.exponent - grid.bits - 1) + std::abs(exact) * 0x1p-24;
        BOOST_REQUIRE(std::abs(static_cast<double>(result) - exact) <= bound * (1 + 1e-9));
    }
    BOOST_TEST(marked == 400);
    BOOST_TEST(un::NarrowGrid::above(0, 1).bits == 29);
    BOOST_TEST(un::NarrowGrid::above(0, 8).bits == 26);
    BOOST_TEST(un::NarrowGrid::above(0, 15).bits == 26);
    BOOST_TEST(un::NarrowGrid::above(0, 16).bits == 25);
}

BOOST_AUTO_TEST_CASE(a_grid_has_room_for_all_addends) {
    BOOST_TEST(un::Grid::above(3, 1).exponent == 3);
    BOOST_TEST(un::Grid::above(3, 2047).exponent == 3);
    BOOST_TEST(un::Grid::above(3, 2048).exponent == 4);
    BOOST_TEST(un::Grid::above(3, 4094).exponent == 4);
    BOOST_TEST(un::Grid::above(3, 4095).exponent == 5);
    // Also of the largest addends.
    const double most = 0x1.ffffffp959;
    const std::int32_t needed = un::needed_exponent(std::span(&most, 1));
    BOOST_TEST(needed == 960);
    for (const std::int64_t addends : {2047, 4094, 5000, 100'000}) {
        const un::Grid grid = un::Grid::above<double>(needed, addends);
        std::int64_t one = 0;
        un::to_grid(std::span(&one, 1), std::span(&most, 1), 1.0, grid);
        std::int64_t sum = 0;
        for (std::int64_t i = 0; i < addends; ++i) sum = un::detail::add_images(sum, one);
        double found = 0;
        BOOST_TEST(un::from_grid(std::span(&found, 1), std::span<const std::int64_t>(&sum, 1), grid) == 1u);
        BOOST_TEST(std::abs(found / (static_cast<double>(addends) * most) - 1) < 1e-12);
    }
    const double more = 0x1p960;
    BOOST_TEST(un::needed_exponent(std::span(&more, 1)) == un::Grid::not_finite);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_needs_more_than_any_grid) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const std::vector<float> zeros(3), ones(3, 1.0f), large(3, std::numeric_limits<float>::infinity());
    for (const double weight : {infinity, -infinity, std::nan("")})
        for (const auto* x : {&zeros, &ones, &large})
            BOOST_TEST(un::needed_exponent(std::span(*x), weight) == un::Grid::not_finite);
    BOOST_TEST(un::needed_exponent(std::span(large), 0.0) == un::Grid::not_finite);
    BOOST_TEST(un::needed_exponent(std::span(zeros), 2.0) == un::Grid::nothing);
    BOOST_TEST(un::needed_exponent(std::span(ones), 2.0) == 2);
}

BOOST_AUTO_TEST_CASE(bad_arguments_are_refused_by_name) {
    std::vector<std::int64_t> image(3);
    const std::vector<float> x(3), short_one(2);
    const auto refused = [](auto&& call, const char* part) {
        try {
            call();
        } catch (const un::error& e) {
            return e.code() == un::ErrorCode::bad_input && std::string(e.what()).find(part) != std::string::npos;
        }
        return false;
    };
    const std::span to(image);
    BOOST_TEST(
        refused([&] { un::to_grid(to, std::span(x), 1.0, un::Grid{-75}); }, "Grid.exponent is -75; expected -74"));
    BOOST_TEST(refused([&] { un::to_grid(to, std::span(x), 1.0, un::Grid{991}); }, "Grid.exponent"));
    BOOST_TEST(refused([&] { un::to_grid(to, std::span(short_one), 1.0, un::Grid{1}); }, "2 elements; expected 3"));
    BOOST_TEST(refused([&] { un::add_to_grid(to, std::span(x), std::nan(""), un::Grid{1}); }, "weight"));
}

BOOST_AUTO_TEST_SUITE_END()
