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

/// `Place`: the trainer's, in whose memory all is.
template <class T, class Place>
class PlainUnitSums {
public:
    using Sum = T;  ///< what travels
    using Kept = T; ///< and is added up
    static constexpr bool in_place = true;

    template <class Policy>
    PlainUnitSums(const Place& place, const Layout&, const Policy&) : place_(&place) {}

    static constexpr void begin() {}
    /// One micro-batch's gradient of a unit, weighed; `from` and `to` are the same memory.
    void encode(std::size_t, std::span<T> from, T*, double multiplier) {
        if (multiplier != 1) place_->arithmetic().scale(from, multiplier);
    }
    void add(std::span<T> sum, std::span<const T> one) { place_->arithmetic().accumulate(sum, one, 1.0); }
    void set(std::span<T> sum, std::span<const T> one) { place_->arithmetic().copy(sum, one); }
    static const T* numbers(std::size_t, const T* sums, T*, std::size_t) { return sums; }

    static constexpr std::size_t first_not_finite() { return no_offender; }
    template <class World>
    static constexpr bool agree(World&, std::int64_t) {
        return true;
    }
    static constexpr void follow() {}
    static constexpr void widen() {}

protected:
    const Place* place_;
};

/// What travels is narrower (compression/cast.hpp); what an owner has of earlier micro-batches is not.
template <class T, class Place, class Compression>
class CompressedUnitSums : public PlainUnitSums<T, Place> {
public:
    using Sum = typename Compression::Wire;
    static constexpr bool in_place = false;

    /// \throws error bad_input: what encoding leaves over would be kept
    template <class Policy>
    CompressedUnitSums(const Place& place, const Layout& layout, const Policy& policy, const Compression& compression,
                       int ranks)
        : PlainUnitSums<T, Place>(place, layout, policy), ranks_(ranks) {
        if constexpr (requires { compression.error_feedback; }) {
            if (compression.error_feedback && ranks > 1)
                refuse_input({Compression::name,
                              ".error_feedback is true, where gradients are sharded; expected false: "
                              "what rounding leaves over would be a whole gradient on each rank"});
        }
    }
    void encode(std::size_t, std::span<T> from, Sum* to, double multiplier) {
        const auto& on = this->place_->arithmetic();
        if (multiplier != 1) on.scale(from, multiplier);
        Compression::encode(std::span<Sum>(to, from.size()), std::span<const T>(from), ranks_, on);
    }
    void add(std::span<T> sum, std::span<const Sum> one) { this->place_->arithmetic().accumulate(sum, one, 1.0); }
    void set(std::span<T> sum, std::span<const Sum> one) { this->place_->arithmetic().accumulate_first(sum, one, 1.0); }

private:
    int ranks_;
};

UNISONO_NO_CONTRACTION_BEGIN

/// Wraps where the grid is too fine, as all ranks will find.
template <class I>
struct AddImage {
    UNISONO_INLINE void operator()(I& sum, const I& one) const {
        using Bits = std::make_unsigned_t<I>;
        sum = static_cast<I>(static_cast<Bits>(static_cast<Bits>(sum) + static_cast<Bits>(one)));
    }
};

UNISONO_NO_CONTRACTION_END

template <class T, class I, class Place>
class GridUnitSums {
public:
    using Sum = I;
    using Kept = I;
    static constexpr bool in_place = false;

    template <class Policy>
    GridUnitSums(const Place& place, const Layout& layout, const Policy& policy)
        : place_(&place), kernels_(place, layout.parameters()),
          range_(layout, policy.checked_headroom(), Grid::least<T>) {}

    void begin() {
        range_.begin();
        kernels_.begin();
    }
    void encode(std::size_t unit, std::span<T> from, Sum* to, double multiplier) {
        kernels_.template image<false>(unit, to, from.data(), from.size(), multiplier,
                                       range_.stretches()[unit].exponent,
                                       [&](std::size_t u, std::int32_t exponent) { range_.need(u, exponent); });
    }
    void add(std::span<Sum> sum, std::span<const Sum> one) { place_->arithmetic().apply(AddImage<I>{}, sum, one); }
    void set(std::span<Sum> sum, std::span<const Sum> one) { place_->arithmetic().copy(sum, one); }
    const T* numbers(std::size_t unit, const Sum* sums, T* to, std::size_t count) {
        kernels_.numbers(to, sums, count, range_.stretches()[unit].exponent);
        return to;
    }

    /// Waits for the device.
    [[nodiscard]] std::size_t first_not_finite() {
        kernels_.tell([&](std::size_t u, std::int32_t exponent) { range_.need(u, exponent); });
        return range_.first_not_finite();
    }
    template <class World>
    bool agree(World& world, std::int64_t micro_batches) {
        return range_.agree(world, GridImages<I>::more_for(micro_batches));
    }
    void follow() { range_.follow(); }
    void widen() { range_.widen(); }
    [[nodiscard]] GridRange& range() { return range_; }
    [[nodiscard]] const GridRange& range() const { return range_; }

private:
    const Place* place_;
    GridImageKernels<Place, T, I> kernels_;
    GridRange range_;
};

} // namespace detail
UNISONO_NAMESPACE_END
