#pragma once

/// \file
/// Gradients travel as 8-bit floating-point numbers, with a scale for each block.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/extensions/compression/block_wire.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The numbers of exponent and mantissa bits.
enum class Fp8Format : std::uint8_t {
    e4m3, ///< 4 significant bits, over a range of 2^18
    e5m2  ///< 3 significant bits, over a range of 2^32
};

namespace detail {

/// A block on the wire: its scale, a float, and one byte per element with a sign and a number; the
/// number times the scale is the element. The block's largest magnitude maps to the format's.
/// Rounded to nearest, ties away from zero. The formats are those of Micikevicius et al. 2022. No
/// byte means NaN: the scale is NaN instead.
struct Fp8Codec {
    int mantissa; ///< bits
    int bias;
    int largest; ///< the code of the largest number

    [[nodiscard]] static Fp8Codec of(Fp8Format format) {
        return format == Fp8Format::e4m3 ? Fp8Codec{3, 7, 0x7e} : Fp8Codec{2, 15, 0x7b};
    }
    [[nodiscard]] static std::size_t bytes(std::size_t count) { return sizeof(float) + count; }

    [[nodiscard]] float number(int code) const {
        const int exponent = code >> mantissa;
        const int digits = (code & ((1 << mantissa) - 1)) + (exponent == 0 ? 0 : 1 << mantissa);
        return static_cast<float>(digits) * power_of_two(std::max(exponent, 1) - bias - mantissa);
    }
    /// The code of a magnitude.
    [[nodiscard]] int code(float x) const {
        const int exponent = std::max(static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23) - 127, 1 - bias);
        const float scaled = x * power_of_two(mantissa - exponent); // 2^mantissa and more, if normal
        // NOLINTNEXTLINE(bugprone-incorrect-roundings): x is not negative
        const auto digits = static_cast<int>(scaled + 0.5f);
        return std::min(((exponent + bias - 1) << mantissa) + digits, largest);
    }

    template <class T>
    void encode(const T* values, T* left, std::size_t count, std::byte* wire) const {
        float most = 0;
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            most = std::max(most, std::abs(narrowed(wanted)));
            finite = finite && is_finite(wanted);
        }
        most = std::min(most, largest_scaled);
        if (most < smallest_scaled) most = 0; // its inverse might overflow
        const float top = number(largest);
        const float scale = finite ? most / top : std::bit_cast<float>(0x7fc00000u);
        const float inverse = most > 0 && finite ? top / most : 0;
        std::memcpy(wire, &scale, sizeof scale);
        std::byte* const to = wire + sizeof scale;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            const float x = finite ? narrowed(wanted) * inverse : 0;
            const int found = code(std::abs(x));
            to[i] = static_cast<std::byte>(found | (x < 0 ? 0x80 : 0));
            const float sent = x < 0 ? -number(found) : number(found);
            if (left != nullptr) left[i] = finite ? wanted - static_cast<T>(sent * scale) : T{};
        }
    }
    template <bool Adds, class T>
    void decode(const std::byte* wire, std::size_t count, T* values) const {
        float scale = 0;
        std::memcpy(&scale, wire, sizeof scale);
        for (std::size_t i = 0; i < count; ++i) {
            const auto byte = std::to_integer<int>(wire[sizeof scale + i]);
            const float x = number(byte & 0x7f);
            const auto sent = static_cast<T>((byte > 0x7f ? -x : x) * scale);
            if constexpr (Adds) values[i] += sent;
            else values[i] = sent;
        }
    }

private:
    static float power_of_two(int exponent) { // -126 to 127
        return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
    }
};

} // namespace detail

/// As Int8Wire, with floating-point numbers: small elements of a block keep their significant bits,
/// large ones have fewer (the error of an element is at most 1/16 of itself in e4m3, 1/8 in e5m2;
/// that of Int8Wire is 1/254 of the block's largest element). Bytes, messages, memory and the order
/// of sums: as Int8Wire. Cost: some four times Int8Wire's passes.
/// Source: as Int8Wire, with the formats of Micikevicius et al. 2022 (FP8 formats for deep
/// learning) and a scale per block; FP8-LM (Peng et al. 2023) has one per tensor.
struct Fp8Wire {
    Fp8Format format = Fp8Format::e4m3;
    std::size_t block = 256;
    bool error_feedback = true;

    static constexpr std::string_view name = "fp8 wire";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const Fp8Wire&, const Fp8Wire&) = default;
    void check() const { detail::check_block(name, block); }
    [[nodiscard]] detail::Fp8Codec codec() const { return detail::Fp8Codec::of(format); }

    template <class World, class T>
    using Run = detail::BlockRun<World, T, Fp8Wire>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<Fp8Wire>);

UNISONO_NAMESPACE_END
