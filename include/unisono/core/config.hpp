#pragma once

/// \file
/// The library's macros: namespaces, assertions, and compiler switches that preserve guaranteed
/// bits. rule.hpp has one more.

// A file that does not exist ends a compilation with this one error; #error would not end it.
#if !defined(__cplusplus) || __cplusplus < 202002L
#include "Unisono needs C++20 (found an older -std); pass -std=c++20 or newer"
#endif
#ifndef __cpp_exceptions
#include "Unisono reports errors by exceptions: compile the files that include it without -fno-exceptions (a program without exceptions confines them to one file, where core/outcome.hpp turns errors into values)"
#endif

#include <version>
#if !defined(__cpp_lib_atomic_ref) || !defined(__cpp_lib_to_chars) || !defined(__cpp_lib_smart_ptr_for_overwrite)
#include "Unisono needs std::atomic_ref and std::from_chars for floating-point numbers: libstdc++ 12 or newer has both, libc++ before 20 does not (clang takes libstdc++ without -stdlib=libc++)"
#endif
#ifdef timeout
#include "Unisono has a function timeout(), which ncurses has made a macro: define NCURSES_NOMACROS before you include it, or include Unisono first"
#endif

#include "unisono/core/version.hpp"

#include <cstdio>
#include <cstdlib>

/// Opens `unisono` with its inline version namespace, so that two versions in one program do not
/// mix.
#define UNISONO_NAMESPACE_BEGIN \
    namespace unisono {         \
    inline namespace v0 {
#define UNISONO_NAMESPACE_END \
    }                         \
    }

/// The compiled mode. With UNISONO_COMPILED, which the CMake target unisono::compiled defines, a
/// program takes the code that does not depend on the program from that target's library: the
/// templates listed in unisono/compiled/ and at the end of trainer/reproducible.hpp, and the code
/// between `#if UNISONO_DEFINES` and its end. Without it, the default, every file compiles what it
/// uses. The source is the same. A program with files of both modes ends at its start, with a
/// message that says so.
///
/// One source file has that code: it defines UNISONO_IMPLEMENTATION, then includes the umbrella and
/// all other headers of Unisono that the program includes. In the library it is src/unisono.cpp.
/// What the umbrella does not include is in parts there, each a source file beside it. A part is
/// compiled as a program in compiled mode is, and defines UNISONO_BUILDS_PART: it has the code
/// between `#if UNISONO_DEFINES_PART(part)` and its end.
#define UNISONO_PART_NETWORK 1    // launch/, and groups over Tcp
#define UNISONO_PART_HOSTS 2      // groups over Hosts<Tcp>
#define UNISONO_PART_CHECKPOINT 3 // checkpoint/
#if defined(UNISONO_IMPLEMENTATION)
#ifndef UNISONO_COMPILED
#define UNISONO_COMPILED
#endif
#define UNISONO_DEFINES 1
#define UNISONO_DEFINES_PART(part) 1
#define UNISONO_DEFINITION
#define UNISONO_OUTSIDE
#define UNISONO_COMPILED_TEMPLATE template
#elif defined(UNISONO_COMPILED)
#define UNISONO_DEFINES 0
#if defined(UNISONO_BUILDS_PART)
#define UNISONO_DEFINES_PART(part) (UNISONO_BUILDS_PART == (part))
#define UNISONO_DEFINITION
#else
#define UNISONO_DEFINES_PART(part) 0
#endif
#define UNISONO_OUTSIDE
#define UNISONO_COMPILED_TEMPLATE extern template
extern "C" {
extern const char unisono_library_of_the_compiled_mode; ///< undefined? Link to unisono::compiled
}
namespace {
[[gnu::used]] const char* const unisono_needs_its_library = &unisono_library_of_the_compiled_mode;
}
#else
#define UNISONO_DEFINES 1
#define UNISONO_DEFINES_PART(part) 1
#define UNISONO_DEFINITION inline
/// Begins a virtual function that is defined outside its class. Without `inline`, a compiler would
/// compile all virtual functions of the class also in programs that do not use it.
#define UNISONO_OUTSIDE inline
#if !defined(UNISONO_BUILDS_DEVICES) // unisono::devices goes with both modes
extern "C" [[gnu::used]] inline const char unisono_compiled_without_the_library = 1; ///< what the library looks for
#endif
#endif

