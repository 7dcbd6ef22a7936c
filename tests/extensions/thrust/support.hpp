#pragma once

/// \file Shared by the tests of this room: Thrust's host systems, or with UNISONO_TEST_ON_GPU
/// (on_gpu.sh) a GPU; and arrays to compare bit by bit.

#include "base/arithmetic/support.hpp"

#include <unisono/thrust.hpp>

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>
#if defined(UNISONO_TEST_ON_GPU)
#include <cuda_runtime_api.h>
#include <new>
#include <thrust/system/cuda/execution_policy.h>
#else
#include <thrust/system/cpp/execution_policy.h>
#endif
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

#if defined(UNISONO_TEST_ON_GPU)
/// Kernels on the default stream. Each call waits for its kernel, so the host may read the results.
using Systems = std::tuple<On<std::remove_cvref_t<decltype(thrust::cuda::par)>>>;

/// Pinned memory of the host, which kernels of a GPU reach at the same address.
template <class T>
struct Pinned {
    using value_type = T;
    Pinned() = default;
    template <class U>
    Pinned(const Pinned<U>&) {}
    T* allocate(std::size_t count) {
        void* made = nullptr;
        if (cudaMallocHost(&made, count * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
        return static_cast<T*>(made);
    }
    void deallocate(T* memory, std::size_t) { static_cast<void>(cudaFreeHost(memory)); }
    friend bool operator==(const Pinned&, const Pinned&) { return true; }
};
/// An array that both the host and the tested system reach.
template <class T>
using Array = std::vector<T, Pinned<T>>;
#else
using Systems = std::tuple<On<std::remove_cvref_t<decltype(thrust::cpp::par)>>
#if defined(UNISONO_TEST_OMP)
                           ,
                           On<std::remove_cvref_t<decltype(thrust::omp::par)>>
#endif
#if defined(UNISONO_TEST_TBB)
                           ,
                           On<std::remove_cvref_t<decltype(thrust::tbb::par)>>
#endif
                           >;
/// An array that both the host and the tested system reach.
template <class T>
using Array = std::vector<T>;
#endif

/// The system of the tests that need only one.
using First = std::tuple_element_t<0, Systems>;

/// Around the ends of tiles, and several tiles.
inline constexpr std::size_t counts[] = {0, 1, 31, 4095, 4096, 4097, 12001};

/// What a GPU runs of a body, on the host.
template <class Body>
void by_packs(std::size_t count, const Body& body) {
    const un::detail::RunPacks<Body> run(body, count, body.packed());
    for (std::size_t i = 0; i < run.indices(count); ++i) run(i);
}

template <class T>
Array<T> numbers(std::uint64_t seed, std::size_t count) {
    Values<T> values(seed);
    Array<T> result(count);
    for (T& x : result) x = values.next();
    return result;
}
/// Without infinities and NaN.
template <class T>
Array<T> finite(std::uint64_t seed, std::size_t count) {
    Array<T> result = numbers<T>(seed, count);
    for (T& x : result)
        if (un::first_non_finite(std::span(&x, 1)) == 0) x = static_cast<T>(0.75f);
    return result;
}

template <class T>
std::span<const T> in(const Array<T>& x) {
    return x;
}
template <class T>
std::span<T> out(Array<T>& x) {
    return x;
}

/// A copy of device memory.
template <class T>
Array<T> download(std::span<T> x) {
    Array<T> result(x.size());
    if (!x.empty()) un::ThrustCopies().to_host(out(result), std::span<const T>(x));
    return result;
}

template <class T>
void require_same(const Array<T>& found, const Array<T>& wanted, const std::string& what) {
    BOOST_REQUIRE_EQUAL(found.size(), wanted.size());
    if (found.empty() || std::memcmp(found.data(), wanted.data(), found.size() * sizeof(T)) == 0) return;
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_REQUIRE_MESSAGE(same_bits(found[i], wanted[i]), what << ", count " << found.size() << ", element " << i);
}

} // namespace thrust_test
