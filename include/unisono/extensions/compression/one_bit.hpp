#pragma once

/// \file
/// Only the signs of gradients travel, with two magnitudes per block.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/extensions/compression/block_wire.hpp"
#include "unisono/layout/owners.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A block on the wire: the mean of its negative elements and that of the others, as floats, and
/// one bit per element. These two numbers minimise the square error.
struct OneBitCodec {
    static constexpr std::size_t head = 2 * sizeof(float);
    [[nodiscard]] static std::size_t bytes(std::size_t count) { return head + (count + 7) / 8; }

    template <class T>
    static void encode(const T* values, T* left, std::size_t count, std::byte* wire) {
        double sums[2] = {};
        std::size_t negative = 0;
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            finite = finite && is_finite(wanted);
            sums[wanted < 0] += static_cast<double>(wanted);
            negative += wanted < 0;
        }
        float means[2];
        for (const bool below : {false, true}) {
            const std::size_t of = below ? negative : count - negative;
            means[below] = !finite   ? std::bit_cast<float>(0x7fc00000u)
                           : of == 0 ? 0.0f
                                     : cut_to(largest_scaled, sums[below] / static_cast<double>(of));
        }
        std::memcpy(wire, means, head);
        std::memset(wire + head, 0, bytes(count) - head);
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            wire[head + i / 8] |= static_cast<std::byte>(wanted < 0 ? 1 : 0) << (i % 8);
            if (left != nullptr) left[i] = finite ? wanted - static_cast<T>(means[wanted < 0]) : T{};
        }
    }
    template <bool Adds, class T>
    static void decode(const std::byte* wire, std::size_t count, T* values) {
        float means[2];
        std::memcpy(means, wire, head);
        for (std::size_t i = 0; i < count; ++i) {
            const auto sent = static_cast<T>(means[std::to_integer<unsigned>(wire[head + i / 8]) >> (i % 8) & 1]);
            if constexpr (Adds) values[i] += sent;
            else values[i] = sent;
        }
    }
};

} // namespace detail

/// Each element is sent as one bit, which stands for the mean of its block's elements of that sign.
/// As in Int8Wire, a slice's owner sums and sends the sum in the same format, and the error of both
/// roundings is added to the next update. The first `warm_up` updates are sent unencoded, with the
/// transport's best sum: while the loss falls steeply, signs carry too little information. Bytes:
/// 1/8 + 8 / block per element (26 times fewer than floats with 512), twice (p - 1) / p; messages:
/// 2 (p - 1). Memory: as Int8Wire. Larger blocks cost fewer bytes and are less precise; the
/// elements of one block should be of similar magnitude, as in one layer.
/// Source: Seide et al. 2014 (1-bit SGD, whose blocks are columns of a layer).
///
/// This with Adam is not 1-bit Adam (Tang et al. 2021), which sends Adam's momentum and freezes its
/// variance after the warm-up. Here an optimizer sees the sum of gradients and keeps its momentum
/// on the rank that owns the slice. With Sgd's momentum, which is linear, the two differ only in
/// the time at which an error is compensated. With Adam choose a small learning rate, or PowerSgd.
struct OneBit {
    std::uint64_t warm_up = 0; ///< updates
    std::size_t block = 512;

    static constexpr std::string_view name = "1 bit";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    static constexpr bool error_feedback = true; ///< without it signs do not converge
    friend bool operator==(const OneBit&, const OneBit&) = default;
    void check() const { detail::check_block(name, block); }
    [[nodiscard]] static detail::OneBitCodec codec() { return {}; }

    template <class World, class T>
    using Run = detail::BlockRun<World, T, OneBit>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<OneBit>);

UNISONO_NAMESPACE_END