/// Certifies that the type above satisfies a concept. It is a static_assert in the library's own
/// build and in tests/compiling/headers. A program does not repeat the proofs, since those of a
/// hundred types take a compiler 50 ms.
#if defined(UNISONO_IMPLEMENTATION) || defined(UNISONO_BUILDS_PART) || defined(UNISONO_CERTIFIES)
#define UNISONO_CERTIFY(...) static_assert(__VA_ARGS__)
#else
#define UNISONO_CERTIFY(...) static_assert(true)
#endif

/// Checks for a programmer's error inside the library: prints what and where, then aborts (debug
/// builds only).
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

/// Marks a function that a GPU may run as well: expands to the qualifiers of CUDA's compiler, and
/// to nothing for other compilers.
#if defined(__CUDACC__)
#define UNISONO_ON_DEVICE __host__ __device__
#else
#define UNISONO_ON_DEVICE
#endif

/// Marks the call operator of an element functor, and the functions that it calls: they are inlined
/// into the loop, on a GPU as well.
#define UNISONO_INLINE [[gnu::always_inline]] UNISONO_ON_DEVICE inline

/// Between these two macros a * b + c is rounded twice on every machine: the compiler must not
/// contract it to an FMA. Kernels with guaranteed bits, and the functors passed to them, are
/// defined between them. g++ keeps the option with each function and does not inline one into a
/// caller without it, unless forced: so a function marked UNISONO_INLINE may only be called from
/// another such region or from a kernel (`vectorised`, `apply`). clang decides at a function's
/// definition, templates and lambdas included. Two flags defeat both, and are refused
/// (arithmetic/compiler_options.hpp): -ffast-math, and clang's -ffp-contract=fast (the default is
/// `on`), which lets its back end ignore the pragma.
#if defined(__clang__)
#define UNISONO_NO_CONTRACTION_BEGIN                                                                  \
    _Pragma("float_control(push)") _Pragma("clang fp contract(off)") _Pragma("clang diagnostic push") \
        _Pragma("clang diagnostic ignored \"-Wpass-failed\"") /* a user's functor may resist vectorisation */
#define UNISONO_NO_CONTRACTION_END _Pragma("clang diagnostic pop") _Pragma("float_control(pop)")
#define UNISONO_NO_CONTRACTION_HERE _Pragma("clang fp contract(off)")
#elif defined(__CUDACC__) // nvcc, which passes unknown flags on: for the device see arithmetic/values.hpp
#define UNISONO_NO_CONTRACTION_BEGIN                                                           \
    _Pragma("nv_diagnostic push") _Pragma("nv_diag_suppress 1675") _Pragma("GCC push_options") \
        _Pragma("GCC optimize(\"fp-contract=off,no-associative-math\")") _Pragma("nv_diagnostic pop")
#define UNISONO_NO_CONTRACTION_END _Pragma("GCC pop_options")
#define UNISONO_NO_CONTRACTION_HERE
#elif defined(__GNUC__)
#define UNISONO_NO_CONTRACTION_BEGIN \
    _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off,no-associative-math\")")
#define UNISONO_NO_CONTRACTION_END _Pragma("GCC pop_options")
#define UNISONO_NO_CONTRACTION_HERE
#endif

/// 1 if the program is compiled for ThreadSanitizer.
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

/// Marks a function that contains loops: vectorised whatever the program's flags are (with g++ also
/// at -O0), never contracted, everything it calls inlined, itself never inlined. (-O3 would double
/// the code and its compile time without being faster; a call of memcpy in place of a short copying
/// loop would halve the speed.) UNISONO_ELEMENTWISE before a loop declares its iterations
/// independent: two pointers are equal or do not overlap.
#if defined(__clang__)
#define UNISONO_KERNEL [[gnu::noinline, gnu::flatten]]
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define UNISONO_ELEMENTWISE // checks in the loop prevent vectorisation, and clang would warn
#else
#define UNISONO_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#endif
#elif defined(__GNUC__)
#define UNISONO_KERNEL                                                                                     \
    [[gnu::noinline, gnu::flatten,                                                                         \
      gnu::optimize("O2", "tree-vectorize", "vect-cost-model=dynamic", "no-tree-loop-distribute-patterns", \
                    "fp-contract=off", "no-associative-math")]]
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
