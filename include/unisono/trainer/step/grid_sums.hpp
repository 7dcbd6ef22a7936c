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
#include "unisono/core/list.hpp"
#include "unisono/trainer/step/grid_images.hpp"
#include "unisono/trainer/step/grid_range.hpp"
#include "unisono/trainer/step/sums.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Has the interface of FloatSums (sums.hpp). `Integer`: the integer type.
template <class T, class Integer>
class GridSums : public SumsOfGradients {
public:
    using Sum = Integer;
    using Kept = Integer;
    static constexpr bool in_place = false;

    template <class Computes, class Policy>
    GridSums(const Computes& kernels, const Layout& layout, const Policy& policy)
        : range_(layout, policy.checked_headroom(), Grid::least<T>), images_(images_for<Integer>(kernels, range_)) {}

    void begin() {
        range_.begin();
        images_->begin();
    }
    /// to = weight * from, or adds it to them. Sets `from` to zero.
    void encode(std::size_t parameter, T* from, std::size_t count, Integer* to, double weight, bool adds = false) {
        images_->image(adds, parameter, to, from, count, weight);
    }
    void add(Integer* sum, const Integer* one, std::size_t count) const { images_->add(sum, one, count); }
    void set(Integer* sum, const Integer* one, std::size_t count) const { images_->copy(sum, one, count); }
    /// Converts the integers of one parameter to numbers.
    const T* numbers(std::size_t parameter, const Integer* images, T* to, std::size_t count) const {
        images_->numbers(to, images, count, range_.stretches()[parameter].exponent);
        return to;
    }
    /// Converts `count` elements from `flat` on in the flat order to numbers, whichever parameters
    /// they belong to.
    void numbers_from(std::size_t flat, const Integer* images, T* to, std::size_t count) const {
        map(flat, 1).visit(0, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
            images_->numbers(to + at, images + at, n, exponent);
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
        images_->tell();
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
    [[nodiscard]] std::size_t bytes() const { return images_->bytes(); }

private:
    [[nodiscard]] GridMap map(std::size_t flat, double weight) const {
        return {range_.stretches().data(), flat, weight};
    }

    GridRange range_;
    Owned<ImageKernels<T, Integer>> images_;
};

} // namespace detail
UNISONO_NAMESPACE_END
