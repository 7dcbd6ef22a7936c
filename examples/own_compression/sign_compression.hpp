#pragma once

#include <unisono/compression.hpp>

#include <cmath>
#include <cstring>

/// The sign of each gradient, and one magnitude per bucket: the mean. What a message does not say
/// is added to the next gradient. Bytes: one bit per element and rank. Source: signSGD with error
/// feedback (Karimireddy et al. 2019, algorithm 1).
struct SignCompression {
    static constexpr std::string_view name = "sign";
    static constexpr unisono::Family family = unisono::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true; // no reducer can add signs
    friend bool operator==(const SignCompression&, const SignCompression&) = default;
    void check() const {} // no parameters

    template <class T, class World>
    [[nodiscard]] auto start(World& world, std::span<const unisono::Slice> buckets) const {
        return unisono::GatheredRun<SignCompression, World, T>(*this, world, buckets);
    }

    /// A message is a float, then the signs.
    static std::size_t message_bytes(std::size_t count) { return sizeof(float) + (count + 7) / 8; }
    template <class T>
    static void encode(std::span<T> rest, std::span<std::byte> message) {
        double sum = 0;
        for (const T x : rest) sum += std::abs(x);
        const auto size = static_cast<float>(sum / static_cast<double>(rest.size()));
        std::memset(message.data(), 0, message.size());
        std::memcpy(message.data(), &size, sizeof size);
        for (std::size_t i = 0; i < rest.size(); ++i) {
            const bool negative = rest[i] < 0;
            message[sizeof size + i / 8] |= std::byte(negative) << (i % 8);
            rest[i] -= static_cast<T>(negative ? -size : size);
        }
    }
    template <class T>
    static void add(std::span<const std::byte> message, std::span<T> sum) {
        float size = 0;
        std::memcpy(&size, message.data(), sizeof size);
        for (std::size_t i = 0; i < sum.size(); ++i) {
            const auto bits = std::to_integer<unsigned>(message[sizeof size + i / 8]);
            sum[i] += static_cast<T>((bits >> (i % 8) & 1) != 0 ? -size : size);
        }
    }
};
static_assert(unisono::compression_policy<SignCompression>);
