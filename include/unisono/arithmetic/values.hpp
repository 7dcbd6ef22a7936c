#pragma once

/// \file
/// Single elements as kernels see them: loaded and stored at any alignment, widened for arithmetic,
/// rounded once.

#include "unisono/arithmetic/compiler_options.hpp"
#include "unisono/core/element.hpp"

#include <cstddef>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The type in which the built-in operations on T compute: float for 16-bit floats, else T.
template <element T>
using accumulator_t = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

namespace detail {

template <class T>
union Hold { // T need not have a default constructor
    T value;
    UNISONO_INLINE Hold() {} // NOLINT(modernize-use-equals-default): deleted where T's is
};

template <class T>
UNISONO_INLINE T load(const std::byte* from, std::size_t index) {
    if constexpr (std::is_trivially_default_constructible_v<T>) {
        T value;
        __builtin_memcpy(&value, from + index * sizeof(T), sizeof(T));
        return value;
    } else {
        Hold<T> hold;
        __builtin_memcpy(static_cast<void*>(&hold.value), from + index * sizeof(T), sizeof(T));
        return hold.value;
    }
}

template <class T>
UNISONO_INLINE void store(std::byte* to, std::size_t index, T value) {
    __builtin_memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class T>
UNISONO_INLINE constexpr accumulator_t<T> widen(T value) {
    return static_cast<accumulator_t<T>>(value);
}

UNISONO_NO_CONTRACTION_BEGIN

/// a * b and a / b, each rounded once. A plain product would suffice on the host. A GPU's compiler
/// has no region without contraction, and fuses a product with an addition; it does not fuse these
/// functions, whatever its flags.
template <class T>
UNISONO_INLINE constexpr T product(T a, T b) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) return __fmul_rn(a, b);
    else if constexpr (std::is_same_v<T, double>) return __dmul_rn(a, b);
    else
#endif
        return static_cast<T>(a * b);
}
template <class T>
UNISONO_INLINE constexpr T quotient(T a, T b) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>) return __fdiv_rn(a, b);
    else if constexpr (std::is_same_v<T, double>) return __ddiv_rn(a, b);
    else
#endif
        return static_cast<T>(a / b);
}

UNISONO_NO_CONTRACTION_END

/// Any NaN becomes the one quiet NaN: the payload that an addition passes on depends on the order
/// of its operands in the instruction, which the compiler chooses.
template <class T>
UNISONO_INLINE constexpr T canonical(T value) {
    // NOLINTBEGIN(misc-redundant-expression): only NaN differs from itself
    if constexpr (std::is_same_v<T, float>) return value == value ? value : __builtin_nanf("");
    else if constexpr (std::is_same_v<T, double>) return value == value ? value : __builtin_nan("");
    // NOLINTEND(misc-redundant-expression)
    else return value;
}

UNISONO_INLINE constexpr bfloat16 canonical(bfloat16 value) {
    value.bits = static_cast<std::uint16_t>(select((value.bits & 0x7fffu) > 0x7f80u, 0x7fc0u, value.bits));
    return value;
}

UNISONO_INLINE constexpr float16 canonical(float16 value) {
    value.bits = static_cast<std::uint16_t>(select((value.bits & 0x7fffu) > 0x7c00u, 0x7e00u, value.bits));
    return value;
}

} // namespace detail
UNISONO_NAMESPACE_END
