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
/// micro-batches is kept. `encode` prepares a gradient to travel. `add` and `set` keep a sum that
/// has arrived. `numbers` converts a sum to numbers. An update knows only `SumsOfGradients`.

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/trainer/kernels.hpp"

#include <cstddef>
#include <cstdint>

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

template <class T>
class FloatSums : public SumsOfGradients {
public:
    using Sum = T;
    using Kept = T;
    static constexpr bool in_place = true; ///< `encode` leaves a gradient where it is

    template <class Policy>
    FloatSums(const Kernels<T>& kernels, const Layout&, const Policy&) : kernels_(&kernels) {}

    static constexpr void begin() {}
    /// `from` and `to` must be the same memory.
    void encode(std::size_t, T* from, std::size_t count, T*, double weight) const {
        if (weight != 1) kernels_->scale(from, count, weight);
    }
    void add(T* sum, T* one, std::size_t count) const { kernels_->add(sum, one, count, 1.0, false, false); }
    void set(T* sum, const T* one, std::size_t count) const { kernels_->copy(sum, one, count); }
    static const T* numbers(std::size_t, const T* sums, T*, std::size_t) { return sums; }

protected:
    const Kernels<T>* kernels_;
};

} // namespace detail
UNISONO_NAMESPACE_END
