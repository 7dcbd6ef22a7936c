// Sums of squares are close to the exact sum for any cut, order and instruction set.
#include "support.hpp"

#include <unisono/arithmetic/square_sum.hpp>
#include <unisono/observe/exact_sum.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

namespace {

namespace un = unisono;

template <class T>
void check(double scale, int spread) {
    arithmetic_test::Values<double> random(9);
    std::vector<T> x(20000);
    un::ExactSum exact;
    for (T& one : x) {
        const double value = std::ldexp(static_cast<double>(random.bits() >> 12) * 0x1p-52 - 0.5,
                                        -static_cast<int>(random.bits() % static_cast<unsigned>(spread))) *
                             scale;
        if constexpr (sizeof(T) == 2) one = static_cast<T>(static_cast<float>(value));
        else one = static_cast<T>(value);
        if constexpr (sizeof(T) == 2)
            exact.add_product(static_cast<double>(static_cast<float>(one)),
                              static_cast<double>(static_cast<float>(one)));
        else exact.add_product(static_cast<double>(one), static_cast<double>(one));
    }
    const std::int32_t needed = un::needed_exponent(std::span<const T>(x));
    un::SquareSum whole(needed);
    whole.add(std::span<const T>(x));
    BOOST_TEST(std::abs(whole.value() - exact.value()) <=
               20000 * std::ldexp(1.0, 2 * needed - 52) + exact.value() * 0x1p-52);
    BOOST_TEST(std::abs(whole.value() - exact.value()) <= 1e-11 * exact.value()); // and much closer
    for (const std::size_t cut : {1u, 17u, 4095u, 4097u, 9999u}) {
        std::vector<un::SquareSum> parts;
        for (std::size_t at = 0; at < x.size(); at += cut * 3) {
            parts.emplace_back(needed);
            for (std::size_t from = at; from < std::min(at + cut * 3, x.size()); from += cut)
                parts.back().add(std::span<const T>(x).subspan(from, std::min(cut, x.size() - from)));
        }
        un::SquareSum all(needed);
        std::int64_t words[un::SquareSum::words] = {};
        for (std::size_t p = parts.size(); p-- > 0;) {
            all.merge(parts[p]);
            std::int64_t one[un::SquareSum::words];
            parts[p].save(one);
            for (std::size_t i = 0; i < un::SquareSum::words; ++i) words[i] += one[i];
        }
        BOOST_TEST(all.value() == whole.value());
        un::SquareSum travelled(needed);
        travelled.load(words);
        BOOST_TEST(travelled.value() == whole.value());
    }
    for (const auto set : arithmetic_test::instruction_sets()) {
        std::uint64_t sum = 0;
        std::uint64_t expected = 0;
        for (std::size_t i = 0; i < 4000; ++i) {
            double one = 0;
            if constexpr (sizeof(T) == 2) one = static_cast<double>(static_cast<float>(x[i]));
            else one = static_cast<double>(x[i]);
            expected += un::detail::image_by_integers(one, one, 2 * needed);
        }
        un::detail::make_images<un::detail::SquareBody<T>::template Body, T>(set, sizeof(T) == 8 ? 3.0 : 1.0, x.data(),
                                                                             std::size_t{4000}, 2 * needed, &sum);
        BOOST_TEST(sum == expected);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(arithmetic_square_sum)

BOOST_AUTO_TEST_CASE(any_cut_gives_one_sum_near_the_exact_one) {
    check<float>(1, 20);
    check<float>(1e-18, 30);
    check<double>(1e60, 40);
    check<un::bfloat16>(3, 8);
    check<un::float16>(100, 6);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_or_does_not_fit_is_said) {
    un::SquareSum none(un::Grid::not_finite);
    const std::vector<float> x(3, 4.0f);
    none.add(std::span<const float>(x));
    BOOST_TEST(std::isnan(none.value()));
    un::SquareSum small(2);
    BOOST_CHECK_THROW(small.add(std::span<const float>(x)), un::error);
    un::SquareSum zero(un::Grid::nothing);
    BOOST_TEST(zero.value() == 0);
    BOOST_CHECK_THROW(zero.merge(small), un::error);
}

BOOST_AUTO_TEST_SUITE_END()
