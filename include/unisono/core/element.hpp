#pragma once

/// \file
/// The element types that collectives move and reduce, as run-time tags and as C++ types.

#include "unisono/core/config.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

enum class ElementType : std::uint8_t {
    float32,
    float64,
    bfloat16,
    float16,
    int32,
    int64,
    uint8,
    opaque, ///< a user's trivially copyable type: moved by all collectives, reduced by the user's own operation only
};

constexpr std::string_view name_of(ElementType type) {
    constexpr std::string_view names[] = {"float32", "float64", "bfloat16", "float16",
                                          "int32",   "int64",   "uint8",    "opaque"};
    return names[static_cast<std::size_t>(type)];
}

/// bfloat16: the upper half of a float. Conversions round to nearest, ties to even; NaN stays NaN (quiet).
struct bfloat16 {
    std::uint16_t bits = 0;

    constexpr bfloat16() = default;
    constexpr explicit bfloat16(float value) : bits(round(value)) {}
    constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
    friend constexpr bool operator==(bfloat16 a, bfloat16 b) { return float(a) == float(b); }

private:
    static constexpr std::uint16_t round(float value) {
        const auto x = std::bit_cast<std::uint32_t>(value);
        if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((x >> 16) | 0x40u);
        return static_cast<std::uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
    }
};

/// IEEE 754 binary16. Conversions round to nearest, ties to even, with gradual underflow; NaN stays NaN (quiet).
struct float16 {
    std::uint16_t bits = 0;

    constexpr float16() = default;
    constexpr explicit float16(float value) : bits(round(value)) {}
    constexpr explicit operator float() const {
        const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
        const std::uint32_t magnitude = bits & 0x7fffu;
        if (magnitude >= 0x7c00u) // infinity and NaN
            return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
        if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
        const float small = static_cast<float>(magnitude) * 0x1p-24f; // exact
        return sign != 0 ? -small : small;
    }
    friend constexpr bool operator==(float16 a, float16 b) { return float(a) == float(b); }

private:
    static constexpr std::uint16_t round(float value) {
        const auto x = std::bit_cast<std::uint32_t>(value);
        const auto sign = static_cast<std::uint16_t>((x >> 16) & 0x8000u);
        const std::uint32_t magnitude = x & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
        if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u); // rounds past 65504
        if (magnitude >= 0x38800000u) {                                                 // a normal half
            const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
            return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
        }
        if (magnitude < 0x33000000u) return sign; // below half the least subnormal
        const std::uint32_t shift = 126u - (magnitude >> 23);
        const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
        const std::uint32_t half = 1u << (shift - 1u);
        const std::uint32_t kept = significand >> shift;
        const std::uint32_t rest = significand & ((1u << shift) - 1u);
        return static_cast<std::uint16_t>(sign | (kept + ((rest > half || (rest == half && (kept & 1u) != 0)) ? 1u : 0u)));
    }
};

/// What a collective can move: anything trivially copyable.
template <class T>
concept element = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

template <element T>
inline constexpr ElementType element_type_of = [] {
    using U = std::remove_cv_t<T>;
    if constexpr (std::same_as<U, float>) return ElementType::float32;
    else if constexpr (std::same_as<U, double>) return ElementType::float64;
    else if constexpr (std::same_as<U, bfloat16>) return ElementType::bfloat16;
    else if constexpr (std::same_as<U, float16>) return ElementType::float16;
    else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 4) return ElementType::int32;
    else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 8) return ElementType::int64;
    else if constexpr (std::same_as<U, unsigned char>) return ElementType::uint8;
    else return ElementType::opaque;
}();

/// The seven types on which the built-in operations (sum, product, min, max, weighted mean) are defined.
template <class T>
concept arithmetic_element = element<T> && element_type_of<T> != ElementType::opaque;

template <class T>
concept floating_element = element<T> && (std::same_as<std::remove_cv_t<T>, float> || std::same_as<std::remove_cv_t<T>, double> ||
                                          std::same_as<std::remove_cv_t<T>, bfloat16> || std::same_as<std::remove_cv_t<T>, float16>);

UNISONO_NAMESPACE_END
