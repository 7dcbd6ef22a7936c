#pragma once

/// \file
/// Runs kernels on a system of Thrust: with the same element functors as on the host, one element
/// per thread on a GPU, and elsewhere by tiles, each a loop as on the host.
///
/// A *body* is a plain value with `operator()(std::size_t i) const`, marked UNISONO_INLINE: it
/// computes element i in place, or returns a value of it for a reduction. Bodies hold pointers into
/// memory of the policy's system.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/core/config.hpp"

#if !defined(THRUST_DEVICE_SYSTEM) && !defined(__CUDACC__)
#error \
    "Unisono: without nvcc Thrust must be told where its device is: -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP (or \
_OMP, _TBB); linking the CMake target unisono::thrust does it"
#endif
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error \
    "Unisono: nvcc needs --expt-relaxed-constexpr, so that kernels may use constexpr functions of the standard library; \
linking the CMake target unisono::thrust adds it"
#endif

#include <cstddef>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform_reduce.h>
#include <thrust/version.h>
#include <type_traits>
#include <utility>

#if THRUST_VERSION < 101500
#error "Unisono needs Thrust 1.15 or newer (Debian 12's libthrust-dev has 1.17, CUDA 12 has 2.x and CUDA 13 has 3.0)"
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

#if defined(__CUDACC__)
template <class Derived>
std::true_type is_of_cuda(const thrust::cuda_cub::execution_policy<Derived>&);
#endif
std::false_type is_of_cuda(...);

/// True if a policy's threads are a GPU's.
template <class Policy>
inline constexpr bool runs_on_gpu = decltype(is_of_cuda(std::declval<const Policy&>()))::value;

/// The number of elements per index of Thrust.
template <class Policy>
inline constexpr std::size_t tile_elements = runs_on_gpu<Policy> ? 1 : 4096;

UNISONO_NO_CONTRACTION_BEGIN

template <class Body>
struct TileLoop {
    const Body& each;
    std::size_t begin;
    std::size_t end;
    UNISONO_INLINE void operator()() const {
        const Body body(each); // a copy, as in apply_loop
        UNISONO_ELEMENTWISE
        for (std::size_t i = begin; i < end; ++i) body(i);
    }
};

template <class Body, class Op, class Value>
struct TileFold {
    const Body& each;
    const Op& op;
    std::size_t begin;
    std::size_t end;
    Value* result;
    UNISONO_INLINE void operator()() const {
        const Body body(each);
        const Op operation(op);
        Value value = body(begin);
        for (std::size_t i = begin + 1; i < end; ++i) value = operation(value, body(i));
        *result = value;
    }
};

UNISONO_NO_CONTRACTION_END

template <class Body>
struct RunTile {
    Body body;
    std::size_t count;
    UNISONO_ON_DEVICE void operator()(std::size_t tile) const {
#if defined(__CUDA_ARCH__)
        body(tile);
#else
        constexpr std::size_t elements = 4096;
        const std::size_t begin = tile * elements;
        const std::size_t end = count - begin < elements ? count : begin + elements;
        vectorised(best_instruction_set(), TileLoop<Body>{body, begin, end});
#endif
    }
};

template <class Body, class Op, class Value>
struct FoldTile {
    Body body;
    Op op;
    std::size_t count;
    UNISONO_ON_DEVICE Value operator()(std::size_t tile) const {
#if defined(__CUDA_ARCH__)
        return body(tile);
#else
        constexpr std::size_t elements = 4096;
        const std::size_t begin = tile * elements;
        const std::size_t end = count - begin < elements ? count : begin + elements;
        Value value{};
        vectorised(best_instruction_set(), TileFold<Body, Op, Value>{body, op, begin, end, &value});
        return value;
#endif
    }
};

template <class Policy>
constexpr std::size_t tiles_of(std::size_t count) {
    return count / tile_elements<Policy> + (count % tile_elements<Policy> != 0 ? 1 : 0);
}

/// body(i) for i in [0, count), in no particular order.
template <class Policy, class Body>
void thrust_each(const Policy& policy, std::size_t count, const Body& body) {
    if (count == 0) return;
    const thrust::counting_iterator<std::size_t> first(0);
    thrust::for_each(policy, first, first + static_cast<std::ptrdiff_t>(tiles_of<Policy>(count)),
                     RunTile<Body>{body, count});
}

/// body(0) op body(1) op ..., in the grouping and order of the system: `op` must be associative and
/// commutative, `none` its neutral value. Waits for the result.
template <class Value, class Policy, class Body, class Op>
Value thrust_fold(const Policy& policy, std::size_t count, const Body& body, Value none, const Op& op) {
    if (count == 0) return none;
    const thrust::counting_iterator<std::size_t> first(0);
    return thrust::transform_reduce(policy, first, first + static_cast<std::ptrdiff_t>(tiles_of<Policy>(count)),
                                    FoldTile<Body, Op, Value>{body, op, count}, none, op);
}

template <std::size_t I, class T>
struct ArrayAt {
    T* data;
};

/// A functor over arrays, as a body.
template <class Functor, class Indices, class... T>
struct OnArrays;
template <class Functor, std::size_t... I, class... T>
struct OnArrays<Functor, std::index_sequence<I...>, T...> : ArrayAt<I, T>... {
    Functor functor;

    explicit OnArrays(const Functor& f, T*... arrays) : ArrayAt<I, T>{arrays}..., functor(f) {}
    UNISONO_INLINE void operator()(std::size_t i) const { functor(ArrayAt<I, T>::data[i]...); }
};

template <class Policy, class Functor, class... T>
void thrust_apply(const Policy& policy, const Functor& functor, std::size_t count, T*... arrays) {
    thrust_each(policy, count, OnArrays<Functor, std::index_sequence_for<T...>, T...>(functor, arrays...));
}

} // namespace detail
UNISONO_NAMESPACE_END
