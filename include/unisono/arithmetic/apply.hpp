#pragma once

/// \file
/// Applies a formula to slices, element by element: the basis of optimizers.

#include "unisono/arithmetic/values.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <concepts>
#include <cstddef>
#include <span>

// std::sqrt may set errno, so no loop with it is vectorised. clang gets the instruction by the name
// of its intrinsic; g++ by a declaration of the builtin as free of side effects (in files that
// include this header std::sqrt(float) does not set errno; its values do not change).
#if defined(__clang__)
extern "C" float unisono_square_root_float(float) noexcept __asm("llvm.sqrt.f32");
extern "C" double unisono_square_root_double(double) noexcept __asm("llvm.sqrt.f64");
#elif !defined(__CUDACC__)
extern "C" [[gnu::const]] float __builtin_sqrtf(float) noexcept;
extern "C" [[gnu::const]] double __builtin_sqrt(double) noexcept;
#endif

UNISONO_NAMESPACE_BEGIN
UNISONO_NO_CONTRACTION_BEGIN

#if defined(__CUDA_ARCH__)
UNISONO_INLINE float square_root(float x) { return __fsqrt_rn(x); }
UNISONO_INLINE double square_root(double x) { return __dsqrt_rn(x); }
#elif defined(__clang__)
/// The correctly rounded square root, for functors: unlike std::sqrt it allows loops to be
/// vectorised.
UNISONO_INLINE float square_root(float x) { return unisono_square_root_float(x); }
/// The same in double.
UNISONO_INLINE double square_root(double x) { return unisono_square_root_double(x); }
#else
/// The correctly rounded square root, for functors: unlike std::sqrt it allows loops to be
/// vectorised.
UNISONO_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
/// The same in double.
UNISONO_INLINE double square_root(double x) { return __builtin_sqrt(x); }
#endif

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_size(const char* who, std::size_t found, std::size_t expected) {
    refuse_input({who, ": a span has ", found, " elements; expected ", expected, ", as the first has"});
}

inline void check_sizes(const char* who, std::size_t found, std::size_t expected) {
    if (found != expected) refuse_size(who, found, expected);
}

template <class Functor, class... T>
UNISONO_INLINE void apply_loop(Functor functor, std::size_t count, T*... arrays) {
    // The functor is a copy: behind a reference, a compiler would have to assume that a store
    // changes its parameters.
    UNISONO_ELEMENTWISE
    for (std::size_t i = 0; i < count; ++i) functor(arrays[i]...);
}

template <class Functor, class... T>
void apply_on(InstructionSet set, const Functor& functor, std::size_t count, T*... arrays) {
    vectorised(
        set, [&functor, count, arrays... ]()
                 __attribute__((always_inline)) { apply_loop(Functor(functor), count, arrays...); });
}

} // namespace detail

/// functor(first[i], rest[i]...) for every i, in no particular order, in place: the functor takes
/// references, const ones for `span<const T>`. All spans have the same length, else bad_input; two
/// spans are the same memory or do not overlap. The functor is copied; its call operator is const,
/// and must not throw.
///
/// For bits that no compiler changes, define the functor between UNISONO_NO_CONTRACTION_BEGIN and
/// _END and mark its call operator UNISONO_INLINE; a lambda that is defined there works as well.
/// (g++ obeys in any case, as everything is inlined into a kernel; clang contracts a formula at its
/// place of definition.) For speed use `square_root`, no calls into the library and no branches but
/// `?:`. Cost: one pass through memory.
template <class Functor, class First, class... Rest>
    requires std::invocable<const Functor&, First&, Rest&...>
void apply(const Functor& functor, std::span<First> first, std::span<Rest>... rest) {
    const std::size_t count = first.size();
    (detail::check_sizes("apply", rest.size(), count), ...);
    detail::apply_on(best_instruction_set(), functor, count, first.data(), rest.data()...);
}

UNISONO_NO_CONTRACTION_END

/// Runs element functors on this processor, for code that also runs them elsewhere (optimizers).
/// Another such type has a const `apply` with the same arguments
/// (extensions/thrust/update.hpp).
struct OnHost {
    template <class Functor, class... T>
    UNISONO_INLINE void apply(const Functor& functor, std::span<T>... spans) const {
        unisono::apply(functor, spans...);
    }
};

UNISONO_NAMESPACE_END
