#include "support.hpp"

#include <unisono/arithmetic/grid_sum.hpp>
#include <unisono/arithmetic/kernels.hpp>
#include <unisono/arithmetic/operations.hpp>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>

#ifdef UNISONO_TEST_ON_GPU
#include "support/needs_gpu.hpp"
#endif

using namespace thrust_test;

namespace {

/// Compares the host's kernel with Thrust's, on copies of the same arrays.
template <class T, class Run>
void compare(const char* what, const Array<T>& y, Run run) {
    Array<T> wanted = y;
    Array<T> found = y;
    run(wanted, false);
    run(found, true);
    require_same(found, wanted, what);
}

template <class T, class On>
void combining(const On& on, std::size_t count) {
    const Array<T> a = numbers<T>(11, count);
    const Array<T> b = numbers<T>(12, count);
    const Array<T> c = numbers<T>(13, count);
    const auto one = [&](const auto& op, std::size_t sources) {
        Array<T> wanted[2] = {a, b};
        Array<T> found[2] = {a, b};
        const T* const from[] = {found[0].data(), b.data(), c.data()}; // a target is a source
        T* const to[] = {found[0].data(), found[1].data()};
        const T* const host_from[] = {wanted[0].data(), b.data(), c.data()};
        const std::byte* host_sources[3];
        std::byte* host_targets[2];
        for (std::size_t i = 0; i < 3; ++i) host_sources[i] = reinterpret_cast<const std::byte*>(host_from[i]);
        for (std::size_t i = 0; i < 2; ++i) host_targets[i] = reinterpret_cast<std::byte*>(wanted[i].data());
        const un::Reduction host = un::make_reduction<std::remove_cvref_t<decltype(op)>, T>(op);
        host.combine(host.state, host_sources, sources, host_targets, 2, count);
        on.template combine<T>(op, std::span(from, sources), to, count);
        for (std::size_t i = 0; i < 2; ++i) require_same(found[i], wanted[i], "combine");
    };
    for (const std::size_t sources : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) one(un::Sum{}, sources);
    one(un::Product{}, 3);
    one(un::Min{}, 3);
    one(un::Max{}, 3);
    if constexpr (un::floating_element<T>) one(un::WeightedMean{.weight = 2}, 3);
}

UNISONO_NO_CONTRACTION_BEGIN

struct Pair {
    float first;
    float second;
};
struct AddPairs { // contracted to an FMA it would have other bits
    float factor;
    UNISONO_INLINE Pair operator()(Pair a, Pair b) const {
        return {un::detail::product(a.first, factor) + b.first, a.second < b.second ? b.second : a.second};
    }
};

UNISONO_NO_CONTRACTION_END

template <class Vector>
void scales_as_a_span() {
    Vector vector(3, 2.0f);
    First().scale(un::span_of(vector), 1.5);
    BOOST_TEST(static_cast<float>(vector[2]) == 3.0f);
    const Vector& constant = vector;
    BOOST_TEST(un::span_of(constant).size() == 3u);
}

/// Writes one argument and reads the other.
struct Twice {
    void operator()(float& y, float& x) const {
        y = 1;
        x += 2;
    }
};

template <class Functor, class... T>
auto on_arrays(const Functor& functor, T*... arrays) {
    return un::detail::OnArrays<Functor, std::index_sequence_for<T...>, T...>(functor, arrays...);
}

bool is_bad_input(const un::error& e) { return e.code() == un::ErrorCode::bad_input; }

} // namespace

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE_TEMPLATE(scales_and_accumulates_to_the_bits_of_the_host, On, Systems) {
    const On on;
    for (const std::size_t count : counts) {
        const Array<float> y = numbers<float>(1, count);
        const Array<float> x = numbers<float>(2, count);
        const Array<un::bfloat16> half = numbers<un::bfloat16>(3, count);
        for (const double weight : {1.0, 0.3, -2.0}) {
            compare("scale", y, [&](auto& to, bool thrust) {
                thrust ? on.scale(out(to), in(x), weight) : un::scale(out(to), in(x), weight);
            });
            compare("scale in place", y,
                    [&](auto& to, bool thrust) { thrust ? on.scale(out(to), weight) : un::scale(out(to), weight); });
            compare("divide", y,
                    [&](auto& to, bool thrust) { thrust ? on.divide(out(to), weight) : un::divide(out(to), weight); });
            compare("accumulate", y, [&](auto& to, bool thrust) {
                thrust ? on.accumulate(out(to), in(x), weight) : un::accumulate(out(to), in(x), weight);
            });
            compare("accumulate bf16", y, [&](auto& to, bool thrust) {
                thrust ? on.accumulate(out(to), in(half), weight) : un::accumulate(out(to), in(half), weight);
            });
            compare("accumulate_first", half, [&](auto& to, bool thrust) {
                thrust ? on.accumulate_first(out(to), in(x), weight) : un::accumulate_first(out(to), in(x), weight);
            });
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(combines_to_the_bits_of_the_host, On, Systems) {
    const On on;
    for (const std::size_t count : {std::size_t{1}, std::size_t{4097}, std::size_t{9001}}) {
        combining<float>(on, count);
        combining<un::float16>(on, count); // accumulated in float, rounded once
    }
}

BOOST_AUTO_TEST_CASE(the_other_types_and_operations) {
    const First on;
    combining<double>(on, 5001);
    combining<un::bfloat16>(on, 5001);
    combining<std::int64_t>(on, 5001);
    combining<unsigned char>(on, 5001);
    combining<std::uint32_t>(on, 5001);
    combining<std::size_t>(on, 5001);
}

BOOST_AUTO_TEST_CASE(a_users_operation_on_a_users_type) {
    Array<Pair> a(5000, Pair{1.1f, 2}), b(5000, Pair{0.7f, 3});
    b[7].second = 1;
    const Pair* const from[] = {a.data(), b.data()};
    Pair* const to[] = {a.data()};
    const AddPairs op{0.3f};
    First().combine<Pair>(op, from, to, a.size());
    volatile float product = 1.1f * 0.3f;
    BOOST_TEST(a[4999].first == product + 0.7f);
    BOOST_TEST(a[4999].second == 3);
    BOOST_TEST(a[7].second == 2);
}

BOOST_AUTO_TEST_CASE(packs_have_the_bits_of_single_elements) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{8}, std::size_t{1003}})
        for (const std::size_t shift : {0u, 1u}) { // not aligned to packs if shifted
            const Array<float> all = numbers<float>(6, count + shift), more = numbers<float>(7, count);
            const float* const x = all.data() + shift;
            Array<un::bfloat16> half(count);
            by_packs(count, on_arrays(un::detail::CastElement<un::bfloat16, float>{}, half.data(), x));
            for (std::size_t i = 0; i < count; ++i)
                BOOST_REQUIRE(same_bits(half[i], un::detail::canonical(static_cast<un::bfloat16>(x[i]))));
            Array<float> y = more, wanted = more;
            by_packs(count, on_arrays(un::detail::AddWeighted<float, float>{0.3f}, y.data(), x));
            un::accumulate(out(wanted), std::span(x, count), 0.3);
            require_same(y, wanted, "accumulate by packs");
            // An array that is there twice is not packed: what the functor writes, it reads.
            float* const twice = y.data();
            const auto again = on_arrays(Twice{}, twice, twice);
            BOOST_TEST(!again.packed());
            by_packs(count, again);
            for (std::size_t i = 0; i < count; ++i) BOOST_REQUIRE(y[i] == 3.0f);
        }
}

