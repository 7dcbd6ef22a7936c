#pragma once

/// \file
/// Runs one loop compiled for several instruction sets, and never contracted: the basis of all
/// kernels.
///
/// A kernel is a body, a function object without arguments whose call operator is UNISONO_INLINE
/// and contains plain loops over scalars. `vectorised(set, body)` compiles it once for each
/// instruction set, vectorised whatever the program's own optimisation level (by g++ even at -O0),
/// and runs the requested one. No sum is reassociated, so all sets give the same bits. The
/// functions that contain the bodies are never inlined: in a caller, a loop would follow the
/// caller's rules of contraction (g++).

#include "unisono/core/config.hpp"

#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// avx2 includes FMA, for formulas that request it by name (`__builtin_fma`); avx512 is F, BW, DQ
/// and VL.
enum class InstructionSet : std::uint8_t { portable, avx2, avx512 };

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view instruction_set_names[] = {"portable", "AVX2", "AVX-512"};
} // namespace detail

constexpr std::string_view name_of(InstructionSet set) {
    return detail::instruction_set_names[static_cast<unsigned>(set)];
}

/// The widest instruction set that this processor and operating system offer. Costs a load.
inline InstructionSet best_instruction_set() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return InstructionSet::portable;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return InstructionSet::avx512;
    return InstructionSet::avx2;
#else
    return InstructionSet::portable;
#endif
}

UNISONO_NO_CONTRACTION_BEGIN
namespace detail {

template <class Body>
UNISONO_KERNEL void run_portable(const Body& body) {
    body();
}

#if defined(__x86_64__)
template <class Body>
UNISONO_KERNEL [[gnu::target("avx2,fma")]] void run_avx2(const Body& body) {
    body();
}

template <class Body>
#if defined(__clang__)
UNISONO_KERNEL
    [[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl")]]
#else // g++ would stay at half the width
UNISONO_KERNEL
    [[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif
    void
    run_avx512(const Body& body) {
    body();
}
#endif

/// Runs `body` on `set`. A program compiled for AVX-512 (with -march=native, for example) does not
/// need the lesser sets.
template <class Body>
inline void vectorised([[maybe_unused]] InstructionSet set, const Body& body) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
    run_avx512(body);
#elif defined(__x86_64__)
    if (set == InstructionSet::avx512) return run_avx512(body);
    if (set == InstructionSet::avx2) return run_avx2(body);
    run_portable(body);
#else
    run_portable(body);
#endif
}

} // namespace detail
UNISONO_NO_CONTRACTION_END
UNISONO_NAMESPACE_END
