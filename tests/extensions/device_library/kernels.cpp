// Each kernel of the library unisono::devices beside the host's function of the same name, bit by
// bit. The source sees no Thrust: tests/on_gpu.sh compiles it by the host's compiler, too.
#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

#include <unisono/arithmetic/narrow_grid.hpp>
#include <unisono/arithmetic/square_sum.hpp>

#include <boost/test/unit_test.hpp>

#ifndef UNISONO_TEST_ON_GPU
#include "stand_in.hpp"
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

namespace un = unisono;

namespace {

using Floats = std::tuple<float, double, un::bfloat16, un::float16>;
using Elements =
    std::tuple<float, double, un::bfloat16, un::float16, unsigned char, int, long, long long, unsigned, unsigned long>;

void check(cudaError_t code) { un::detail::check_cuda(code, "CUDA"); }

/// An array on the device.
template <class T>
class Array {
public:
    explicit Array(const std::vector<T>& values) : count_(values.size()) {
        check(cudaMalloc(&memory_, count_ * sizeof(T) + 1));
        check(cudaMemcpy(memory_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() { static_cast<void>(cudaFree(memory_)); }
    [[nodiscard]] T* data() const { return static_cast<T*>(memory_); }
    [[nodiscard]] std::span<T> span() const { return {data(), count_}; }
    [[nodiscard]] std::span<const T> in() const { return {data(), count_}; }
    [[nodiscard]] std::vector<T> read(cudaStream_t stream) const {
        check(cudaStreamSynchronize(stream));
        std::vector<T> values(count_);
        check(cudaMemcpy(values.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    void* memory_ = nullptr;
    std::size_t count_;
};

struct Set {
    un::detail::CudaStream stream = un::detail::CudaStream::make();
    un::StreamArithmetic<cudaStream_t> on{stream.get()};
    std::mt19937 random{7};

    template <class T>
    std::vector<T> draw(std::size_t count) {
        std::vector<T> made(count);
        for (T& one : made) {
            if constexpr (std::is_integral_v<T>) one = static_cast<T>(random());
            else one = static_cast<T>(std::uniform_real_distribution<float>(-8, 8)(random));
        }
        return made;
    }
    template <class T>
    void same(const Array<T>& found, const std::vector<T>& expected) {
        const std::vector<T> values = found.read(stream.get());
        BOOST_TEST((std::memcmp(values.data(), expected.data(), expected.size() * sizeof(T)) == 0));
    }
};

template <class T>
std::span<const T> in(const std::vector<T>& values) {
    return values;
}

constexpr std::size_t count = 1003; ///< not a whole number of packs

} // namespace

BOOST_FIXTURE_TEST_SUITE(device_library_kernels, Set)

BOOST_AUTO_TEST_CASE_TEMPLATE(bits, T, Elements) {
    const Array<T> a(draw<T>(count));
    const std::vector<T> other = draw<T>(count);
    on.copy(a.span(), Array<T>(other).in()), same(a, other);
    on.fill(a.span().first(5), other[7]);
    on.zero(a.span().subspan(5));
    std::vector<T> expected(count);
    std::fill_n(expected.begin(), 5, other[7]);
    same(a, expected);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(operations, T, Elements) {
    const auto one = [&]<class Op>(const Op& op) {
        std::vector<std::vector<T>> values;
        for (int i = 0; i < 3; ++i) values.push_back(draw<T>(count));
        const Array<T> a(values[0]), b(values[1]), c(values[2]), to(values[0]), also(values[0]);
        const std::byte* sources[] = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data()),
                                      reinterpret_cast<std::byte*>(c.data())};
        std::byte* targets[] = {reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<std::byte*>(also.data())};
        un::StreamKernel<Op, T>::call(&op, sources, 3, targets, 2, count, stream.get());
        std::vector<T> expected(count);
        const std::byte* here[] = {reinterpret_cast<std::byte*>(values[0].data()),
                                   reinterpret_cast<std::byte*>(values[1].data()),
                                   reinterpret_cast<std::byte*>(values[2].data())};
        std::byte* into[] = {reinterpret_cast<std::byte*>(expected.data())};
        const un::Reduction reduction = un::make_reduction<Op, T>(op);
        reduction.combine(reduction.state, here, 3, into, 1, count);
        same(to, expected), same(also, expected);
    };
    one(un::Sum{}), one(un::Product{}), one(un::Min{}), one(un::Max{});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(elementwise, T, Floats) {
    const auto from = [&]<class Other>(const Other&) {
        std::vector<T> y = draw<T>(count);
        const std::vector<Other> x = draw<Other>(count);
        const Array<T> there(y);
        const Array<Other> given(x);
        on.accumulate(there.span(), given.in(), 0.3), un::accumulate(std::span(y), in(x), 0.3);
        same(there, y);
        on.accumulate_first(there.span(), given.in(), 0.7), un::accumulate_first(std::span(y), in(x), 0.7);
        same(there, y);
        on.cast(there.span(), given.in());
        for (std::size_t i = 0; i < count; ++i) un::detail::StoreWeighted<T, Other>{1}(y[i], x[i]);
        same(there, y);
    };
    std::apply([&](const auto&... each) { (from(each), ...); }, Floats());
    std::vector<T> x = draw<T>(count), y = draw<T>(count);
    const Array<T> a(x), b(y);
    on.scale(a.span(), b.in(), 0.7), un::scale(std::span(x), in(y), 0.7), same(a, x);
    on.scale(a.span(), 1.3), un::scale(std::span(x), 1.3), same(a, x);
    on.divide(a.span(), 3), un::divide(std::span(x), 3), same(a, x);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(findings, T, Floats) {
    std::vector<T> x = draw<T>(count);
    x[800] = static_cast<T>(100);
    const auto ask = [&] {
        const Array<T> there(x);
        BOOST_TEST(on.first_non_finite(there.in()) == un::first_non_finite(in(x)));
        BOOST_TEST(on.needed_exponent(there.in(), 0.5) == un::needed_exponent(in(x), 0.5));
        std::vector<std::uint64_t> nothing(2, std::numeric_limits<std::uint64_t>::max());
        const Array<std::uint64_t> noted(nothing);
        on.note_magnitudes(there.in(), 10, 6, noted.data());
        if (un::first_non_finite(in(x)) < count) nothing[0] = 10 + un::first_non_finite(in(x));
        nothing[1] = 10 + un::first_at_least(in(x), 6);
        same(noted, nothing);
        un::SquareSum sum(un::needed_exponent(in(x), 1.0)), found(un::needed_exponent(in(x), 1.0));
        sum.add(in(x));
        on.add_squares(found, there.in());
        BOOST_TEST((found.value() == sum.value() || un::first_non_finite(in(x)) < count));
        BOOST_TEST((on.sum_of_squares(there.in()) == sum.value() || un::first_non_finite(in(x)) < count));
        const auto words = [&](const auto&... exponent) {
            const std::vector<std::uint64_t> zeros(un::NotedSquares::words);
            const Array<std::uint64_t> kept(zeros);
            on.note_squares(there.in(), kept.data(), exponent...);
            const std::vector<std::uint64_t> all = kept.read(stream.get());
            un::SquareSum told(sum.exponent());
            told.template add<T>(un::NotedSquares{all[0], {all[1], all[2], all[3]}});
            return told.value();
        };
        if (un::first_non_finite(in(x)) < count) return;
        BOOST_TEST(words(sum.exponent()) == sum.value());
        BOOST_TEST(words() == sum.value());
    };
    ask();
    x[700] = static_cast<T>(std::numeric_limits<float>::infinity());
    ask();
}

BOOST_AUTO_TEST_CASE_TEMPLATE(grids, T, Floats) {
    const std::vector<T> x = draw<T>(count);
    const Array<T> there(x);
    const auto with = [&]<class Integer, class G>(const Integer&, const G& grid, const un::Grid& wide) {
        std::vector<Integer> image(count);
        const Array<Integer> noted(image);
        const Array<Integer> made(image);
        const Array<std::uint64_t> largest(std::vector<std::uint64_t>(1));
        BOOST_TEST(on.to_grid(made.span(), there.in(), 0.5, grid) == un::to_grid(std::span(image), in(x), 0.5, grid));
        same(made, image);
        on.template note_images<false>(noted.span(), there.in(), 0.5, wide, largest.data());
        same(noted, image);
        BOOST_TEST(on.needed_by_bits<T>(largest.read(stream.get())[0], 0.5) == un::needed_exponent(in(x), 0.5));
        BOOST_TEST(on.add_to_grid(made.span(), there.in(), 0.25, grid) ==
                   un::add_to_grid(std::span(image), in(x), 0.25, grid));
        on.template note_images<true>(noted.span(), there.in(), 0.25, wide, largest.data());
        same(made, image), same(noted, image);
        std::vector<T> numbers(count);
        const Array<T> out(numbers), also(numbers);
        BOOST_TEST(on.from_grid(out.span(), made.in(), grid) == un::from_grid(std::span(numbers), in(image), grid));
        on.numbers_of(also.span(), made.in(), wide);
        same(out, numbers), same(also, numbers);
    };
    const un::Grid grid = un::Grid::above<T>(un::needed_exponent(in(x), 1.0), 3);
    with(std::int64_t{}, grid, grid);
    const un::NarrowGrid narrow{5, 26};
    with(std::int32_t{}, narrow, narrow.wide());

    std::vector<T> sum(count);
    const std::vector<T> y = draw<T>(count);
    const Array<T> other(y), to(sum);
    const T* const sources[] = {there.data(), other.data()};
    T* const targets[] = {to.data()};
    on.combine_on_grid(std::span<const T* const>(sources), std::span<T* const>(targets), count, 0.5, grid);
    std::vector<std::int64_t> image(count);
    un::to_grid(std::span(image), in(x), 0.5, grid), un::add_to_grid(std::span(image), in(y), 0.5, grid);
    un::from_grid(std::span(sum), in(image), grid);
    same(to, sum);
}

#ifndef UNISONO_TEST_ON_GPU
// A trainer's guard or a sum on a grid must not wait for cudaMalloc in each update.
BOOST_AUTO_TEST_CASE(only_the_first_answer_allocates) {
    const Array<float> x(draw<float>(count)), out(draw<float>(count));
    const Array<std::int64_t> image(std::vector<std::int64_t>(count, 0));
    const Array<std::int32_t> narrow(std::vector<std::int32_t>(count, 0));
    const std::size_t bytes = stand_in::counts().device_bytes, pinned = stand_in::counts().pinned_bytes;
    {
        const un::StreamArithmetic<cudaStream_t> asks(stream.get());
        const int before = stand_in::counts().allocations;
        asks.scale(out.span(), x.in(), 0.5);
        BOOST_TEST(stand_in::counts().allocations == before); // nothing is asked yet
        BOOST_TEST(asks.first_non_finite(x.in()) == un::npos);
        BOOST_TEST(stand_in::counts().allocations == before + 2);
        const auto call_all = [&](const un::StreamArithmetic<cudaStream_t>& of) {
            un::SquareSum sum(5);
            const double norm = of.sum_of_squares(x.in());
            of.add_squares(sum, x.in());
            BOOST_TEST(std::abs(sum.value() - norm) <= 1e-9 * norm);
            const un::Grid grid{of.needed_exponent(x.in()) + 2};
            const un::NarrowGrid small{5, 26};
            BOOST_TEST(of.to_grid(image.span(), x.in(), 1.0, grid) <= grid.exponent);
            BOOST_TEST(of.add_to_grid(image.span(), x.in(), 1.0, grid) <= grid.exponent);
            BOOST_TEST(of.from_grid(out.span(), image.in(), grid) == count);
            of.to_grid(narrow.span(), x.in(), 1.0, small), of.add_to_grid(narrow.span(), x.in(), 1.0, small);
            BOOST_TEST(of.from_grid(out.span(), narrow.in(), small) == count);
            BOOST_TEST(of.first_non_finite(x.in()) == un::npos);
        };
        for (int call = 0; call < 16; ++call) call_all(asks);
        BOOST_TEST(stand_in::counts().allocations == before + 2);
        const auto copy = asks; // has words of its own
        call_all(copy);
        BOOST_TEST(stand_in::counts().allocations == before + 4);
        for (int call = 0; call < 3; ++call) // another current device has words of its own
            for (const int device : {1, 0}) {
                BOOST_TEST(cudaSetDevice(device) == cudaSuccess);
                BOOST_TEST(asks.first_non_finite(x.in()) == un::npos);
            }
        BOOST_TEST(stand_in::counts().allocations == before + 6);
    }
    BOOST_TEST(stand_in::counts().device_bytes == bytes);
    BOOST_TEST(stand_in::counts().pinned_bytes == pinned);
}

// Threads that share an object take turns, and each has its own answer.
BOOST_AUTO_TEST_CASE(threads_that_ask_at_once) {
    constexpr std::size_t threads = 4;
    std::vector<std::unique_ptr<Array<float>>> arrays;
    for (std::size_t i = 0; i < threads; ++i) {
        std::vector<float> x(count, 1.0f);
        x[100 * i + 7] = std::numeric_limits<float>::infinity();
        arrays.push_back(std::make_unique<Array<float>>(x));
    }
    std::vector<int> wrong(threads);
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < threads; ++i)
        all.emplace_back([&, i] {
            for (int call = 0; call < 50; ++call) wrong[i] += on.first_non_finite(arrays[i]->in()) != 100 * i + 7;
        });
    for (std::thread& one : all) one.join();
    BOOST_TEST(wrong == std::vector<int>(threads), boost::test_tools::per_element());
}

// A program that links to the library has no header of Thrust's to catch its errors by.
BOOST_AUTO_TEST_CASE(an_error_of_thrust) {
    const Array<float> x(draw<float>(count));
    const auto has_its_text = [](const un::error& failed) {
        return failed.code() == un::ErrorCode::refused &&
               std::string(failed.what()).find("CUDA: no launch (stand-in): ") != std::string::npos;
    };
    {
        const stand_in::Scene none({.kernels = false});
        BOOST_CHECK_EXCEPTION(on.scale(x.span(), 0.5), un::error, has_its_text);
        BOOST_CHECK_EXCEPTION(static_cast<void>(on.first_non_finite(x.in())), un::error, has_its_text);
    }
    on.scale(x.span(), 0.5); // the next call runs
    BOOST_TEST(on.first_non_finite(x.in()) == un::npos);
}

// Memory that cannot be had is an error of the call, and the next call asks again.
BOOST_AUTO_TEST_CASE(no_memory_for_an_answer) {
    const Array<float> x(draw<float>(count));
    const auto is_refused = [](const un::error& failed) {
        return failed.code() == un::ErrorCode::refused &&
               std::string(failed.what()).find("cudaErrorMemoryAllocation") != std::string::npos;
    };
    const std::size_t bytes = stand_in::counts().device_bytes;
    {
        const stand_in::Scene none({.memory = 0});
        BOOST_CHECK_EXCEPTION(static_cast<void>(on.first_non_finite(x.in())), un::error, is_refused);
    }
    {
        const stand_in::Scene none({.pinned = 0});
        BOOST_CHECK_EXCEPTION(static_cast<void>(on.first_non_finite(x.in())), un::error, is_refused);
    }
    BOOST_TEST(stand_in::counts().device_bytes == bytes);
    BOOST_TEST(on.first_non_finite(x.in()) == un::npos);
}
#endif

BOOST_AUTO_TEST_CASE(sizes_that_differ) {
    const Array<float> four(std::vector<float>(4)), five(std::vector<float>(5));
    const auto is_bad_input = [](const un::error& failed) { return failed.code() == un::ErrorCode::bad_input; };
    BOOST_CHECK_EXCEPTION(on.copy(four.span(), five.in()), un::error, is_bad_input);
    un::OptimizerSlice<float> state;
    state.count = 4;
    BOOST_CHECK_EXCEPTION(un::update_on(on, un::Sgd{}, state, four.span(), five.in(), {}), un::error, is_bad_input);
    const float* many[33] = {};
    float* to[] = {four.data()};
    BOOST_CHECK_EXCEPTION(on.combine(un::Sum{}, std::span<const float* const>(many), std::span<float* const>(to), 4),
                          un::error, is_bad_input);
}

BOOST_AUTO_TEST_SUITE_END()
