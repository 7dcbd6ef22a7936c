#pragma once

/// \file
/// How gradients become sums. Models whose memory is whole (gradient_sum.hpp) and models in units
/// (extensions/sharded/gradients.hpp) use the same types:
/// - `FloatSums`: gradients travel, and are kept, as they are.
/// - `GridSums`: integers on a grid travel and are kept (grid_sums.hpp).
/// - `CastSums`: narrower floats travel; gradients are kept as they are. For models in units only
///   (extensions/sharded/gradients.hpp); for other models the compression's run does this.
///
/// These types have `Sum`, the type that travels, and `Kept`, the type in which the sum of earlier
/// micro-batches is kept. `take<Add>` adds a gradient to a sum and zeroes the gradient. `encode`
/// prepares a gradient to travel. `add` and `set` keep a sum that has arrived. `numbers` converts a
/// sum to numbers. An update knows only `SumsOfGradients`.

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class GridRange;

/// The questions of an update to the sums of its gradients. The defaults are the answers of sums of
/// floats.
class SumsOfGradients {
public:
    SumsOfGradients() = default;
    SumsOfGradients(const SumsOfGradients&) = delete;
    SumsOfGradients& operator=(const SumsOfGradients&) = delete;
    virtual ~SumsOfGradients() = default;

    /// The first parameter with a gradient that cannot be summed, or no_offender.
    [[nodiscard]] virtual std::size_t first_not_finite() { return no_offender; }
    /// True on all ranks if the sums of this many micro-batches are valid. Collective.
    [[nodiscard]] virtual bool agree(GroupCore&, std::int64_t) { return true; }
    /// E such that all sums are below 2^E; the same on all ranks after `agree`. Only on a grid.
    [[nodiscard]] virtual std::int32_t above(std::int64_t) const { return 0; }
    /// After `agree`: the first parameter whose grid was too fine, or no_offender.
    [[nodiscard]] virtual std::size_t misfit() const { return no_offender; }
    /// After `agree`: no grid was known yet for any such parameter.
    [[nodiscard]] virtual bool only_new() const { return false; }
    /// The update was made.
    virtual void follow() {}
    /// The update was left out.
    virtual void widen() {}
    /// Null if sums are on no grid.
    [[nodiscard]] virtual GridRange* grids() { return nullptr; }
};

/// `Place`: the trainer's, see trainer/place.hpp. It allocates all memory.
template <class T, class Place>
class FloatSums : public SumsOfGradients {
public:
    using Sum = T;
    using Kept = T;
    static constexpr bool in_place = true; ///< `encode` leaves a gradient where it is

    template <class Policy>
    FloatSums(const Place& place, const Layout&, const Policy&) : place_(&place) {}

    static constexpr void begin() {}
    /// sum[i] = weight * from[i], or adds it to sum[i]. Sets `from` to zero. Works in chunks that
    /// fit the first-level cache.
    template <bool Add>
    void take(std::size_t, T* sum, T* from, std::size_t count, double weight) const {
        const auto& on = place_->arithmetic();
        for (std::size_t at = 0, n = 0; at < count; at += n) {
            n = std::min(Place::template chunk<T>, count - at);
            const std::span<T> one(from + at, n);
            if constexpr (Add) on.accumulate(std::span<T>(sum + at, n), std::span<const T>(one), weight);
            else on.accumulate_first(std::span<T>(sum + at, n), std::span<const T>(one), weight);
            on.zero(one);
        }
    }
    /// `from` and `to` must be the same memory.
    void encode(std::size_t, std::span<T> from, T*, double weight) const {
        if (weight != 1) place_->arithmetic().scale(from, weight);
    }
    void add(std::span<T> sum, std::span<const T> one) const { place_->arithmetic().accumulate(sum, one, 1.0); }
    void set(std::span<T> sum, std::span<const T> one) const { place_->arithmetic().copy(sum, one); }
    static const T* numbers(std::size_t, const T* sums, T*, std::size_t) { return sums; }

protected:
    const Place* place_;
};

} // namespace detail
UNISONO_NAMESPACE_END
