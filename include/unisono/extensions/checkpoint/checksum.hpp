#pragma once

/// \file
/// XXH64, a fast 64-bit checksum: detects accidental damage, not forgery.
/// Source: Yann Collet's specification of the xxHash algorithm, version 0.1.1 (XXH64 with the seed
/// 0).

#include "unisono/core/config.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

static_assert(std::endian::native == std::endian::little, "files are written as they lie in memory");

/// Takes its input in chunks of any size; the result does not depend on the sizes.
class Xxh64 {
public:
    void add(const void* data, std::size_t count) {
        if (count == 0) return;
        const auto* from = static_cast<const unsigned char*>(data);
        length_ += count;
        if (held_ + count < block) return hold(from, count);
        if (held_ != 0) {
            const std::size_t some = block - held_;
            hold(from, some);
            from += some, count -= some;
            take(rest_.data());
            held_ = 0;
        }
        for (; count >= block; from += block, count -= block) take(from);
        hold(from, count);
    }

    [[nodiscard]] std::uint64_t value() const {
        std::uint64_t hash = prime5;
        if (length_ >= block) {
            hash =
                std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
            for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * prime1 + prime4;
        }
        hash += length_;
        std::size_t at = 0;
        for (; at + 8 <= held_; at += 8)
            hash = std::rotl(hash ^ round(0, word<std::uint64_t>(&rest_[at])), 27) * prime1 + prime4;
        for (; at + 4 <= held_; at += 4)
            hash = std::rotl(hash ^ word<std::uint32_t>(&rest_[at]) * prime1, 23) * prime2 + prime3;
        for (; at < held_; ++at) hash = std::rotl(hash ^ rest_[at] * prime5, 11) * prime1;
        hash = (hash ^ hash >> 33) * prime2;
        hash = (hash ^ hash >> 29) * prime3;
        return hash ^ hash >> 32;
    }

private:
    static constexpr std::size_t block = 32;
    static constexpr std::uint64_t prime1 = 11400714785074694791u, prime2 = 14029467366897019727u,
                                   prime3 = 1609587929392839161u, prime4 = 9650029242287828579u,
                                   prime5 = 2870177450012600261u;

    template <class Word>
    static std::uint64_t word(const unsigned char* from) {
        Word value;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    static std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
        return std::rotl(lane + input * prime2, 31) * prime1;
    }
    void take(const unsigned char* from) {
        for (std::size_t i = 0; i < 4; ++i) lanes_[i] = round(lanes_[i], word<std::uint64_t>(from + 8 * i));
    }
    void hold(const unsigned char* from, std::size_t count) {
        if (count != 0) std::memcpy(rest_.data() + held_, from, count);
        held_ += count;
    }

    std::array<std::uint64_t, 4> lanes_ = {prime1 + prime2, prime2, 0, 0 - prime1};
    std::array<unsigned char, block> rest_ = {};
    std::size_t held_ = 0;
    std::uint64_t length_ = 0;
};

inline std::uint64_t xxh64(const void* data, std::size_t count) {
    Xxh64 sum;
    sum.add(data, count);
    return sum.value();
}

} // namespace detail
UNISONO_NAMESPACE_END
