#pragma once

/// \file
/// Sums of gradients on a grid. A gradient becomes integers on a grid (called images in the code),
/// of 8 or 4 bytes per element. Any schedule sums the integers. They become numbers where the
/// optimizer needs them, chunk by chunk in the first-level cache. If numbers are summed directly
/// from mapped memory, the sums use the same grid and give the same bits, so all ranks may choose
/// either way.

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/trainer/step/grid_images.hpp"
#include "unisono/trainer/step/grid_range.hpp"
#include "unisono/trainer/step/sums.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// If the grid is too fine, the addition wraps around; all ranks detect that later.
template <class Integer>
struct AddImage {
    UNISONO_INLINE void operator()(Integer& sum, const Integer& one) const {
        using Bits = std::make_unsigned_t<Integer>;
        sum = static_cast<Integer>(static_cast<Bits>(static_cast<Bits>(sum) + static_cast<Bits>(one)));
    }
};

UNISONO_NO_CONTRACTION_END

/// Has the interface of FloatSums (sums.hpp). `Integer`: the integer type.
template <class T, class Integer, class Place>
class GridSums : public SumsOfGradients {
public:
    using Sum = Integer;
    using Kept = Integer;
    static constexpr bool in_place = false;

    template <class Policy>
    GridSums(const Place& place, const Layout& layout, const Policy& policy)
        : place_(&place), kernels_(place, layout.parameters()),
          range_(layout, policy.checked_headroom(), Grid::least<T>) {}

    void begin() {
        range_.begin();
        kernels_.begin();
    }
    template <bool Add>
    void take(std::size_t parameter, Integer* images, T* from, std::size_t count, double weight) {
        kernels_.template image<Add>(parameter, images, from, count, weight, range_.stretches()[parameter].exponent,
                                     [&](std::size_t p, std::int32_t exponent) { range_.need(p, exponent); });
    }
    void encode(std::size_t parameter, std::span<T> from, Integer* to, double weight) {
        take<false>(parameter, to, from.data(), from.size(), weight);
    }
    void add(std::span<Integer> sum, std::span<const Integer> one) const {
        place_->arithmetic().apply(AddImage<Integer>{}, sum, one);
    }
    void set(std::span<Integer> sum, std::span<const Integer> one) const { place_->arithmetic().copy(sum, one); }
    /// Converts the integers of one parameter to numbers.
    const T* numbers(std::size_t parameter, const Integer* images, T* to, std::size_t count) const {
        kernels_.numbers(to, images, count, range_.stretches()[parameter].exponent);
        return to;
    }
    /// Converts `count` elements from `flat` on in the flat order to numbers, whichever parameters
    /// they belong to.
    void numbers_from(std::size_t flat, const Integer* images, T* to, std::size_t count) const {
        map(flat, 1).visit(0, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
            kernels_.numbers(to + at, images + at, n, exponent);
        });
    }

    // --- numbers that are summed directly from mapped memory, on the host ---

    /// Notes a gradient of this parameter that will be summed.
    void note(std::size_t parameter, std::span<const T> gradient, double weight) {
        range_.need(parameter, needed_exponent(gradient, weight));
    }
    /// `owner`: the rank that gets the sum; below 0: all ranks. `data` begin at `flat` in the flat
    /// order.
    Operation sum_straight(GroupCore& world, std::span<T> data, std::size_t flat, double weight, int owner) const {
        const GridMap grids = map(flat, weight);
        const Call call{.what = owner < 0 ? Collective::all_reduce : Collective::reduce,
                        .root = std::max(owner, 0),
                        .op = grid_reduction<T>(grids)};
        return world.start(call, buffer_of(data), buffer_of(data));
    }
    /// The sum over one rank: rounds the numbers to the grid.
    void round_alone(std::size_t flat, T* values, std::size_t count, double weight) const {
        map(flat, weight).visit(0, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
            round_to_grid(std::span<T>(values + at, n), weight, Grid{exponent});
        });
    }

    // --- the verdict ---

    /// Waits for the device.
    [[nodiscard]] std::size_t first_not_finite() override {
        kernels_.tell([&](std::size_t p, std::int32_t exponent) { range_.need(p, exponent); });
        return range_.first_not_finite();
    }
    [[nodiscard]] bool agree(GroupCore& world, std::int64_t micro_batches) override {
        return range_.agree(world, GridImages<Integer>::more_for(micro_batches));
    }
    [[nodiscard]] std::int32_t above(std::int64_t micro_batches) const override {
        return range_.above_sums(micro_batches);
    }
    [[nodiscard]] std::size_t misfit() const override { return range_.misfit(); }
    [[nodiscard]] bool only_new() const override { return range_.only_new(); }
    void follow() override { range_.follow(); }
    void widen() override { range_.widen(); }
    [[nodiscard]] GridRange* grids() override { return &range_; }
    [[nodiscard]] std::size_t bytes() const { return kernels_.bytes(); }

private:
    [[nodiscard]] GridMap map(std::size_t flat, double weight) const {
        return {range_.stretches().data(), flat, weight};
    }

    const Place* place_;
    GridImageKernels<Place, T, Integer> kernels_;
    GridRange range_;
};

} // namespace detail
UNISONO_NAMESPACE_END