template <std::size_t Most>
void combine_by_packs(std::size_t sources, std::size_t targets, std::size_t count) {
    std::vector<Array<float>> x, y(targets, Array<float>(count));
    std::vector<const float*> from;
    std::vector<float*> to;
    std::vector<const std::byte*> host_from;
    for (std::size_t s = 0; s < sources; ++s) x.push_back(finite<float>(70 + s, count));
    for (const Array<float>& one : x) {
        from.push_back(one.data());
        host_from.push_back(reinterpret_cast<const std::byte*>(one.data()));
    }
    for (Array<float>& one : y) to.push_back(one.data());
    Array<float> wanted(count);
    std::byte* const host_to[] = {reinterpret_cast<std::byte*>(wanted.data())};
    const un::Reduction sum = un::make_reduction<un::Sum, float>(un::Sum{});
    sum.combine(sum.state, host_from.data(), sources, host_to, 1, count);
    by_packs(count, un::detail::CombineArrays<un::detail::FoldSources<un::Sum, float>, float, Most>({}, from, to));
    for (const Array<float>& one : y) require_same(one, wanted, "a sum by packs");

    const un::Grid grid{140};
    const un::detail::GridStretch all{count, grid.exponent};
    const un::detail::GridMap map{&all, 0, 0.2};
    const un::Reduction on_grid = un::detail::grid_reduction<float>(map);
    on_grid.combine_at(on_grid.state, host_from.data(), sources, host_to, 1, count, 0);
    const un::detail::SumOnGrid<float> formula{{0.2, grid.exponent}, un::detail::ImageScale<false>(grid.exponent)};
    by_packs(count, un::detail::CombineArrays<un::detail::SumOnGrid<float>, float, Most>(formula, from, to));
    for (const Array<float>& one : y) require_same(one, wanted, "a sum on a grid by packs");
}

