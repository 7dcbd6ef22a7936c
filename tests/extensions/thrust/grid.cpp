#include "support.hpp"

#include <unisono/arithmetic/grid_sum.hpp>

using namespace thrust_test;

namespace {

template <class T, class I, class G, class On>
void images(const On& on, const Array<T>& x, double weight, const G& grid, bool all_fit) {
    Array<I> wanted(x.size()), found(x.size());
    const std::int32_t host = un::to_grid(out(wanted), in(x), weight, grid);
    BOOST_TEST(on.to_grid(out(found), in(x), weight, grid) == host);
    BOOST_TEST(un::fits(host, grid) == all_fit);
    require_same(found, wanted, "to_grid");

    const Array<T> more = finite<T>(31, x.size());
    const double little = 0.001 * weight;
    BOOST_TEST(on.add_to_grid(out(found), in(more), little, grid) ==
               un::add_to_grid(out(wanted), in(more), little, grid));
    for (std::size_t i = 0; i < x.size(); ++i) {
        // A mark stays a mark, whatever is added to it.
        if (un::detail::is_marked(wanted[i])) BOOST_REQUIRE(un::detail::is_marked(found[i]));
        else BOOST_REQUIRE_EQUAL(found[i], wanted[i]);
    }
    Array<T> number(x.size()), host_number(x.size());
    BOOST_TEST(on.from_grid(out(number), in(found), grid) == un::from_grid(out(host_number), in(wanted), grid));
    require_same(number, host_number, "from_grid");
}

template <class T, class On>
void both_grids(const On& on, std::size_t count) {
    for (const double weight : {1.0, 0.3}) {
        Array<T> x = finite<T>(21, count);
        const std::int32_t needed = un::needed_exponent(in(x), weight);
        BOOST_TEST(on.needed_exponent(in(x), weight) == needed);
        images<T, std::int64_t>(on, x, weight, un::Grid::above<T>(needed, 9), true);
        images<T, std::int32_t>(on, x, weight, un::NarrowGrid::above<T>(needed, 9), true);
        // On a grid that is too low, the largest do not fit, nor do infinities and NaN. Each
        // element fits or not by itself.
        x = numbers<T>(22, count);
        images<T, std::int64_t>(on, x, weight, un::Grid{4}, false);
        images<T, std::int32_t>(on, x, weight, un::NarrowGrid{4, 20}, false);
    }
}

bool is_bad_input(const un::error& e) { return e.code() == un::ErrorCode::bad_input; }

} // namespace

BOOST_AUTO_TEST_SUITE(grid)

BOOST_AUTO_TEST_CASE_TEMPLATE(images_are_those_of_the_host, On, Systems) { both_grids<float>(On(), 9001); }

BOOST_AUTO_TEST_CASE(images_of_other_types) {
    both_grids<double>(First(), 5001);
    both_grids<un::bfloat16>(First(), 5001);
    both_grids<un::float16>(First(), 5001);
}

BOOST_AUTO_TEST_CASE(what_fits_is_what_the_host_says_of_each_magnitude) {
    for (const double weight : {1.0, 0.3, -7.0, 1e-30, 0.0})
        for (const std::int32_t exponent : {-74, -20, 0, 3, 100}) {
            const std::uint32_t most = un::detail::most_that_fits<float>(weight, exponent);
            const auto needed = [&](std::uint32_t bits) {
                return un::detail::needed_by(un::detail::magnitude_of<float>(bits), weight);
            };
            BOOST_TEST(most < 0x7f800000u);
            BOOST_TEST((needed(most) <= exponent || most == 0));
            BOOST_TEST(needed(most + 1) > exponent);
        }
}

