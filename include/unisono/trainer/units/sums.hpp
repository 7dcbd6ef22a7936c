#pragma once

/// \file
/// How the gradients of a model in units become sums: as they are, or on a grid (the counterparts of gradient_image.hpp and
/// grid_gradients.hpp).

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/scale.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/trainer/exchange/grid_gradients.hpp"
#include "unisono/trainer/summation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T>
class PlainUnitSums {
public:
    using Sum = T;  ///< what travels
    using Kept = T; ///< and is added up
    static constexpr bool in_place = true;

    template <class Policy>
    PlainUnitSums(const Layout&, const Policy&) {}

    static constexpr void begin() {}
    /// One micro-batch's gradient of a unit, weighed; `from` and `to` are the same memory.
    static void encode(std::size_t, std::span<T> from, T*, double multiplier) {
        if (multiplier != 1) scale(from, multiplier);
    }
    static void add(std::span<T> sum, std::span<const T> one) { accumulate(sum, one); }
    static void set(std::span<T> sum, std::span<const T> one) { std::copy(one.begin(), one.end(), sum.begin()); }
    static const T* numbers(std::size_t, const T* sums, T*, std::size_t) { return sums; }

    static constexpr std::size_t first_not_finite() { return no_offender; }
    template <class World>
    static constexpr bool agree(World&, std::int64_t) {
        return true;
    }
    static constexpr void follow() {}
    static constexpr void widen() {}
};

/// What travels is narrower (compression/cast.hpp); what an owner has of earlier micro-batches is not.
template <class T, class Compression>
class CompressedUnitSums : public PlainUnitSums<T> {
public:
    using Sum = typename Compression::Wire;
    static constexpr bool in_place = false;

    /// \throws error bad_input: what encoding leaves over would be kept
    template <class Policy>
    CompressedUnitSums(const Layout& layout, const Policy& policy, const Compression& compression, int ranks)
        : PlainUnitSums<T>(layout, policy), ranks_(ranks) {
        if constexpr (requires { compression.error_feedback; }) {
            if (compression.error_feedback && ranks > 1)
                refuse_input({Compression::name,
                              ".error_feedback is true, where gradients are sharded; expected false: "
                              "what rounding leaves over would be a whole gradient on each rank"});
        }
    }
    void encode(std::size_t, std::span<T> from, Sum* to, double multiplier) {
        if (multiplier != 1) scale(from, multiplier);
        Compression::encode(std::span<Sum>(to, from.size()), std::span<const T>(from), ranks_);
    }
    static void add(std::span<T> sum, std::span<const Sum> one) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<T>(static_cast<float>(one[i]));
    }
    static void set(std::span<T> sum, std::span<const Sum> one) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<T>(static_cast<float>(one[i]));
    }

private:
    int ranks_;
};

template <class T, class I>
class GridUnitSums {
public:
    using Sum = I;
    using Kept = I;
    static constexpr bool in_place = false;

    template <class Policy>
    GridUnitSums(const Layout& layout, const Policy& policy)
        : range_(layout, policy.checked_headroom(), Grid::least<T>) {}

    void begin() { range_.begin(); }
    void encode(std::size_t unit, std::span<T> from, Sum* to, double multiplier) {
        const double largest = image_on<T, false>(best_instruction_set(), to, from.data(), from.size(), multiplier,
                                                  range_.stretches()[unit].exponent);
        range_.need(unit, needed_by(largest, multiplier));
    }
    static void add(std::span<Sum> sum, std::span<const Sum> one) {
        using Bits = std::make_unsigned_t<I>;
        for (std::size_t i = 0; i < sum.size(); ++i) // wraps where the grid is too fine, as all ranks will find
            sum[i] = static_cast<Sum>(static_cast<Bits>(sum[i]) + static_cast<Bits>(one[i]));
    }
    static void set(std::span<Sum> sum, std::span<const Sum> one) { std::copy(one.begin(), one.end(), sum.begin()); }
    const T* numbers(std::size_t unit, const Sum* sums, T* to, std::size_t count) {
        from_image_on<T>(best_instruction_set(), to, sums, count, range_.stretches()[unit].exponent);
        return to;
    }

    [[nodiscard]] std::size_t first_not_finite() const { return range_.first_not_finite(); }
    template <class World>
    bool agree(World& world, std::int64_t micro_batches) {
        return range_.agree(world, GridImages<I>::more_for(micro_batches));
    }
    void follow() { range_.follow(); }
    void widen() { range_.widen(); }
    [[nodiscard]] GridRange& range() { return range_; }
    [[nodiscard]] const GridRange& range() const { return range_; }

private:
    GridRange range_;
};

} // namespace detail
UNISONO_NAMESPACE_END