BOOST_AUTO_TEST_CASE(packs_of_any_number_of_sources_and_targets) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{403}}) {
        for (const std::size_t sources : {1, 2})
            for (const std::size_t targets : {1, 2}) combine_by_packs<2>(sources, targets, count);
        for (const std::size_t sources : {1, 3, 4, 5, 8})
            for (const std::size_t targets : {1, 5, 8}) combine_by_packs<8>(sources, targets, count);
        for (const std::size_t sources : {9, 31, 32})
            for (const std::size_t targets : {1, 32}) combine_by_packs<32>(sources, targets, count);
    }
}

BOOST_AUTO_TEST_CASE(casts_round_once_and_back_is_exact) {
    const First on;
    const auto round_trip = [&]<class Half>(Half) {
        const Array<float> x = numbers<float>(4, 9001);
        Array<Half> half(x.size());
        on.cast(out(half), in(x));
        for (std::size_t i = 0; i < x.size(); ++i)
            BOOST_REQUIRE(same_bits(half[i], un::detail::canonical(static_cast<Half>(x[i]))));
        Array<float> back(x.size());
        on.cast(out(back), in(half));
        Array<Half> again(x.size());
        on.cast(out(again), in(back));
        require_same(again, half, "there and back");
    };
    round_trip(un::bfloat16{});
    round_trip(un::float16{});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(finds_what_is_not_finite, On, Systems) {
    const On on;
    for (const std::size_t count : counts) {
        Array<float> x = finite<float>(5, count);
        BOOST_TEST(on.first_non_finite(in(x)) == un::npos);
        for (const std::size_t at : {std::size_t{10000}, std::size_t{4096}, std::size_t{4094}, std::size_t{0}}) {
            if (at >= count) continue;
            x[at] = at % 3 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
            BOOST_TEST(on.first_non_finite(in(x)) == at);
        }
    }
    Array<un::float16> half(5000);
    half[4999].bits = 0xfc00u;
    BOOST_TEST(on.first_non_finite(in(half)) == 4999u);
}

BOOST_AUTO_TEST_CASE(refuses_what_cannot_be) {
    const First on;
    Array<float> x(4), y(5);
    BOOST_CHECK_EXCEPTION(on.accumulate(out(y), in(x)), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(on.scale(out(y), in(x), 2), un::error, is_bad_input);
    const std::vector<const float*> many(33, x.data());
    float* const to[] = {x.data()};
    BOOST_CHECK_EXCEPTION(on.combine<float>(un::Sum{}, many, to, 4), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(on.combine<float>(un::Sum{}, {}, to, 4), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(on.combine<float>(un::WeightedMean{.weight = -1}, std::span(many).first(2), to, 4), un::error,
                          is_bad_input);
}

BOOST_AUTO_TEST_CASE(spans_of_thrusts_vectors) {
    scales_as_a_span<thrust::device_vector<float>>();
#ifndef UNISONO_TEST_ON_GPU // a kernel of a GPU does not reach its memory
    scales_as_a_span<thrust::host_vector<float>>();
#endif
}

BOOST_AUTO_TEST_SUITE_END()
