#pragma once

/// \file
/// Gradients travel in 8 bits, with a scale for each block.

#include "unisono/compression/compression.hpp"
#include "unisono/extensions/compression/block_wire.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The numbers -127 to 127: the error of an element is at most half the scale.
struct Int8Digits {
    [[nodiscard]] static constexpr float top() { return 127; }
    [[nodiscard]] static float round(float x, std::byte& byte) {
        const int digit = std::clamp(static_cast<int>(x + (x < 0 ? -0.5f : 0.5f)), -127, 127);
        byte = static_cast<std::byte>(digit);
        return static_cast<float>(digit);
    }
    [[nodiscard]] static float number(std::byte byte) { return static_cast<float>(static_cast<std::int8_t>(byte)); }
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

    [[nodiscard]] static detail::ScaledCodec<detail::Int8Digits> codec() { return {}; }

    template <class World, class T>
    using Run = detail::BlockRun<World, T, Int8Wire>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<Int8Wire>);

UNISONO_NAMESPACE_END
