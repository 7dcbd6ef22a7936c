#pragma once

/// \file
/// The macros of the library: namespaces, assertions, and the compiler switches that keep promised
/// bits. One more is in rule.hpp.

#include "unisono/core/version.hpp"

#include <cstdio>
#include <cstdlib>

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "Unisono needs C++20 (found an older -std); pass -std=c++20 or newer"
#endif
#ifndef __cpp_exceptions
#error \
    "Unisono tells of errors by exceptions: compile the files that include it without -fno-exceptions (a program that has none keeps this to one file and takes errors as values: core/outcome.hpp)"
#endif

/// Opens `unisono` with its inline version namespace, so that two versions linked into one program
/// do not mix.
#define UNISONO_NAMESPACE_BEGIN \
    namespace unisono {         \
    inline namespace v0 {
#define UNISONO_NAMESPACE_END \
    }                         \
    }

/// The compiled mode: with UNISONO_COMPILED, which the CMake target unisono::compiled defines, a
/// program takes from that target's library what does not depend on the program: the templates
/// listed in unisono/compiled/, and what stands between `#if UNISONO_DEFINES` and its end. Without
/// it, the default, every file compiles what it uses. The source is the same. A program that has
/// files of both modes ends when it starts, with a sentence that says so.
#if defined(UNISONO_BUILDS_LIBRARY)
#define UNISONO_DEFINES 1
#define UNISONO_DEFINITION
#define UNISONO_COMPILED_TEMPLATE template
#elif defined(UNISONO_COMPILED)
#define UNISONO_DEFINES 0
#define UNISONO_COMPILED_TEMPLATE extern template
extern "C" {
extern const char unisono_library_of_the_compiled_mode; ///< undefined? Link to unisono::compiled
}
namespace {
[[gnu::used]] const char* const unisono_needs_its_library = &unisono_library_of_the_compiled_mode;
}
#else
#define UNISONO_DEFINES 1
#define UNISONO_DEFINITION inline
extern "C" [[gnu::used]] inline const char unisono_compiled_without_the_library = 1; ///< what the library looks for
#endif

/// Under a type of the library: the concept that it satisfies. Where the library is built, and in
/// tests/headers, this is a static_assert; a program does not prove again what is proven there,
/// since the proofs of a hundred types take a compiler 50 ms.
#if defined(UNISONO_BUILDS_LIBRARY) || defined(UNISONO_CERTIFIES)
#define UNISONO_CERTIFY(...) static_assert(__VA_ARGS__)
#else
#define UNISONO_CERTIFY(...) static_assert(true)
#endif

/// A programmer's error inside the library: says what and where, then aborts (debug builds only).
#if defined(NDEBUG) && !defined(UNISONO_ASSERTIONS)
#define UNISONO_ASSERT(condition, message) static_cast<void>(0)
#else
#define UNISONO_LITERAL_OF(number) #number
#define UNISONO_LITERAL(number) UNISONO_LITERAL_OF(number)
#define UNISONO_ASSERT(condition, message) \
    ((condition)                           \
         ? static_cast<void>(0)            \
         : ::unisono::detail::fail_assertion(#condition ": " message ", at " __FILE__ ":" UNISONO_LITERAL(__LINE__)))
#endif

/// On a function that a GPU may run, too: what CUDA's compiler needs to see there, and nothing for
/// any other.
#if defined(__CUDACC__)
#define UNISONO_ON_DEVICE __host__ __device__
#else
#define UNISONO_ON_DEVICE
#endif

/// On the call operator of an element functor, and on what it calls: part of the loop that it is
/// in, on a GPU, too.
#define UNISONO_INLINE [[gnu::always_inline]] UNISONO_ON_DEVICE inline

/// Between these two, a * b + c is two roundings on every machine: the compiler must not contract
/// it to an FMA. Kernels whose bits are promised, and the functors given to them, live between
/// them. g++ keeps the option with each function and does not inline one into a caller without it,
/// unless forced: so a function marked UNISONO_INLINE may only be called from another such region
/// or from a kernel (`vectorised`, `apply`). clang decides where a function is written, templates
/// and lambdas included. Two things defeat both and are refused or documented: -ffast-math, and
/// clang's -ffp-contract=fast (the default is `on`), which lets its back end ignore the pragma.
#if defined(__clang__)
#define UNISONO_NO_CONTRACTION_BEGIN                                                                  \
    _Pragma("float_control(push)") _Pragma("clang fp contract(off)") _Pragma("clang diagnostic push") \
        _Pragma("clang diagnostic ignored \"-Wpass-failed\"") /* a user's functor may resist vectorisation */
#define UNISONO_NO_CONTRACTION_END _Pragma("clang diagnostic pop") _Pragma("float_control(pop)")
#define UNISONO_NO_CONTRACTION_HERE _Pragma("clang fp contract(off)")
#elif defined(__CUDACC__) // nvcc, which passes on what it does not know: on the device see arithmetic/values.hpp
#define UNISONO_NO_CONTRACTION_BEGIN                                                           \
    _Pragma("nv_diagnostic push") _Pragma("nv_diag_suppress 1675") _Pragma("GCC push_options") \
        _Pragma("GCC optimize(\"fp-contract=off\")") _Pragma("nv_diagnostic pop")
#define UNISONO_NO_CONTRACTION_END _Pragma("GCC pop_options")
#define UNISONO_NO_CONTRACTION_HERE
#elif defined(__GNUC__)
#define UNISONO_NO_CONTRACTION_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#define UNISONO_NO_CONTRACTION_END _Pragma("GCC pop_options")
#define UNISONO_NO_CONTRACTION_HERE
#endif

/// 1 where the program is compiled for ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
#define UNISONO_UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNISONO_UNDER_THREAD_SANITIZER 1
#endif
#endif
#if !defined(UNISONO_UNDER_THREAD_SANITIZER)
#define UNISONO_UNDER_THREAD_SANITIZER 0
#endif

/// On a function that holds loops: vectorised whatever the program's flags are (also at -O0 with
/// g++), never contracted, everything it calls inlined, itself never inlined. (-O3 would double the
/// code and its compile time for no speed; a call of memcpy in place of a short copying loop would
/// halve the speed.) UNISONO_ELEMENTWISE before a loop says that its iterations are independent:
/// two pointers either are equal or do not overlap.
#if defined(__clang__)
#define UNISONO_KERNEL [[gnu::noinline, gnu::flatten]]
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define UNISONO_ELEMENTWISE // checks in the loop keep it from being vectorised, and clang would warn
#else
#define UNISONO_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#endif
#elif defined(__GNUC__)
#define UNISONO_KERNEL                                                                                     \
    [[gnu::noinline, gnu::flatten,                                                                         \
      gnu::optimize("O2", "tree-vectorize", "vect-cost-model=dynamic", "no-tree-loop-distribute-patterns", \
                    "fp-contract=off")]]
#define UNISONO_ELEMENTWISE _Pragma("GCC ivdep")
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {
[[noreturn, gnu::cold]] void fail_assertion(const char* what) noexcept;
#if UNISONO_DEFINES
[[gnu::noinline]] UNISONO_DEFINITION void fail_assertion(const char* what) noexcept {
    static_cast<void>(std::fprintf(stderr, "unisono: assertion failed: %s\n", what));
    std::abort();
}
#endif
} // namespace detail
UNISONO_NAMESPACE_END
