#pragma once

/// \file
/// Sums of compressed blocks: all ranks send to each slice's owner, and the owner sends the sum to
/// all ranks.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/compression/left_over.hpp"
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

/// Checks a policy's `.block`.
inline void check_block(std::string_view name, std::size_t block) {
    if (block < 1 || block > (std::size_t{1} << 20))
        refuse_input({name, ".block is ", block, "; expected 1 to ", std::size_t{1} << 20, " elements"});
}

/// Blocks whose elements are all smaller than this are left over completely, so that the reciprocal
/// of the scale is finite.
inline constexpr float smallest_scaled = 1e-30f;
/// The largest magnitude that sets a block's scale; the excess of a larger one is left over.
/// Slightly less than the largest float, so that a rounded scale times its digits is finite.
inline constexpr float largest_scaled = 0x1.fffffp127f;

/// Converts a number that may exceed a float's range to a float.
template <class T>
float narrowed(T value) {
    if constexpr (sizeof(T) > sizeof(float)) return cut_to(largest_scaled, value);
    else return value;
}

/// A block on the wire: its scale, a float, and one byte per element, whose number times the scale
/// is the element. The block's largest magnitude maps to the largest number. NaN or infinity in a
/// block make the scale NaN. `Digits` has
/// - `top()`: the largest number;
/// - `round(x, byte)`: returns the number that is nearest to x, and sets its byte;
/// - `number(byte)`.
template <class Digits>
struct ScaledCodec {
    Digits digits = {};

    [[nodiscard]] static std::size_t bytes(std::size_t count) { return sizeof(float) + count; }

    template <class T>
    void encode(const T* values, T* left, std::size_t count, std::byte* wire) const {
        float largest = 0;
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            largest = std::max(largest, std::abs(narrowed(wanted)));
            finite = finite && is_finite(wanted);
        }
        largest = std::min(largest, largest_scaled);
        if (largest < smallest_scaled) largest = 0; // its inverse might overflow
        const float top = digits.top();
        const float scale = finite ? largest / top : std::bit_cast<float>(0x7fc00000u);
        const float inverse = largest > 0 && finite ? top / largest : 0;
        std::memcpy(wire, &scale, sizeof scale);
        std::byte* const to = wire + sizeof scale;
        for (std::size_t i = 0; i < count; ++i) {
            const T wanted = left == nullptr ? values[i] : values[i] + left[i];
            const float number = digits.round(finite ? narrowed(wanted) * inverse : 0, to[i]);
            if (left != nullptr) left[i] = finite ? wanted - static_cast<T>(number * scale) : T{};
        }
    }

    template <bool Adds, class T>
    void decode(const std::byte* wire, std::size_t count, T* values) const {
        float scale = 0;
        std::memcpy(&scale, wire, sizeof scale);
        for (std::size_t i = 0; i < count; ++i) {
            const auto sent = static_cast<T>(digits.number(wire[sizeof scale + i]) * scale);
            if constexpr (Adds) values[i] += sent;
            else values[i] = sent;
        }
    }
};

