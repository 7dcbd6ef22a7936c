#pragma once

/// \file
/// Refuses compiler options under which results would depend on the build: the parts of
/// -ffast-math, and others that change the meaning of arithmetic. docs/how_to/fast_math.md has all.
///
/// g++ says by macros which of them it has. clang says so for few. Under most of the others it
/// refuses a pragma, on x86. The rest are found by their effect, in each source file, when the
/// program starts; a group of ranks then refuses to begin.

#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"

#if defined(__FAST_MATH__)
#error \
    "Unisono promises bits: -ffast-math (and -Ofast) lets the compiler reassociate sums, contract products and assume \
that NaN does not occur, so that results would depend on the build and on a gradient's position, and non-finite gradients \
would pass unnoticed. Compile the files that include it without; -O3 -march=native is fine."
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#error \
    "Unisono promises bits: -ffinite-math-only lets the compiler delete the checks for infinities and NaN. Compile the \
files that include it without."
#elif defined(__ASSOCIATIVE_MATH__)
#error "Unisono promises bits: -fassociative-math (in -funsafe-math-optimizations and -Ofast) lets the compiler \
reassociate sums. Compile the files that include it without."
#elif defined(__RECIPROCAL_MATH__)
#error \
    "Unisono promises bits: -freciprocal-math (in -funsafe-math-optimizations and -Ofast) lets the compiler replace \
divisions. Compile the files that include it without."
#elif defined(__NO_SIGNED_ZEROS__)
#error \
    "Unisono promises bits: -fno-signed-zeros (in -funsafe-math-optimizations and -Ofast) lets the compiler confuse -0 \
and +0. Compile the files that include it without."
#elif defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 // 16: of _Float16 alone
#error \
    "Unisono promises bits: the compiler computes floats in a wider type. Compile the files that include it without \
-mfpmath=387 and -ffp-eval-method; for 32 bits add -msse2 -mfpmath=sse."
#elif defined(__clang__) && defined(__x86_64__)
// Refused under any of these options, with this line in the message:
// clang-format off
#pragma float_control(except, on, push) // Unisono promises bits: compile without -ffast-math, -Ofast and their parts
#pragma float_control(pop)
// clang-format on
#endif

static_assert(0.1 != static_cast<double>(0.1f),
              "Unisono promises bits: -fsingle-precision-constant changes the library's constants. Compile the files "
              "that include it without.");

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// An option with which a source file of this program was compiled, and must not be.
struct RefusedOption {
    const char* option = nullptr; ///< and its effect; none: all is well
    const char* file = nullptr;
};
[[gnu::visibility("default")]] inline constinit RefusedOption refused_option; // one with a shared library

/// \throws error refused: a file was compiled with an option under which bits would differ
void check_compiler_options();

} // namespace detail
UNISONO_NAMESPACE_END

#if defined(__clang__) && !defined(__CUDACC__)
namespace { // of this source file: another may be compiled with other options

UNISONO_NO_CONTRACTION_BEGIN

/// A function each, which is not inlined: its arguments are not known.
struct UnisonoProbe {
#if defined(__x86_64__)
    [[gnu::target("fma")]] // as the kernels
#endif
    [[gnu::noinline]] static bool
    fuses(double a, double b, double c) {
        return a * b + c != 0;
    }
    [[gnu::noinline]] static bool assumes_numbers(double nan) {
        return nan == nan;
    } // NOLINT(misc-redundant-expression)
    [[gnu::noinline]] static bool assumes_finite(double infinity) { return infinity != __builtin_inf(); }
    [[gnu::noinline]] static bool assumes_one_zero(double zero) { return __builtin_signbit(zero + 0.0) != 0; }
    [[gnu::noinline]] static bool reassociates(double a, double b) { return (a + b) - b != 0; }
    [[gnu::noinline]] static bool multiplies(double a, double third) { return a / 3 != third; }

    /// The first option of clang that is found, with its effect.
    static const char* find() {
        const volatile double nan = __builtin_nan(""), infinity = __builtin_inf(), zero = -0.0, one = 1, large = 0x1p60;
        const volatile double five = 5, third = 0x1.aaaaaaaaaaaabp+0, root = 1 + 0x1p-27, square = -1 - 0x1p-26;
        if (assumes_numbers(nan)) return "-fno-honor-nans, which deletes the checks for NaN";
        if (assumes_finite(infinity)) return "-fno-honor-infinities, which deletes the checks for infinities";
        if (assumes_one_zero(zero)) return "-fno-signed-zeros, which confuses -0 and +0";
        if (reassociates(one, large)) return "-fassociative-math, which reassociates sums";
        if (multiplies(five, third)) return "-freciprocal-math, which replaces divisions";
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("fma")) return nullptr;
#endif
        if (fuses(root, root, square))
            return "-ffp-contract=fast, under which clang fuses products and sums everywhere";
        return nullptr;
    }
    static bool note() {
        const char* const found = find();
        if (found != nullptr) unisono::detail::refused_option = {found, __BASE_FILE__};
        return found != nullptr;
    }
};

UNISONO_NO_CONTRACTION_END

[[gnu::used]] const bool unisono_has_refused_options = UnisonoProbe::note();

} // namespace
#endif

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void check_compiler_options() {
    if (refused_option.option == nullptr) return;
    throw error(ErrorCode::refused,
                concat({"Unisono promises bits: ", refused_option.file, " was compiled with ", refused_option.option,
                        ". Compile the files that include Unisono without"}));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
