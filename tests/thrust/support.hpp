#pragma once

/// \file Shared by the tests of this room: Thrust's host systems, and arrays to compare bit by bit.

#include "arithmetic/support.hpp"

#include <unisono/thrust.hpp>

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <string>
#include <thrust/system/cpp/execution_policy.h>
#include <tuple>
#include <type_traits>
#include <vector>
#if defined(UNISONO_TEST_OMP)
#include <thrust/system/omp/execution_policy.h>
#endif
#if defined(UNISONO_TEST_TBB)
#include <thrust/system/tbb/execution_policy.h>
#endif

namespace thrust_test {

namespace un = unisono;
using arithmetic_test::same_bits;
using arithmetic_test::Values;

template <class Policy>
using On = un::ThrustArithmetic<Policy>;

using Cpp = std::remove_cvref_t<decltype(thrust::cpp::par)>;
using Systems = std::tuple<On<Cpp>
#if defined(UNISONO_TEST_OMP)
                           ,
                           On<std::remove_cvref_t<decltype(thrust::omp::par)>>
#endif
#if defined(UNISONO_TEST_TBB)
                           ,
                           On<std::remove_cvref_t<decltype(thrust::tbb::par)>>
#endif
                           >;

/// Around the ends of tiles, and several tiles.
inline constexpr std::size_t counts[] = {0, 1, 31, 4095, 4096, 4097, 12001};

template <class T>
std::vector<T> numbers(std::uint64_t seed, std::size_t count) {
    Values<T> values(seed);
    std::vector<T> result(count);
    for (T& x : result) x = values.next();
    return result;
}
/// Without infinities and NaN.
template <class T>
std::vector<T> finite(std::uint64_t seed, std::size_t count) {
    std::vector<T> result = numbers<T>(seed, count);
    for (T& x : result)
        if (un::first_non_finite(std::span(&x, 1)) == 0) x = static_cast<T>(0.75f);
    return result;
}

template <class T>
std::span<const T> in(const std::vector<T>& x) {
    return x;
}
template <class T>
std::span<T> out(std::vector<T>& x) {
    return x;
}

template <class T>
void require_same(const std::vector<T>& found, const std::vector<T>& wanted, const std::string& what) {
    BOOST_REQUIRE_EQUAL(found.size(), wanted.size());
    if (found.empty() || std::memcmp(found.data(), wanted.data(), found.size() * sizeof(T)) == 0) return;
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_REQUIRE_MESSAGE(same_bits(found[i], wanted[i]), what << ", count " << found.size() << ", element " << i);
}

} // namespace thrust_test