BOOST_AUTO_TEST_CASE(a_mark_stays_and_the_first_is_told) {
    const First on;
    Array<std::int64_t> image(9000, 5);
    image[8999] = image[4100] = un::detail::grid_mark;
    Array<float> number(image.size());
    BOOST_TEST(on.from_grid(out(number), in(image), un::Grid{0}) == 4100u);
    const Array<float> x(image.size(), 0.25f);
    on.add_to_grid(out(image), in(x), 1.0, un::Grid{0});
    BOOST_TEST(on.from_grid(out(number), in(image), un::Grid{0}) == 4100u);
    BOOST_TEST(number[8999] != number[8999]);
    BOOST_TEST(number[0] == 0.25f);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_straight_from_numbers_are_those_of_the_host, On, Systems) {
    const On on;
    for (const std::size_t sources : {std::size_t{2}, std::size_t{5}}) {
        constexpr std::size_t count = 5003;
        std::vector<Array<float>> x;
        std::vector<const float*> from;
        std::vector<const std::byte*> host_from;
        std::int32_t needed = un::Grid::nothing;
        for (std::size_t s = 0; s < sources; ++s) x.push_back(finite<float>(40 + s, count));
        for (const Array<float>& one : x) {
            from.push_back(one.data());
            host_from.push_back(reinterpret_cast<const std::byte*>(one.data()));
            needed = std::max(needed, un::needed_exponent(in(one), 0.2));
        }
        const un::Grid grid = un::Grid::above<float>(needed, 5);
        Array<float> found(count), wanted(count);
        float* const to[] = {found.data()};
        std::byte* const host_to[] = {reinterpret_cast<std::byte*>(wanted.data())};
        const un::detail::GridStretch all{count, grid.exponent};
        const un::detail::GridMap map{&all, 0, 0.2};
        const un::Reduction host = un::detail::grid_reduction<float>(map);
        host.combine_at(host.state, host_from.data(), sources, host_to, 1, count, 0);
        on.template combine_on_grid<float>(from, to, count, 0.2, grid);
        require_same(found, wanted, "combine_on_grid");
    }
}

BOOST_AUTO_TEST_CASE(adds_images_as_the_host_does) {
    const Array<std::int64_t> a = numbers<std::int64_t>(51, 5000), b = numbers<std::int64_t>(52, 5000);
    Array<std::int64_t> found(a.size());
    const std::int64_t* const from[] = {a.data(), b.data()};
    std::int64_t* const to[] = {found.data()};
    First().combine<std::int64_t>(un::GridSum{}, from, to, a.size());
    for (std::size_t i = 0; i < a.size(); ++i) BOOST_REQUIRE_EQUAL(found[i], un::detail::add_images(a[i], b[i]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_of_squares_are_those_of_square_sum, On, Systems) {
    const On on;
    for (const std::size_t count : counts) {
        const Array<float> x = finite<float>(61, count);
        un::SquareSum host(un::needed_exponent(in(x)));
        host.add(in(x));
        BOOST_TEST(same_bits(on.sum_of_squares(in(x)), host.value()));
        un::SquareSum parts(un::needed_exponent(in(x)));
        on.add_squares(parts, in(x).first(count / 3));
        on.add_squares(parts, in(x).subspan(count / 3));
        BOOST_TEST(same_bits(parts.value(), host.value()));
    }
    const Array<double> wide = finite<double>(62, 5001);
    un::SquareSum host(un::needed_exponent(in(wide)));
    host.add(in(wide));
    BOOST_TEST(same_bits(on.sum_of_squares(in(wide)), host.value()));
    const Array<float> bad = numbers<float>(63, 5001);
    BOOST_TEST(on.sum_of_squares(in(bad)) != on.sum_of_squares(in(bad)));
}

BOOST_AUTO_TEST_CASE(refuses_what_cannot_be) {
    const First on;
    Array<float> x(4, 1.0f);
    Array<std::int64_t> image(5);
    BOOST_CHECK_EXCEPTION(on.to_grid(out(image), in(x), 1.0, un::Grid{0}), un::error, is_bad_input);
    image.resize(4);
    BOOST_CHECK_EXCEPTION(on.to_grid(out(image), in(x), 1.0, un::Grid{-2000}), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(on.to_grid(out(image), in(x), std::numeric_limits<double>::infinity(), un::Grid{0}),
                          un::error, is_bad_input);
    un::SquareSum sum(0);
    // 1 is not below 2^0.
    BOOST_CHECK_EXCEPTION(on.add_squares(sum, in(x)), un::error, is_bad_input);
}

BOOST_AUTO_TEST_SUITE_END()
