#pragma once

/// \file
/// Gradients travel in 8 bits, with a scale for each block.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A block on the wire: its scale, a float, and a byte for each element. `left`: what rounding leaves over, null where nobody asks.
/// An element is off by at most half the scale, which is the block's largest magnitude over 127. NaN or infinity in a block make
/// all of it NaN.
template <class T>
void encode_block(const T* values, T* left, std::size_t count, std::byte* wire) {
    float largest = 0;
    bool finite = true;
    for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<float>(left == nullptr ? values[i] : values[i] + left[i]);
        largest = std::max(largest, std::abs(x));
        finite = finite && is_finite(x);
    }
    const float scale = finite ? largest / 127 : std::bit_cast<float>(0x7fc00000u);
    const float inverse = largest > 0 && finite ? 127 / largest : 0;
    std::memcpy(wire, &scale, sizeof scale);
    auto* const digits = reinterpret_cast<std::int8_t*>(wire + sizeof scale);
    for (std::size_t i = 0; i < count; ++i) {
        const T wanted = left == nullptr ? values[i] : values[i] + left[i];
        const float x = finite ? static_cast<float>(wanted) * inverse : 0;
        const int digit = std::clamp(static_cast<int>(x + (x < 0 ? -0.5f : 0.5f)), -127, 127);
        digits[i] = static_cast<std::int8_t>(digit);
        if (left != nullptr) left[i] = finite ? wanted - static_cast<T>(static_cast<float>(digit) * scale) : T{};
    }
}

/// values = what the block holds, or values += that.
template <bool Adds, class T>
void decode_block(const std::byte* wire, std::size_t count, T* values) {
    float scale = 0;
    std::memcpy(&scale, wire, sizeof scale);
    const auto* const digits = reinterpret_cast<const std::int8_t*>(wire + sizeof scale);
    for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<T>(static_cast<float>(digits[i]) * scale);
        if constexpr (Adds) values[i] += x;
        else values[i] = x;
    }
}

} // namespace detail

/// Each block of `block` elements is sent as bytes and the float by which they are multiplied; each rank sums a slice of every
/// bucket, in the elements' type, in rank order, and sends the sum out in the same form. Bytes: (1 + 4 / block) an element, twice
/// (p - 1) / p, whatever the reducer would send; messages: 2 (p - 1). With error feedback both roundings are: a rank's own, and
/// the sum's by the slice's owner. Memory: 3 bytes an element, and with error feedback once and 1/p the gradients.
/// Source: 1-bit SGD's scheme (Seide et al. 2014, section 2) with 8 bits and QSGD's blocks (Alistarh et al. 2017, section 4).
struct Int8Wire {
    std::size_t block = 256;
    bool error_feedback = true;

    static constexpr std::string_view name = "int8 wire";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const Int8Wire&, const Int8Wire&) = default;
    void check() const {
        if (block < 1 || block > (std::size_t{1} << 20))
            refuse_input({name, ".block is ", block, "; expected 1 to ", std::size_t{1} << 20, " elements"});
    }

    template <class World, class T>
    class Run;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<Int8Wire>);

