#pragma once

/// \file
/// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), by which processes prove that they know a secret
/// without sending it. tests/extensions/launch/sha256.cpp checks them against the published test
/// vectors.

#include "unisono/core/config.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

using Digest = std::array<std::uint8_t, 32>;

/// Compares in constant time: the time does not depend on where two values differ.
inline bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept {
    if (a.size() != b.size()) return false;
    volatile std::uint8_t difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
    return difference == 0;
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
inline constexpr std::uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// Adds blocks of 64 bytes to the state. Calls nothing, so that it is fast in debug builds, too: a
/// process that asks to be added to an elastic world hashes its program.
UNISONO_KERNEL inline void sha256_blocks(std::uint32_t* state, const std::byte* text, std::size_t blocks) {
    for (; blocks > 0; --blocks, text += 64) {
        std::uint32_t w[64];
        std::memcpy(w, text, 64);
        if (std::endian::native == std::endian::little)
            for (int i = 0; i < 16; ++i) w[i] = __builtin_bswap32(w[i]);
        for (int i = 16; i < 64; ++i) {
            const std::uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + ((a >> 7 | a << 25) ^ (a >> 18 | a << 14) ^ (a >> 3)) + w[i - 7] +
                   ((b >> 17 | b << 15) ^ (b >> 19 | b << 13) ^ (b >> 10));
        }
        std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; ++i) {
            const std::uint32_t first = h + ((e >> 6 | e << 26) ^ (e >> 11 | e << 21) ^ (e >> 25 | e << 7)) +
                                        ((e & f) ^ (~e & g)) + sha256_constants[i] + w[i];
            const std::uint32_t second =
                ((a >> 2 | a << 30) ^ (a >> 13 | a << 19) ^ (a >> 22 | a << 10)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + first;
            d = c;
            c = b;
            b = a;
            a = first + second;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
        state[5] += f;
        state[6] += g;
        state[7] += h;
    }
}

class Sha256 {
public:
    static constexpr std::size_t block = 64;

    void add(std::span<const std::byte> text) {
        total_ += text.size();
        while (!text.empty()) {
            if (have_ == 0 && text.size() >= block) { // directly from the input
                const std::size_t blocks = text.size() / block;
                sha256_blocks(state_.data(), text.data(), blocks);
                text = text.subspan(blocks * block);
                continue;
            }
            const std::size_t part = std::min(block - have_, text.size());
            std::memcpy(rest_.data() + have_, text.data(), part);
            text = text.subspan(part);
            have_ += part;
            if (have_ != block) return;
            sha256_blocks(state_.data(), rest_.data(), 1);
            have_ = 0;
        }
    }
    void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

    /// The digest of all bytes that were added. No byte may be added after it.
    [[nodiscard]] Digest finish() {
        const std::uint64_t bits = total_ * 8;
        std::array<std::byte, 2 * block> end = {std::byte{0x80}}; // one bit, zeros, the length
        const std::size_t zeros = (have_ < block - 8 ? block : 2 * block) - have_ - 8;
        for (std::size_t i = 0; i < 8; ++i) end[zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
        add(std::span<const std::byte>(end).first(zeros + 8));
        Digest digest;
        for (std::size_t i = 0; i < digest.size(); ++i)
            digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - i % 4 * 8));
        return digest;
    }

private:
    // The first 32 bits of the fractional parts of the square roots of the first 8 primes.
    std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, block> rest_ = {}; ///< bytes that do not fill a block yet
    std::size_t have_ = 0;
    std::uint64_t total_ = 0;
};

/// A message authentication code, which cannot be computed without the key. A copy continues from
/// the state of the original, so a key is prepared once.
class HmacSha256 {
public:
    explicit HmacSha256(std::span<const std::uint8_t> key) {
        std::array<std::uint8_t, Sha256::block> padded = {};
        if (key.size() > padded.size()) {
            Sha256 shorter;
            shorter.add(std::as_bytes(key));
            const Digest digest = shorter.finish();
            std::copy(digest.begin(), digest.end(), padded.begin());
        } else {
            std::copy(key.begin(), key.end(), padded.begin());
        }
        for (std::uint8_t& each : padded) each ^= 0x36;
        inner_.add(std::as_bytes(std::span(padded)));
        for (std::uint8_t& each : padded) each ^= 0x36 ^ 0x5c;
        outer_.add(std::as_bytes(std::span(padded)));
    }
    HmacSha256& add(std::span<const std::byte> text) {
        inner_.add(text);
        return *this;
    }
    HmacSha256& add(std::string_view text) {
        inner_.add(text);
        return *this;
    }
    [[nodiscard]] Digest finish() {
        const Digest inner = inner_.finish();
        outer_.add(std::as_bytes(std::span(inner)));
        return outer_.finish();
    }

private:
    Sha256 inner_;
    Sha256 outer_;
};

} // namespace detail
UNISONO_NAMESPACE_END
