#pragma once

/// \file
/// The element types that collectives move and reduce, as run-time tags and as C++ types.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The type of elements, in signatures and files.
enum class ElementType : std::uint8_t {
    float32,
    float64,
    bfloat16,
    float16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
    opaque, ///< a user's trivially copyable type: all collectives move it, only a user's own operation reduces it
};

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view element_names[] = {"float32", "float64", "bfloat16", "float16", "int32",
                                                     "int64",   "uint8",   "uint32",   "uint64",  "opaque"};
} // namespace detail

constexpr std::string_view name_of(ElementType type) {
    return static_cast<std::size_t>(type) < std::size(detail::element_names)
               ? detail::element_names[static_cast<std::size_t>(type)]
               : "unknown"; // a peer's message may contain any number
}

namespace detail {

/// condition ? a : b in bit operations. Conversions use it instead of branches, so that loops over
/// them are vectorised. (A compiler would not, on its own, compute both floats and then choose: one
/// might raise an exception flag.)
[[gnu::always_inline]] constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
    const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
    return (a & mask) | (b & ~mask);
}

} // namespace detail

/// bfloat16: the upper half of a float. Conversions round to nearest, ties to even; NaN stays NaN,
/// and is quiet after narrowing.
struct bfloat16 {
    std::uint16_t bits = 0;

    constexpr bfloat16() = default;
    constexpr explicit bfloat16(float value) : bits(round(value)) {}
    constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
    friend constexpr bool operator==(bfloat16 a, bfloat16 b) { return float(a) == float(b); }

private:
    static constexpr std::uint16_t round(float value) {
        const auto x = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
        const bool nan = (x & 0x7fffffffu) > 0x7f800000u;
        return static_cast<std::uint16_t>(nan ? (x >> 16) | 0x40u : rounded);
    }
};

/// IEEE 754 binary16. Conversions round to nearest, ties to even, with gradual underflow. NaN stays
/// NaN and becomes quiet, with as much of its payload as fits, as in the processors' own
/// conversions.
struct float16 {
    std::uint16_t bits = 0;

    constexpr float16() = default;
    constexpr explicit float16(float value) : bits(round(value)) {}
    constexpr explicit operator float() const {
        const std::uint32_t sign = (bits & 0x8000u) << 16;
        const std::uint32_t magnitude = bits & 0x7fffu;
        const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f; // exact
        const std::uint32_t finite =
            detail::select(magnitude >= 0x400u, (magnitude << 13) + 0x38000000u, std::bit_cast<std::uint32_t>(small));
        const std::uint32_t quiet = detail::select(magnitude > 0x7c00u, 0x400000u, 0u);
        const std::uint32_t wide =
            detail::select(magnitude >= 0x7c00u, (magnitude << 13) | 0x7f800000u | quiet, finite);
        return std::bit_cast<float>(sign | wide);
    }
    friend constexpr bool operator==(float16 a, float16 b) { return float(a) == float(b); }

private:
    static constexpr std::uint16_t round(float value) {
        const auto x = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t sign = (x >> 16) & 0x8000u;
        const std::uint32_t magnitude = x & 0x7fffffffu;
        const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
        // One unit of 0.5 + y is the least subnormal half: the addition itself rounds y to a
        // multiple of it.
        const float little = std::bit_cast<float>(detail::select(magnitude < 0x38800000u, magnitude, 0u));
        const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(little + 0.5f) - 0x3f000000u;
        const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
        std::uint32_t half = detail::select(magnitude < 0x38800000u, subnormal, normal);
        half = detail::select(magnitude >= 0x477ff000u, 0x7c00u, half); // rounds past 65504
        half = detail::select(magnitude > 0x7f800000u, nan, half);
        return static_cast<std::uint16_t>(sign | half);
    }
};

/// An element that a collective can move: anything trivially copyable.
template <class T>
concept element = __is_trivially_copyable(T) && !std::is_pointer_v<T>;

/// The tag of an element type; `opaque` for a user's own.
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
    else if constexpr (std::is_integral_v<U> && sizeof(U) == 4) return ElementType::uint32;
    else if constexpr (std::is_integral_v<U> && sizeof(U) == 8) return ElementType::uint64;
    else return ElementType::opaque;
}();

/// The nine types on which the built-in operations (sum, product, min, max, weighted mean) are
/// defined.
template <class T>
concept arithmetic_element = element<T> && element_type_of<T> != ElementType::opaque;

/// The four floating-point types: float, double, bfloat16, float16.
template <class T>
concept floating_element =
    element<T> && (std::same_as<std::remove_cv_t<T>, float> || std::same_as<std::remove_cv_t<T>, double> ||
                   std::same_as<std::remove_cv_t<T>, bfloat16> || std::same_as<std::remove_cv_t<T>, float16>);

UNISONO_NAMESPACE_END