template <class World, class T>
class Int8Wire::Run {
public:
    Run(World& world, std::span<const Slice> buckets, const Int8Wire& policy) : world_(&world), policy_(policy) {
        const auto ranks = static_cast<std::size_t>(world.size());
        const auto me = static_cast<std::size_t>(world.rank());
        std::size_t bytes = 0, received = 0, own = 0;
        for (const Slice& slice : buckets) {
            Bucket& bucket = buckets_.emplace_back();
            bucket.slice = slice;
            const std::size_t blocks = (slice.count + policy.block - 1) / policy.block;
            for (std::size_t rank = 0; rank <= ranks; ++rank)
                bucket.cuts.push_back(blocks * rank / ranks * policy.block);
            for (std::size_t& cut : bucket.cuts) cut = std::min(cut, slice.count);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                bucket.counts.push_back(wire_bytes(bucket.cuts[rank + 1] - bucket.cuts[rank]));
            bucket.own_counts.assign(ranks, bucket.counts[me]);
            bucket.at = bytes;
            bucket.received_at = received;
            bucket.own_at = own;
            for (const std::size_t one : bucket.counts) bytes += one;
            received += ranks * bucket.counts[me];
            own += bucket.cuts[me + 1] - bucket.cuts[me];
        }
        wire_ = world.template allocate<std::byte>(std::max<std::size_t>(1, bytes));
        received_ = world.template allocate<std::byte>(std::max<std::size_t>(1, received));
        own_wire_ = world.template allocate<std::byte>(std::max<std::size_t>(1, received / ranks));
        sums_.resize(own);
        if (policy.error_feedback) {
            left_.resize(detail::end_of(buckets));
            own_left_.resize(own);
        }
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction&) {
        Bucket& bucket = buckets_[b];
        bucket.values = values;
        T* const left = left_.empty() ? nullptr : left_.data() + bucket.slice.first;
        encode(values, left, bucket.slice.count, wire_.data() + bucket.at);
        bucket.operation = start_all_to_all(*world_, std::span<const std::byte>(wire_of(bucket)),
                                            std::span<std::byte>(received_.data() + bucket.received_at,
                                                                 bucket.own_counts.size() * bucket.own_counts[0]),
                                            bucket.counts, bucket.own_counts);
    }
    void finish() {
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            bucket.operation =
                start_all_gather(*world_, std::span<const std::byte>(sum_up(bucket)), wire_of(bucket), bucket.counts);
        }
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            decode<false>(wire_.data() + bucket.at, bucket.slice.count, bucket.values);
            bucket.values = nullptr;
        }
    }
    void forget() {
        std::fill(left_.begin(), left_.end(), T{});
        std::fill(own_left_.begin(), own_left_.end(), T{});
    }
    [[nodiscard]] std::size_t bytes() const {
        return wire_.size() + received_.size() + own_wire_.size() +
               (left_.size() + own_left_.size() + sums_.size()) * sizeof(T);
    }

private:
    struct Bucket {
        Slice slice;
        std::vector<std::size_t> cuts;       ///< where each rank's part begins; whole blocks
        std::vector<std::size_t> counts;     ///< bytes of each rank's part
        std::vector<std::size_t> own_counts; ///< bytes that come from each rank of this rank's part
        std::size_t at = 0, received_at = 0, own_at = 0;
        T* values = nullptr; ///< where it was begun
        Operation operation;
    };

    [[nodiscard]] std::size_t wire_bytes(std::size_t count) const {
        return count + (count + policy_.block - 1) / policy_.block * sizeof(float);
    }
    std::span<std::byte> wire_of(const Bucket& bucket) {
        return {wire_.data() + bucket.at, wire_bytes(bucket.slice.count)};
    }

    void encode(const T* values, T* left, std::size_t count, std::byte* wire) const {
        for (std::size_t at = 0, n = 0; at < count; at += n, wire += sizeof(float) + n) {
            n = std::min(policy_.block, count - at);
            detail::encode_block(values + at, left == nullptr ? nullptr : left + at, n, wire);
        }
    }
    template <bool Adds>
    void decode(const std::byte* wire, std::size_t count, T* values) const {
        for (std::size_t at = 0, n = 0; at < count; at += n, wire += sizeof(float) + n) {
            n = std::min(policy_.block, count - at);
            detail::decode_block<Adds>(wire, n, values + at);
        }
    }

    /// This rank's part, of all ranks, in rank order; encoded again.
    std::span<std::byte> sum_up(const Bucket& bucket) {
        const auto me = static_cast<std::size_t>(world_->rank());
        const std::size_t count = bucket.cuts[me + 1] - bucket.cuts[me];
        const std::size_t bytes = bucket.own_counts[0];
        T* const sum = sums_.data() + bucket.own_at;
        for (std::size_t rank = 0; rank < bucket.own_counts.size(); ++rank) {
            const std::byte* const from = received_.data() + bucket.received_at + rank * bytes;
            if (rank == 0) decode<false>(from, count, sum);
            else decode<true>(from, count, sum);
        }
        std::byte* const wire = own_wire_.data() + bucket.received_at / bucket.own_counts.size();
        encode(sum, own_left_.empty() ? nullptr : own_left_.data() + bucket.own_at, count, wire);
        return {wire, bytes};
    }

    World* world_;
    Int8Wire policy_;
    std::vector<Bucket> buckets_;
    Memory<std::byte> wire_;     ///< what this rank sends, and then the sums
    Memory<std::byte> received_; ///< all ranks' parts of what this rank sums
    Memory<std::byte> own_wire_; ///< its sums
    std::vector<T> sums_, left_, own_left_;
};

UNISONO_NAMESPACE_END
