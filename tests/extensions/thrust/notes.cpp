// The notes of a Trainer on a device, made without waiting: where a value is not finite, and the
// largest magnitude after images on a grid.
#include "support.hpp"

#include <unisono/arithmetic/host_arithmetic.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <thrust/device_vector.h>
#include <tuple>

using namespace thrust_test;

namespace {

/// What kernels note, in the device's memory.
using Words = thrust::device_vector<std::uint64_t>;
std::uint64_t* at(Words& words) { return thrust::raw_pointer_cast(words.data()); }

template <class Test>
void on_each_system(Test test) {
    std::apply([&](const auto&... on) { (test(on), ...); }, Systems{});
}

template <class T, class I, bool Add>
void images_as_on_the_host(const auto& on, std::size_t count) {
    const Array<T> x = finite<T>(count + 3, count);
    for (const double weight : {1.0, 0.75, -3.0}) {
        const double most = un::detail::magnitude_of<T>(0);
        double largest = most;
        for (const T& one : x) largest = std::max(largest, std::abs(static_cast<double>(one)));
        const std::int32_t needed = un::detail::needed_by(largest, weight);
        const un::Grid grid = un::Grid::above<T>(std::max(needed, -100) + (sizeof(I) == 4 ? 24 : 0), 2);
        Array<I> wanted(count, 5), found(count, 5);
        un::detail::image_on<T, Add>(un::best_instruction_set(), wanted.data(), x.data(), count, weight, grid.exponent);
        Words noted(1);
        on.template note_images<Add>(out(found), in(x), weight, grid, at(noted));
        require_same(found, wanted, "images");
        BOOST_TEST(on.template needed_by_bits<T>(noted[0], weight) == needed);
        Array<T> numbers(count), other(count);
        un::detail::from_image_on<T>(un::best_instruction_set(), numbers.data(), wanted.data(), count, grid.exponent);
        on.numbers_of(out(other), in(found), grid);
        require_same(other, numbers, "numbers");
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(notes)

BOOST_AUTO_TEST_CASE(where_something_is_not_finite) {
    on_each_system([](const auto& on) {
        for (const std::size_t count : counts) {
            Array<float> x = finite<float>(count + 1, count);
            Words noted(2, 1'000'000);
            on.note_magnitudes(in(x), 100, 127, at(noted));
            BOOST_TEST((noted[0] == 1'000'000u && noted[1] == 1'000'000u));
            if (count < 31) continue;
            x[count - 1] = std::numeric_limits<float>::infinity();
            x[count / 2] = std::numeric_limits<float>::quiet_NaN();
            on.note_magnitudes(in(x), 100, 127, at(noted));
            BOOST_TEST((noted[0] == 100 + count / 2 && noted[1] == 100 + count / 2));
            noted[0] = noted[1] = 7; // found before
            on.note_magnitudes(in(x), 100, 127, at(noted));
            BOOST_TEST((noted[0] == 7u && noted[1] == 7u));
        }
    });
}

BOOST_AUTO_TEST_CASE(where_something_is_large) {
    on_each_system([](const auto& on) {
        for (const std::size_t count : counts) {
            Array<float> x(count, -3.5f);
            Words noted(2, 1'000'000);
            on.note_magnitudes(in(x), 100, 2, at(noted));
            BOOST_TEST((noted[0] == 1'000'000u && noted[1] == 1'000'000u));
            if (count < 31) continue;
            x[count / 2] = 4;
            x[count - 1] = std::numeric_limits<float>::infinity();
            on.note_magnitudes(in(x), 100, 2, at(noted));
            BOOST_TEST((noted[0] == 100 + count - 1 && noted[1] == 100 + count / 2));
        }
    });
}

BOOST_AUTO_TEST_CASE(images) {
    on_each_system([](const auto& on) {
        for (const std::size_t count : counts) {
            images_as_on_the_host<float, std::int64_t, false>(on, count);
            images_as_on_the_host<float, std::int64_t, true>(on, count);
            images_as_on_the_host<double, std::int64_t, true>(on, count);
            images_as_on_the_host<float, std::int32_t, false>(on, count);
            images_as_on_the_host<float, std::int32_t, true>(on, count);
        }
    });
}

/// What a GPU's threads run, on the host one after the other.
template <class Body>
void by_shares(std::size_t count, const Body& body) {
    const un::detail::RunShare<Body> run(body, count, body.packed());
    for (std::size_t thread = 0; thread < run.threads; ++thread) run(thread);
}

template <class Body>
void by_packs(std::size_t count, const Body& body) {
    const un::detail::RunPacks<Body> run(body, count, body.packed());
    for (std::size_t i = 0; i < run.indices(count); ++i) run(i);
}

/// With few threads, so that each has several packs.
template <class Body>
struct FewThreads : Body {
    static constexpr std::size_t most_threads = 7;
};

BOOST_AUTO_TEST_CASE(shares_of_packs) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{30}, std::size_t{1003}})
        for (const std::size_t shift : {0u, 1u}) { // not aligned to packs if shifted
            const Array<float> all = finite<float>(count + 9, count + shift);
            const std::span<const float> x = in(all).subspan(shift);
            const std::int32_t needed = un::needed_exponent(x);
            std::uint32_t magnitude = 0;
            for (const float one : x) magnitude = std::max(magnitude, un::detail::MagnitudeBits{}.of(one));
            const un::Grid grid = un::Grid::above<float>(needed, 2);
            Array<std::int64_t> wanted(count, 5), found(count, 5);
            un::detail::image_on<float, true>(un::best_instruction_set(), wanted.data(), x.data(), count, 0.3,
                                              grid.exponent);
            std::uint64_t noted[4] = {};
            by_shares(count, FewThreads<un::detail::NoteImages<float, std::int64_t, true>>{
                                 {found.data(), x.data(), {{0.3, grid.exponent}}, noted}});
            require_same(found, wanted, "images by shares");
            BOOST_TEST(noted[0] == magnitude);
            noted[0] = 0;
            const un::Grid small = un::Grid::above<float>(needed - 1, 2); // some elements do not fit
            Array<std::int64_t> marked(count, 5), also(count, 5);
            un::add_to_grid(std::span(marked), x, 0.3, small);
            by_shares(
                count,
                FewThreads<
                    un::detail::NoteImages<float, std::int64_t, true, un::detail::MarkedImage<float, std::int64_t>>>{
                    {also.data(),
                     x.data(),
                     {{0.3, small.exponent}, un::detail::most_that_fits<float>(0.3, small.exponent)},
                     noted}});
            require_same(also, marked, "images with marks by shares");
            BOOST_TEST(noted[0] == magnitude);
            Array<float> numbers(count), read(count);
            const std::size_t first = un::from_grid(std::span(numbers), in(marked), small);
            noted[1] = count;
            by_packs(count,
                     un::detail::NoteMarked<float, std::int64_t>{
                         read.data(), marked.data(), {un::detail::ImageScale<false>(small.exponent)}, noted + 1});
            require_same(read, numbers, "numbers by packs");
            BOOST_TEST(noted[1] == first);
            noted[0] = noted[1] = 0;
            by_shares(count, FewThreads<un::detail::NoteLargest<float>>{{x.data(), noted}});
            BOOST_TEST(noted[0] == magnitude);
            by_shares(count, FewThreads<un::detail::NoteSquares<float>>{
                                 {x.data(), un::detail::NoteSquares<float>::unknown, noted}});
            un::SquareSum host(needed), sum(needed);
            host.add(x);
            sum.add<float>(un::NotedSquares{noted[0], {noted[1], noted[2], noted[3]}});
            require_same<double>({sum.value()}, {host.value()}, "squares by shares");
        }
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_needs_no_grid) {
    on_each_system([](const auto& on) {
        for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            const Array<float> x = {1, -bad, 2};
            Array<std::int64_t> image(3);
            Words noted(1);
            on.template note_images<false>(out(image), in(x), 1.0, un::Grid{0}, at(noted));
            BOOST_TEST(on.template needed_by_bits<float>(noted[0], 1.0) == un::Grid::not_finite);
        }
    });
}

