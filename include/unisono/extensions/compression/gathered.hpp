#pragma once

/// \file
/// The run of compressions of which each rank gets the messages of all ranks, with error feedback.
/// A compression of your own that no reducer can sum is then two functions: one writes a message,
/// the other adds one to the sum.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/extensions/compression/left_over.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The functions that GatheredRun calls:
/// - `message_bytes(count)`: the bytes of a message for `count` elements, at least 1;
/// - `encode(rest, message)`: `rest` is the gradient, and what earlier messages have left over of
///   it. Writes a message, and leaves in `rest` exactly what the message does not say. A format
///   without error feedback needs a run of its own;
/// - `add(message, sum)`: adds what a message says to as many elements.
template <class P, class T>
concept gathered_format = requires(const P& policy, std::span<T> elements, std::span<std::byte> message,
                                   std::span<const std::byte> received) {
    { policy.message_bytes(elements.size()) } -> std::same_as<std::size_t>;
    policy.encode(elements, message);
    policy.add(received, elements);
};

/// All ranks get all messages and add them in rank order. Bytes per rank: those of p - 1 messages,
/// so they grow with the ranks. Memory: the gradients once, and p + 1 messages.
template <class Policy, class World, class T>
class GatheredRun {
    static_assert(
        gathered_format<Policy, T>,
        "GatheredRun: the compression lacks message_bytes(count), encode(rest, message) or add(message, sum)");

public:
    GatheredRun(const Policy& policy, World& world, std::span<const Slice> buckets) : policy_(policy), world_(&world) {
        for (const Slice& slice : buckets) {
            const std::size_t bytes = policy.message_bytes(slice.count);
            buckets_.push_back({std::vector<T>(slice.count), world.template allocate<std::byte>(bytes),
                                world.template allocate<std::byte>(bytes * static_cast<std::size_t>(world.size()))});
        }
    }
    GatheredRun(const GatheredRun&) = delete;
    GatheredRun& operator=(const GatheredRun&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction&) {
        Bucket& bucket = buckets_[b];
        bucket.values = values;
        for (std::size_t i = 0; i < bucket.rest.size(); ++i) bucket.rest[i] += values[i];
        policy_.encode(std::span<T>(bucket.rest), std::span<std::byte>(bucket.mine));
        bucket.operation = start_all_gather(*world_, bucket.mine, bucket.all);
    }
    void finish() {
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            const std::span<T> sum(bucket.values, bucket.rest.size());
            std::fill(sum.begin(), sum.end(), T{});
            const std::span<const std::byte> all(bucket.all);
            for (std::size_t at = 0; at < all.size(); at += bucket.mine.size())
                policy_.add(all.subspan(at, bucket.mine.size()), sum);
            bucket.values = nullptr;
        }
    }
    void rescale(double factor) {
        for (Bucket& bucket : buckets_)
            unisono::apply(detail::RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(bucket.rest));
    }
    void correct(double factor) {
        const detail::CorrectLeft<T> correct_one{static_cast<T>(factor - 1)};
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            std::vector<T> sent(bucket.rest.size());
            policy_.add(std::span<const std::byte>(bucket.mine), std::span<T>(sent));
            for (std::size_t i = 0; i < sent.size(); ++i)
                correct_one(bucket.rest[i], bucket.rest[i] + sent[i] - bucket.values[i]);
        }
    }
    void forget() {
        for (Bucket& bucket : buckets_) std::fill(bucket.rest.begin(), bucket.rest.end(), T{});
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t all = 0;
        for (const Bucket& bucket : buckets_)
            all += bucket.rest.size() * sizeof(T) + bucket.mine.size() + bucket.all.size();
        return all;
    }

private:
    struct Bucket {
        std::vector<T> rest;
        Memory<std::byte> mine, all;
        T* values = nullptr; ///< the address given to `begin`
        Operation operation = {};
    };
    Policy policy_;
    World* world_;
    std::vector<Bucket> buckets_;
};

UNISONO_NAMESPACE_END
