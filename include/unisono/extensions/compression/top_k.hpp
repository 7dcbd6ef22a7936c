#pragma once

/// \file
/// Only the largest elements of the gradients travel.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/compression/left_over.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Of each bucket the `fraction` of elements with the largest magnitudes travels, at least one
/// element, as index and float; the rest waits for the next update. All ranks get all entries and
/// add them in rank order. Bytes per rank: 8 (p - 1) fraction per element. Unlike those of sums
/// they grow with the ranks: with a fraction of 1/100, 50 times fewer than a ring's on two ranks,
/// 12 times on five. NaN counts as the largest magnitude. Memory: twice the gradients, and the
/// entries. Cost: a selection, linear in the bucket, some ten times a pass over it.
/// Source: Aji & Heafield 2017 (sparse communication), with its error feedback; Lin et al. 2018
/// (DGC) without momentum correction.
struct TopK {
    double fraction = 0.01;

    static constexpr std::string_view name = "top-k";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const TopK&, const TopK&) = default;
    void check() const {
        if (!(fraction > 0 && fraction <= 1))
            refuse_input({name, ".fraction is ", fraction, "; expected more than 0 and at most 1"});
    }

    template <class World, class T>
    class Run;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, buckets, *this};
    }
};
static_assert(compression_policy<TopK>);

template <class World, class T>
class TopK::Run {
public:
    Run(World& world, std::span<const Slice> buckets, const TopK& policy) : world_(&world) {
        const auto ranks = static_cast<std::size_t>(world.size());
        std::size_t chosen = 0, longest = 0;
        for (const Slice& slice : buckets) {
            if (slice.count > std::numeric_limits<std::uint32_t>::max())
                refuse_input({name, ": a bucket has ", slice.count, " elements; expected at most ",
                              std::numeric_limits<std::uint32_t>::max(), ", as an index has 4 bytes"});
            const auto wanted = static_cast<std::size_t>(policy.fraction * static_cast<double>(slice.count));
            buckets_.push_back({slice, std::max<std::size_t>(1, wanted), chosen, nullptr, {}});
            chosen += buckets_.back().chosen;
            longest = std::max(longest, slice.count);
        }
        mine_ = world.template allocate<Entry>(chosen);
        all_ = world.template allocate<Entry>(chosen * ranks);
        left_.resize(detail::end_of(buckets));
        magnitudes_.resize(longest);
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction&) {
        Bucket& bucket = buckets_[b];
        bucket.values = values;
        T* const left = left_.data() + bucket.slice.first;
        for (std::size_t i = 0; i < bucket.slice.count; ++i) left[i] += values[i];
        const std::span<Entry> mine(mine_.data() + bucket.at, bucket.chosen);
        choose(left, bucket.slice.count, mine);
        const auto ranks = static_cast<std::size_t>(world_->size());
        bucket.operation = start_all_gather(*world_, std::span<const Entry>(mine),
                                            std::span<Entry>(all_.data() + ranks * bucket.at, ranks * bucket.chosen));
    }
    void finish() {
        const auto ranks = static_cast<std::size_t>(world_->size());
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            std::fill_n(bucket.values, bucket.slice.count, T{});
            for (const Entry& one : std::span(all_.data() + ranks * bucket.at, ranks * bucket.chosen))
                bucket.values[one.index] += static_cast<T>(one.value);
            bucket.values = nullptr;
        }
    }
    void rescale(double factor) { unisono::apply(detail::RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(left_)); }
    void correct(double factor) {
        for (const Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            T* const left = left_.data() + bucket.slice.first;
            const std::span<const Entry> sent(mine_.data() + bucket.at, bucket.chosen);
            const auto add = [&](T sign) {
                for (const Entry& one : sent)
                    if (detail::is_finite(one.value)) left[one.index] += sign * static_cast<T>(one.value);
            };
            add(1);
            for (std::size_t i = 0; i < bucket.slice.count; ++i)
                detail::CorrectLeft<T>{static_cast<T>(factor - 1)}(left[i], left[i] - bucket.values[i]);
            add(-1);
        }
    }
    void forget() { std::fill(left_.begin(), left_.end(), T{}); }
    [[nodiscard]] std::size_t bytes() const {
        return (mine_.size() + all_.size()) * sizeof(Entry) + (left_.size() + magnitudes_.size()) * sizeof(T);
    }

private:
    struct Entry {
        std::uint32_t index = 0;
        float value = 0;
    };
    struct Bucket {
        Slice slice;
        std::size_t chosen = 0; ///< the number of elements that travel
        std::size_t at = 0;     ///< the number of entries before its own
        T* values = nullptr;    ///< the address given to `begin`
        Operation operation;
    };

    /// Moves the largest elements from `left` to `entries`; among equal ones the first.
    void choose(T* left, std::size_t count, std::span<Entry> entries) {
        constexpr T infinity = std::numeric_limits<T>::infinity();
        const auto magnitude = [](T x) { return detail::is_nan(x) ? infinity : std::abs(x); };
        for (std::size_t i = 0; i < count; ++i) magnitudes_[i] = magnitude(left[i]);
        const auto begin = magnitudes_.begin();
        const auto least = begin + static_cast<std::ptrdiff_t>(entries.size() - 1);
        std::nth_element(begin, least, begin + static_cast<std::ptrdiff_t>(count), std::greater<>());
        const T bound = *least;
        std::size_t larger = 0;
        for (std::size_t i = 0; i < entries.size(); ++i) larger += magnitudes_[i] > bound;
        std::size_t equal = entries.size() - larger; // the number of them to take
        std::size_t next = 0;
        for (std::size_t i = 0; i < count && next < entries.size(); ++i) {
            const T size = magnitude(left[i]);
            if (size < bound || (size == bound && equal == 0)) continue;
            if (size == bound) --equal;
            const float value = size < infinity ? detail::cut_to(std::numeric_limits<float>::max(), left[i])
                                                : static_cast<float>(left[i]);
            entries[next++] = {static_cast<std::uint32_t>(i), value};
            left[i] = size < infinity ? left[i] - static_cast<T>(value) : T{};
        }
    }

    World* world_;
    std::vector<Bucket> buckets_;
    Memory<Entry> mine_, all_;
    std::vector<T> left_;
    std::vector<T> magnitudes_;
};

UNISONO_NAMESPACE_END