template <class T>
void squares_as_on_the_host(const auto& on, std::size_t count) {
    const Array<T> x = finite<T>(count + 5, count), y = finite<T>(count + 6, count / 2);
    const auto read = [](const Words& words) { return un::NotedSquares{words[0], {words[1], words[2], words[3]}}; };
    Words noted(un::NotedSquares::words);
    on.note_squares(in(x), at(noted)); // on the grid that x needs
    un::SquareSum wanted(un::needed_exponent(in(x)));
    wanted.add(in(x));
    BOOST_TEST(un::SquareSum::needed_of<T>(read(noted)) == un::needed_exponent(in(x)));
    un::SquareSum found(un::SquareSum::needed_of<T>(read(noted)));
    found.add<T>(read(noted));
    require_same<double>({found.value()}, {wanted.value()}, "squares");

    noted.assign(noted.size(), 0); // two arrays on one grid
    un::SquareSum both(std::max(un::needed_exponent(in(x)), un::needed_exponent(in(y))) + 3);
    on.note_squares(in(x), at(noted), both.exponent());
    on.note_squares(in(y), at(noted), both.exponent());
    un::SquareSum told(both.exponent());
    told.add<T>(read(noted));
    both.add(in(x));
    both.add(in(y));
    require_same<double>({told.value()}, {both.value()}, "squares of two arrays");
    if (count == 0) return;
    un::SquareSum narrow(un::needed_exponent(in(x)) - 1);
    BOOST_CHECK_THROW(narrow.add<T>(read(noted)), un::error);
}

BOOST_AUTO_TEST_CASE(squares) {
    on_each_system([](const auto& on) {
        for (const std::size_t count : counts) {
            squares_as_on_the_host<float>(on, count);
            squares_as_on_the_host<double>(on, count);
        }
    });
}

BOOST_AUTO_TEST_CASE(squares_of_what_is_not_finite) {
    on_each_system([](const auto& on) {
        const Array<float> x = {1, std::numeric_limits<float>::infinity(), 2};
        Words noted(un::NotedSquares::words);
        on.note_squares(in(x), at(noted));
        BOOST_TEST(un::SquareSum::needed_of<float>({noted[0], {}}) == un::Grid::not_finite);
    });
}

BOOST_AUTO_TEST_CASE(fills) {
    on_each_system([](const auto& on) {
        Array<std::uint64_t> words(5000, 1);
        on.fill(out(words), 9);
        BOOST_TEST(std::count(words.begin(), words.end(), 9u) == 5000);
        on.zero(out(words));
        BOOST_TEST(std::count(words.begin(), words.end(), 0u) == 5000);
    });
}

BOOST_AUTO_TEST_SUITE_END()
