#pragma once

/// \file
/// Gradients travel as 8-bit floating-point numbers, with a scale for each block.

#include "unisono/compression/compression.hpp"
#include "unisono/extensions/compression/block_wire.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The numbers of exponent and mantissa bits.
enum class Fp8Format : std::uint8_t {
    e4m3, ///< 4 significant bits, over a range of 2^18
    e5m2  ///< 3 significant bits, over a range of 2^32
};

namespace detail {

/// Floating-point numbers of 8 bits: a sign, an exponent and a mantissa. Rounded to nearest, ties
/// away from zero. The formats are those of Micikevicius et al. 2022. No byte means NaN.
struct Fp8Digits {
    int mantissa; ///< bits
    int bias;
    int largest; ///< the code of the largest number

    [[nodiscard]] static Fp8Digits of(Fp8Format format) {
        return format == Fp8Format::e4m3 ? Fp8Digits{3, 7, 0x7e} : Fp8Digits{2, 15, 0x7b};
    }

    [[nodiscard]] float top() const { return magnitude(largest); }
    [[nodiscard]] float round(float x, std::byte& byte) const {
        const float size = std::abs(x);
        const int exponent = std::max(static_cast<int>(std::bit_cast<std::uint32_t>(size) >> 23) - 127, 1 - bias);
        const float scaled = size * power_of_two(mantissa - exponent); // 2^mantissa and more, if normal
        // NOLINTNEXTLINE(bugprone-incorrect-roundings): it is not negative
        const auto digits = static_cast<int>(scaled + 0.5f);
        const int code = std::min(((exponent + bias - 1) << mantissa) + digits, largest);
        byte = static_cast<std::byte>(code | (x < 0 ? 0x80 : 0));
        return x < 0 ? -magnitude(code) : magnitude(code);
    }
    [[nodiscard]] float number(std::byte byte) const {
        const auto bits = std::to_integer<int>(byte);
        const float found = magnitude(bits & 0x7f);
        return bits > 0x7f ? -found : found;
    }

private:
    [[nodiscard]] float magnitude(int code) const {
        const int exponent = code >> mantissa;
        const int digits = (code & ((1 << mantissa) - 1)) + (exponent == 0 ? 0 : 1 << mantissa);
        return static_cast<float>(digits) * power_of_two(std::max(exponent, 1) - bias - mantissa);
    }
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
    [[nodiscard]] detail::ScaledCodec<detail::Fp8Digits> codec() const { return {detail::Fp8Digits::of(format)}; }

    template <class World, class T>
    using Run = detail::BlockRun<World, T, Fp8Wire>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<Fp8Wire>);

UNISONO_NAMESPACE_END