/// The run of a policy that sends blocks of `policy.block` elements in a format of its own,
/// `policy.codec()`. Each rank sums a slice of every bucket, in the elements' type and in rank
/// order, and sends the sum out in the same format. The first `policy.warm_up` updates, if the
/// policy has a warm-up, are summed by the reducer. A codec has
/// - `bytes(count)`: bytes of a block of `count` elements on the wire;
/// - `encode(values, left, count, wire)`: encodes values + left, and sets left to the rest that the
///   code does not contain; null: the rest is dropped. NaN or infinity make the whole block NaN,
///   and leave no rest;
/// - `decode<Adds>(wire, count, values)`: sets values to the block's contents, or adds them.
template <class World, class T, class Policy>
class BlockRun {
public:
    BlockRun(World& world, std::span<const Slice> buckets, const Policy& policy)
        : world_(&world), policy_(policy), codec_(policy.codec()) {
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
            left_.resize(end_of(buckets));
            own_left_.resize(own);
        }
    }
    BlockRun(const BlockRun&) = delete;
    BlockRun& operator=(const BlockRun&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, [[maybe_unused]] Reduction& reduction) {
        Bucket& bucket = buckets_[b];
        bucket.values = values;
        if constexpr (warms_up) {
            if (warming_up()) {
                bucket.operation = reduction.sum(*world_, std::span<T>(values, bucket.slice.count));
                return;
            }
        }
        T* const left = left_.empty() ? nullptr : left_.data() + bucket.slice.first;
        encode(values, left, bucket.slice.count, wire_.data() + bucket.at);
        bucket.operation = start_all_to_all(*world_, std::span<const std::byte>(wire_of(bucket)),
                                            std::span<std::byte>(received_.data() + bucket.received_at,
                                                                 bucket.own_counts.size() * bucket.own_counts[0]),
                                            bucket.counts, bucket.own_counts);
    }
    void finish() {
        bool any = false;
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            any = true;
            bucket.operation.wait();
            if (warming_up()) {
                bucket.values = nullptr;
                continue;
            }
            bucket.operation =
                start_all_gather(*world_, std::span<const std::byte>(sum_up(bucket)), wire_of(bucket), bucket.counts);
        }
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            decode<false>(wire_.data() + bucket.at, bucket.slice.count, bucket.values);
            bucket.values = nullptr;
        }
        updates_ += any ? 1 : 0;
    }
    void rescale(double factor) {
        unisono::apply(RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(left_));
        unisono::apply(RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(own_left_));
    }
    void correct(double factor) {
        if (left_.empty() || warming_up()) return;
        unisono::apply(RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(own_left_)); // the sum is not encoded yet
        const CorrectLeft<T> correct_one{static_cast<T>(factor - 1)};
        std::vector<T> sent(policy_.block);
        for (const Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            const std::byte* wire = wire_.data() + bucket.at;
            for (std::size_t at = 0, n = 0; at < bucket.slice.count; at += n, wire += codec_.bytes(n)) {
                n = std::min(policy_.block, bucket.slice.count - at);
                codec_.template decode<false>(wire, n, sent.data());
                T* const left = left_.data() + bucket.slice.first + at;
                for (std::size_t i = 0; i < n; ++i) correct_one(left[i], left[i] + sent[i] - bucket.values[at + i]);
            }
        }
    }
    void forget() {
        std::fill(left_.begin(), left_.end(), T{});
        std::fill(own_left_.begin(), own_left_.end(), T{});
    }
    void restart() {
        forget();
        updates_ = 0;
    }
    [[nodiscard]] std::size_t bytes() const {
        return wire_.size() + received_.size() + own_wire_.size() +
               (left_.size() + own_left_.size() + sums_.size()) * sizeof(T);
    }

private:
    struct Bucket {
        Slice slice;
        std::vector<std::size_t> cuts;       ///< the beginning of each rank's slice; whole blocks
        std::vector<std::size_t> counts;     ///< bytes of each rank's slice
        std::vector<std::size_t> own_counts; ///< bytes that arrive from each rank for this rank's slice
        std::size_t at = 0, received_at = 0, own_at = 0;
        T* values = nullptr; ///< the address given to `begin`
        Operation operation;
    };

    static constexpr bool warms_up = requires(const Policy& policy) { policy.warm_up; };
    [[nodiscard]] bool warming_up() const {
        if constexpr (warms_up) return updates_ < policy_.warm_up;
        else return false;
    }
    [[nodiscard]] std::size_t wire_bytes(std::size_t count) const {
        const std::size_t rest = count % policy_.block;
        return count / policy_.block * codec_.bytes(policy_.block) + (rest == 0 ? 0 : codec_.bytes(rest));
    }
    std::span<std::byte> wire_of(const Bucket& bucket) {
        return {wire_.data() + bucket.at, wire_bytes(bucket.slice.count)};
    }

    void encode(const T* values, T* left, std::size_t count, std::byte* wire) const {
        for (std::size_t at = 0, n = 0; at < count; at += n, wire += codec_.bytes(n)) {
            n = std::min(policy_.block, count - at);
            codec_.encode(values + at, left == nullptr ? nullptr : left + at, n, wire);
        }
    }
    template <bool Adds>
    void decode(const std::byte* wire, std::size_t count, T* values) const {
        for (std::size_t at = 0, n = 0; at < count; at += n, wire += codec_.bytes(n)) {
            n = std::min(policy_.block, count - at);
            codec_.template decode<Adds>(wire, n, values + at);
        }
    }

    /// Sums this rank's slice over all ranks, in rank order, and encodes the sum.
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
    Policy policy_;
    decltype(std::declval<const Policy&>().codec()) codec_;
    std::uint64_t updates_ = 0;
    std::vector<Bucket> buckets_;
    Memory<std::byte> wire_;     ///< the data that this rank sends, and then the sums
    Memory<std::byte> received_; ///< all ranks' contributions to this rank's slices
    Memory<std::byte> own_wire_; ///< this rank's sums
    std::vector<T> sums_, left_, own_left_;
};

} // namespace detail
UNISONO_NAMESPACE_END
