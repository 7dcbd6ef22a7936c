#pragma once

/// \file
/// Gradients travel in 16 bits.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/extensions/compression/left_over.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// Rounds to 16 bits and keeps the rest. Values that do not fit, or whose sum would not, are cut to
/// `most`, and the excess is kept as well. Infinity and NaN are unchanged, and leave no rest.
template <class Half, class T>
struct EncodeHalf {
    float most;
    UNISONO_INLINE void operator()(Half& wire, const T& value, T& left) const {
        const T wanted = value + left;
        const auto rounded = static_cast<float>(wanted); // may be infinite: not every double fits
        const bool finite = is_finite(wanted);
        const float cut = rounded > most ? most : rounded < -most ? -most : rounded;
        wire = static_cast<Half>(finite ? cut : rounded);
        const T rest = wanted - static_cast<T>(static_cast<float>(wire));
        left = finite ? rest : T{};
    }
};
template <class Half, class T>
struct EncodeHalfAndForget {
    float most;
    UNISONO_INLINE void operator()(Half& wire, const T& value) const {
        const auto rounded = static_cast<float>(value);
        const float cut = rounded > most ? most : rounded < -most ? -most : rounded;
        wire = static_cast<Half>(is_finite(value) ? cut : rounded);
    }
};
template <class Half, class T>
struct DecodeHalf {
    UNISONO_INLINE void operator()(T& value, const Half& wire) const {
        value = static_cast<T>(static_cast<float>(wire));
    }
};

UNISONO_NO_CONTRACTION_END

/// The host's memory for encoded gradients, and the processor that encodes there. See
/// compression.hpp.
template <class World>
class WiresOnHost {
public:
    explicit WiresOnHost(World& world) : world_(&world) {}

    [[nodiscard]] static OnHost arithmetic() { return {}; }
    template <class T>
    [[nodiscard]] Memory<T> allocate(std::size_t count) const {
        return world_->template allocate<T>(count);
    }
    /// Zeros in memory that no other rank accesses.
    template <class T>
    [[nodiscard]] static std::vector<T> allocate_own(std::size_t count) {
        return std::vector<T>(count);
    }
    template <class T>
    [[nodiscard]] static std::span<T> view(T* at, std::size_t count) {
        return {at, count};
    }
    template <class T>
    static void zero(T* at, std::size_t count) {
        std::fill_n(at, count, T{});
    }
    static void order() {}

private:
    World* world_;
};

} // namespace detail

/// Each gradient is rounded to `Half`, to nearest, and the reducer sums in it. Over mapped memory
/// all ranks' numbers are added at once, in float, with one rounding; in other schedules each
/// addition is rounded. Half of float's bytes. bfloat16 has float's range and 8 significant bits.
/// float16 has 11 bits, and numbers beyond about 65,504 / ranks (`most`) are cut, and the excess is
/// sent later. Memory: 2 bytes per element, and with error feedback the size of the gradients. The
/// rounding error of the sum itself is not kept. Cost: one pass before and one after.
/// Source: the formats of PyTorch's DDP communication hooks (fp16_compress, bf16_compress), which
/// have no error feedback.
template <class Half>
    requires(sizeof(Half) == 2) && floating_element<Half>
struct CastWire {
    bool error_feedback = true;

    static constexpr std::string_view name = std::same_as<Half, bfloat16> ? "bf16 wire" : "fp16 wire";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    static constexpr bool sums_to_owners = true;
    using Wire = Half; ///< the type of an element on the wire
    friend bool operator==(const CastWire&, const CastWire&) = default;
    void check() const {}

