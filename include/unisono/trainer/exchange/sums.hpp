#pragma once

/// \file
/// Policies by which gradients become sums. Models whose memory is whole (gradient_sum.hpp) and
/// models in units (extensions/sharded/gradients.hpp) use the same types:
/// - `FloatSums`: gradients travel, and are kept, as they are.
/// - `CastSums`: narrower floats travel; gradients are kept as they are. For models in units only;
///   for other models the compression's run does this.
/// - `GridSums`: integers on a grid travel and are kept (grid_sums.hpp).
///
/// These types have `Sum`, the type that travels, and `Kept`, the type in which the sum of earlier
/// micro-batches is kept. `take<Add>` adds a gradient to a sum and zeroes the gradient. `encode`
/// prepares a gradient to travel. `add` and `set` keep a sum that has arrived. `numbers` converts a
/// sum to numbers. After the micro-batches, `first_not_finite` and `agree` say whether the sums are
/// valid. If they are, `follow` is called; otherwise `widen`.

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

/// `Place`: the trainer's, see trainer/place.hpp. It allocates all memory.
template <class T, class Place>
class FloatSums {
public:
    using Sum = T;
    using Kept = T;
    static constexpr bool on_grid = false;
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

    static constexpr std::size_t first_not_finite() { return no_offender; }
    static constexpr bool agree(GroupCore&, std::int64_t) { return true; }
    static constexpr void follow() {}
    static constexpr void widen() {}
    [[nodiscard]] static constexpr std::size_t bytes() { return 0; }

protected:
    const Place* place_;
};

/// The wire format of a cast (extensions/compression/cast.hpp).
template <class T, class Place, class Compression>
class CastSums : public FloatSums<T, Place> {
public:
    using Sum = typename Compression::Wire;
    static constexpr bool in_place = false;

    /// \throws error bad_input: the policy keeps what the encoding leaves over
    template <class Policy>
    CastSums(const Place& place, const Layout& layout, const Policy& policy, const Compression& compression, int ranks)
        : FloatSums<T, Place>(place, layout, policy), ranks_(ranks) {
        if constexpr (requires { compression.error_feedback; }) {
            if (compression.error_feedback && ranks > 1)
                refuse_input({Compression::name,
                              ".error_feedback is true, where gradients are sharded; expected false: what "
                              "rounding leaves over would be a whole gradient on each rank"});
        }
    }
    void encode(std::size_t, std::span<T> from, Sum* to, double weight) const {
        const auto& on = this->place_->arithmetic();
        if (weight != 1) on.scale(from, weight);
        Compression::encode(std::span<Sum>(to, from.size()), std::span<const T>(from), ranks_, on);
    }
    void add(std::span<T> sum, std::span<const Sum> one) const { this->place_->arithmetic().accumulate(sum, one, 1.0); }
    void set(std::span<T> sum, std::span<const Sum> one) const {
        this->place_->arithmetic().accumulate_first(sum, one, 1.0);
    }

private:
    int ranks_;
};

} // namespace detail
UNISONO_NAMESPACE_END
