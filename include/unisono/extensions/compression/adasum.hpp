#pragma once

/// \file
/// Combines gradients by their agreement instead of adding them.

#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// a.a, b.b and a.b, in double, in a fixed order.
template <class T>
struct DotProducts {
    const T *a, *b;
    std::size_t count;
    double* sums; ///< three elements

    UNISONO_INLINE void operator()() const {
        constexpr std::size_t lanes = 8;
        double aa[lanes] = {}, bb[lanes] = {}, ab[lanes] = {};
        const auto add = [&](std::size_t i, std::size_t lane) {
            const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
            aa[lane] += x * x;
            bb[lane] += y * y;
            ab[lane] += x * y;
        };
        std::size_t i = 0;
        for (; i + lanes <= count; i += lanes)
            for (std::size_t lane = 0; lane < lanes; ++lane) add(i + lane, lane);
        for (; i < count; ++i) add(i, i % lanes);
        for (std::size_t lane = 1; lane < lanes; ++lane) {
            aa[0] += aa[lane];
            bb[0] += bb[lane];
            ab[0] += ab[lane];
        }
        sums[0] = aa[0];
        sums[1] = bb[0];
        sums[2] = ab[0];
    }
};

/// a = x a + y b.
template <class T>
struct Blend {
    T* a;
    const T* b;
    std::size_t count;
    T x, y;
    UNISONO_INLINE void operator()() const {
        UNISONO_ELEMENTWISE
        for (std::size_t i = 0; i < count; ++i) a[i] = x * a[i] + y * b[i];
    }
};

/// a = the Adasum of a and b.
template <class T>
void combine_by_agreement(T* a, const T* b, std::size_t count) {
    double sums[3];
    vectorised(best_instruction_set(), DotProducts<T>{a, b, count, sums});
    const double x = sums[0] == 0 ? 1 : 1 - sums[2] / (2 * sums[0]);
    const double y = sums[1] == 0 ? 1 : 1 - sums[2] / (2 * sums[1]);
    vectorised(best_instruction_set(), Blend<T>{a, b, count, static_cast<T>(x), static_cast<T>(y)});
}

UNISONO_NO_CONTRACTION_END

} // namespace detail

/// Two gradients become a (1 - a.b / 2 a.a) + b (1 - a.b / 2 b.b), for each parameter separately:
/// their sum if they are orthogonal, their mean if they are equal. Ranks are combined pairwise,
/// neighbours first, then pairs of pairs, for any number of ranks; rank 0 sends the result to all
/// ranks. The optimizer gets p times the result, which the trainer divides by p (or by the samples,
/// or tokens). So a gradient that is equal on all ranks is unchanged, and orthogonal gradients give
/// up to p times as much: a learning rate that suits one rank suits many. Gradients have the
/// weights of the weighing policy; a rank without a gradient is not combined but counts in p.
///
/// Bytes: each rank's gradient once up and once down; latency: 2 log2 p messages. Memory: twice the
/// gradients on ranks that combine. Cost: two passes per level. Determinism: the same bits on all
/// ranks, for a given number of ranks. NaN stays NaN. It is a compression policy with a factor of
/// 1, since the same rules apply: it has an exchange of its own, in which no reducer, owner or
/// other wire format can take part.
/// Source: Maleki et al. 2021 (Adasum; there by vector halving, which needs a power of two).
struct Adasum {
    static constexpr std::string_view name = "Adasum";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const Adasum&, const Adasum&) = default;
    void check() const {}

    template <class World, class T>
    class Run;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets,
                                      std::span<const ParameterMatrix> parameters) const {
        return {world, buckets, parameters};
    }
};
static_assert(compression_policy<Adasum>);

template <class World, class T>
class Adasum::Run {
public:
    Run(World& world, std::span<const Slice> buckets, std::span<const ParameterMatrix> parameters) : world_(&world) {
        for (const Slice& slice : buckets) {
            const std::size_t first = parts_.size();
            for (const ParameterMatrix& one : parameters)
                if (one.slice.count != 0 && one.slice.first >= slice.first && one.slice.end() <= slice.end())
                    parts_.push_back(one.slice);
            buckets_.push_back({slice, first, parts_.size() - first, nullptr, {}});
        }
        if (world.rank() % 2 == 0 && world.rank() + 1 < world.size())
            received_ = world.template allocate<T>(detail::end_of(buckets));
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction&) {
        buckets_[b].values = values;
        start_level(buckets_[b], 1);
    }
    void finish() {
        const int me = world_->rank(), ranks = world_->size();
        int level = 1;
        for (; level < ranks && me % (2 * level) == 0; level *= 2) {
            for (Bucket& bucket : buckets_) {
                if (bucket.values == nullptr) continue;
                bucket.operation.wait();
                if (me + level < ranks) combine(bucket);
                start_level(bucket, 2 * level);
            }
        }
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait(); // the data sent up have left
            const std::span<T> values(bucket.values, bucket.slice.count);
            if (me == 0)
                for (T& x : values) x *= static_cast<T>(ranks);
            if (ranks > 1) bucket.operation = start_broadcast(*world_, values, 0);
        }
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            bucket.values = nullptr;
        }
    }
    void forget() {}
    [[nodiscard]] std::size_t bytes() const { return received_.size() * sizeof(T); }

private:
    struct Bucket {
        Slice slice;
        std::size_t first_part = 0, parts = 0;
        T* values = nullptr; ///< the address given to `begin`
        Operation operation;
    };

    /// Combines pairs of ranks at this distance: the right one sends to the left.
    void start_level(Bucket& bucket, int level) {
        const int me = world_->rank();
        if (level >= world_->size()) return;
        if (me % (2 * level) == level) {
            bucket.operation = start_send(*world_, std::span<const T>(bucket.values, bucket.slice.count), me - level);
        } else if (me + level < world_->size()) {
            bucket.operation = start_receive(
                *world_, std::span<T>(received_.data() + bucket.slice.first, bucket.slice.count), me + level);
        }
    }
    void combine(const Bucket& bucket) {
        for (const Slice& part : std::span(parts_).subspan(bucket.first_part, bucket.parts))
            detail::combine_by_agreement(bucket.values + (part.first - bucket.slice.first),
                                         received_.data() + part.first, part.count);
    }

    World* world_;
    std::vector<Bucket> buckets_;
    std::vector<Slice> parts_;
    Memory<T> received_;
};

UNISONO_NAMESPACE_END