    /// Rounds, and drops the rest.
    template <class T, class Arithmetic = OnHost>
    static void encode(std::span<Half> wire, std::span<const T> values, int ranks, const Arithmetic& on = {}) {
        on.apply(detail::EncodeHalfAndForget<Half, T>{most(ranks)}, wire, values);
    }
    /// The largest magnitude that a rank sends, so that no sum over `ranks` ranks overflows. It is
    /// a multiple of the largest Half's last place, and up to `ranks` times as much is a Half as
    /// well: for every order of ranks and every rounding of sums, a sum of k is at most k times
    /// this. With more ranks than the digits of Half can count, intermediate sums may be rounded
    /// up. That adds at most the smaller summand, and only if the other is about 2^digits times as
    /// large. So it happens at few levels of a sum: by a factor below 8 in all, over a million
    /// ranks.
    static constexpr float most(int ranks) {
        constexpr bool fp16 = std::same_as<Half, float16>;
        constexpr int units = fp16 ? 2047 : 255; // the largest Half, in its last place
        constexpr float unit = fp16 ? 32.0f : 0x1p120f;
        const int each = units / ranks; // rounded down
        if (ranks <= units) return static_cast<float>(each) * unit;
        return static_cast<float>(units) * unit / 8 / static_cast<float>(ranks);
    }

    template <class World, class T, class Where = detail::WiresOnHost<World>>
    class Run {
    public:
        Run(World& world, const Where& where, std::span<const Slice> buckets, bool error_feedback)
            : world_(&world), where_(where), buckets_(buckets.begin(), buckets.end()), values_(buckets.size()) {
            const std::size_t count = detail::end_of(buckets);
            wire_ = where_.template allocate<Half>(count);
            if (error_feedback) left_ = where_.template allocate_own<T>(count);
            operations_.reserve(buckets_.size());
        }
        Run(const Run&) = delete;
        Run& operator=(const Run&) = delete;

        template <class Reduction>
        void begin(std::size_t b, T* values, Reduction& reduction) {
            const Slice& bucket = buckets_[b];
            const std::span<Half> wire(wire_.data() + bucket.first, bucket.count);
            const std::span<const T> own(values, bucket.count);
            if (left_.empty()) encode(wire, own, world_->size(), where_.arithmetic());
            else
                where_.arithmetic().apply(detail::EncodeHalf<Half, T>{most(world_->size())}, wire, own,
                                          std::span<T>(left_.data() + bucket.first, bucket.count));
            values_[b] = values;
            where_.order();
            operations_.push_back(reduction.sum(*world_, where_.view(wire.data(), wire.size())));
        }
        void finish() {
            for (Operation& one : operations_) one.wait();
            operations_.clear();
            for (std::size_t b = 0; b < buckets_.size(); ++b) {
                const Slice& bucket = buckets_[b];
                if (T* const values = std::exchange(values_[b], nullptr))
                    where_.arithmetic().apply(detail::DecodeHalf<Half, T>{}, std::span<T>(values, bucket.count),
                                              std::span<const Half>(wire_.data() + bucket.first, bucket.count));
            }
        }
        void rescale(double factor) {
            if (!left_.empty())
                where_.arithmetic().apply(detail::RescaleLeft<T>{static_cast<T>(factor)},
                                          std::span<T>(left_.data(), left_.size()));
        }
        void forget() { where_.zero(left_.data(), left_.size()); }
        [[nodiscard]] std::size_t bytes() const { return wire_.size() * sizeof(Half) + left_.size() * sizeof(T); }

    private:
        World* world_;
        Where where_;
        std::vector<Slice> buckets_;
        std::vector<T*> values_; ///< of the buckets that were begun
        decltype(std::declval<const Where&>().template allocate<Half>(0)) wire_;
        decltype(std::declval<const Where&>().template allocate_own<T>(0)) left_;
        std::vector<Operation> operations_;
    };

    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {world, detail::WiresOnHost<World>(world), buckets, error_feedback};
    }
    template <class T, class World, class Where>
    [[nodiscard]] Run<World, T, Where> start_on(const Where& device, World& world,
                                                std::span<const Slice> buckets) const {
        return {world, device, buckets, error_feedback};
    }
};
/// Gradients travel in bf16: the exponents of floats, 8 bits of precision.
using Bf16Wire = CastWire<bfloat16>;
/// Gradients travel in fp16: 11 bits of precision, from 6e-8 to 65,504.
using Fp16Wire = CastWire<float16>;
static_assert(compression_policy<Bf16Wire> && compression_policy<Fp16Wire>);

UNISONO_NAMESPACE_END
