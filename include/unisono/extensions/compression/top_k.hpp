#pragma once

/// \file
/// Only the largest elements of the gradients travel.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/compression/gathered.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Of each bucket the `fraction` of elements with the largest magnitudes travels, at least one
/// element, as index and float; the rest waits for the next update. All ranks get all entries and
/// add them in rank order. Bytes per rank: 8 (p - 1) fraction per element. Unlike those of sums
/// they grow with the ranks: with a fraction of 1/100, 50 times fewer than a ring's on two ranks,
/// 12 times on five. NaN counts as the largest magnitude. Memory: the gradients, the entries, and
/// the largest bucket while elements are selected. Cost: a selection, linear in the bucket, some
/// ten times a pass over it.
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
    using Run = GatheredRun<TopK, World, T>;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {*this, world, buckets};
    }

    // --- the format of GatheredRun ---

    /// \throws error bad_input: too many elements for an index
    [[nodiscard]] std::size_t message_bytes(std::size_t count) const {
        constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
        if (count > most)
            refuse_input(
                {name, ": a bucket has ", count, " elements; expected at most ", most, ", as an index has 4 bytes"});
        const auto wanted = static_cast<std::size_t>(fraction * static_cast<double>(count));
        return std::max<std::size_t>(1, wanted) * sizeof(Entry);
    }
    /// Moves the largest elements from `rest` to the message; among equal ones the first.
    template <class T>
    static void encode(std::span<T> rest, std::span<std::byte> message) {
        constexpr T infinity = std::numeric_limits<T>::infinity();
        const auto magnitude = [](T x) { return detail::is_nan(x) ? infinity : std::abs(x); };
        const std::size_t chosen = message.size() / sizeof(Entry);
        const auto magnitudes = std::make_unique_for_overwrite<T[]>(rest.size());
        T* const begin = magnitudes.get();
        for (std::size_t i = 0; i < rest.size(); ++i) begin[i] = magnitude(rest[i]);
        std::nth_element(begin, begin + (chosen - 1), begin + rest.size(), std::greater<>());
        const T bound = begin[chosen - 1];
        std::size_t larger = 0;
        for (std::size_t i = 0; i < chosen; ++i) larger += begin[i] > bound;
        std::size_t equal = chosen - larger; // the number of them to take
        std::size_t next = 0;
        for (std::size_t i = 0; i < rest.size() && next < chosen; ++i) {
            const T size = magnitude(rest[i]);
            if (size < bound || (size == bound && equal == 0)) continue;
            if (size == bound) --equal;
            const float value = size < infinity ? detail::cut_to(std::numeric_limits<float>::max(), rest[i])
                                                : static_cast<float>(rest[i]);
            const Entry one{static_cast<std::uint32_t>(i), value};
            std::memcpy(message.data() + next++ * sizeof one, &one, sizeof one);
            rest[i] = size < infinity ? rest[i] - static_cast<T>(value) : T{};
        }
    }
    template <class T>
    static void add(std::span<const std::byte> message, std::span<T> sum) {
        Entry one;
        for (std::size_t at = 0; at < message.size(); at += sizeof one) {
            std::memcpy(&one, message.data() + at, sizeof one);
            sum[one.index] += static_cast<T>(one.value);
        }
    }

private:
    struct Entry {
        std::uint32_t index = 0;
        float value = 0;
    };
};
static_assert(compression_policy<TopK> && gathered_format<TopK, float> && gathered_format<TopK, double>);

UNISONO_NAMESPACE_END
