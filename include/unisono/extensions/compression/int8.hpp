#pragma once

/// \file
/// Gradients travel in 8 bits, with a scale for each block.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/extensions/compression/block_wire.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A block on the wire: its scale, a float, and one byte per element. `left`: the rest after
/// rounding; null: it is dropped. The error of an element is at most half the scale, which is the
/// block's largest magnitude over 127. NaN or infinity in a block make the whole block NaN.
struct Int8Codec {
    [[nodiscard]] static std::size_t bytes(std::size_t count) { return sizeof(float) + count; }

    template <class T>
    static void encode(const T* values, T* left, std::size_t count, std::byte* wire) {
        float largest = 0;
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            largest = std::max(largest, std::abs(narrowed(wanted)));
            finite = finite && is_finite(wanted);
        }
        largest = std::min(largest, largest_scaled);
        if (largest < smallest_scaled) largest = 0; // its inverse might overflow
        const float scale = finite ? largest / 127 : std::bit_cast<float>(0x7fc00000u);
        const float inverse = largest > 0 && finite ? 127 / largest : 0;
        std::memcpy(wire, &scale, sizeof scale);
        auto* const digits = reinterpret_cast<std::int8_t*>(wire + sizeof scale);
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            const float x = finite ? narrowed(wanted) * inverse : 0;
            const int digit = std::clamp(static_cast<int>(x + (x < 0 ? -0.5f : 0.5f)), -127, 127);
            digits[i] = static_cast<std::int8_t>(digit);
            if (left != nullptr) left[i] = finite ? wanted - static_cast<T>(static_cast<float>(digit) * scale) : T{};
        }
    }

    template <bool Adds, class T>
    static void decode(const std::byte* wire, std::size_t count, T* values) {
        float scale = 0;
        std::memcpy(&scale, wire, sizeof scale);
        const auto* const digits = reinterpret_cast<const std::int8_t*>(wire + sizeof scale);
        for (std::size_t i = 0; i < count; ++i) {
            const auto x = static_cast<T>(static_cast<float>(digits[i]) * scale);
            if constexpr (Adds) values[i] += x;
            else values[i] = x;
        }
    }
};

} // namespace detail

/// Each block of `block` elements is sent as bytes and the float by which they are multiplied. Each
/// rank sums a slice of every bucket, in the elements' type and in rank order, and sends the sum
/// out in the same format. Bytes: (1 + 4 / block) per element, twice (p - 1) / p, independent of
/// the reducer; messages: 2 (p - 1). Error feedback covers both roundings: a rank's own, and that
/// of the sum by the slice's owner. Memory: 3 bytes per element, and with error feedback 1 + 1/p
/// times the gradients.
/// Source: 1-bit SGD's scheme (Seide et al. 2014, section 2) with 8 bits and QSGD's blocks
/// (Alistarh et al. 2017, section 4).
struct Int8Wire {
    std::size_t block = 256;
    bool error_feedback = true;

    static constexpr std::string_view name = "int8 wire";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const Int8Wire&, const Int8Wire&) = default;
    void check() const { detail::check_block(name, block); }

    [[nodiscard]] static detail::Int8Codec codec() { return {}; }

    template <class World, class T>
    using Run = detail::BlockRun<World, T, Int8Wire>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<Int8Wire>);

UNISONO_NAMESPACE_END
