#pragma once

/// \file
/// Sums of gradients on a grid. A gradient becomes integers on a grid (called images in the code),
/// of 8 or 4 bytes per element. Any schedule sums the integers. They become numbers where the
/// optimizer needs them, chunk by chunk in the first-level cache. If numbers are summed directly
/// from mapped memory, the sums use the same grid and give the same bits, so all ranks may choose
/// either way. The loops of devices are in extensions/device/kernels.hpp.
///
/// Each parameter has a grid of its own, so a parameter with small gradients loses no precision to
/// one with large gradients, and buckets do not matter. The grid follows the range of the
/// parameter's gradients. The rule uses only a number that is the same on all ranks: the greatest
/// exponent that any micro-batch needed, which does not depend on the hosts.

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The grids of all parameters.
class GridRange : public SumsOfGradients {
public:
    static constexpr std::int32_t unknown = Grid::nothing; ///< no gradient other than zero has been seen

    GridRange(const Layout& layout, std::int32_t headroom, std::int32_t least) : headroom_(headroom), least_(least) {
        for (std::size_t p = 0; p < layout.parameters(); ++p) {
            stretches_.push_back({layout.start_of(p) + layout.shapes()[p].count, least});
            exponents_.push_back(unknown);
            needed_.push_back(Grid::nothing);
        }
    }

    void begin() {
        std::fill(needed_.begin(), needed_.end(), Grid::nothing);
        misfit_ = no_offender;
    }
    void need(std::size_t parameter, std::int32_t exponent) {
        needed_[parameter] = std::max(needed_[parameter], exponent);
    }
    [[nodiscard]] bool agree(GroupCore& world, std::int64_t micro_batches) override = 0;
    [[nodiscard]] std::size_t first_not_finite() override {
        for (std::size_t p = 0; p < needed_.size(); ++p)
            if (needed_[p] == Grid::not_finite) return p;
        return no_offender;
    }

    /// Takes the maximum of all ranks' needs. A grid's exponent must exceed it by `more` bits for
    /// all addends to fit (`headroom_of`). Returns false if a parameter's grid is too fine.
    bool agree_on_needs(GroupCore& world, std::int32_t more) {
        if (world.size() > 1) all_reduce_native(world, needed_, Max{});
        more_ = more;
        misfit_ = no_offender;
        only_new_ = true;
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (fits(p)) continue;
            if (misfit_ == no_offender) misfit_ = p;
            if (exponents_[p] != unknown) only_new_ = false;
        }
        return misfit_ == no_offender;
    }

    /// Moves the grids after an update to `headroom` bits above what was needed, but by at most one
    /// bit towards finer steps. Keeps a grid if all gradients of its parameter were zero.
    void adapt() override {
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing) continue;
            const std::int32_t wanted = needed_[p] + more_ + headroom_;
            set(p, exponents_[p] == unknown ? wanted : std::max(wanted, exponents_[p] - 1));
        }
    }
    /// After a misfit: gives grids that were too fine their headroom, and keeps the others.
    void widen() override {
        if (misfit_ == no_offender) return;
        for (std::size_t p = 0; p < needed_.size(); ++p)
            if (!fits(p)) set(p, needed_[p] + more_ + headroom_);
    }

    [[nodiscard]] std::int32_t above(std::int64_t micro_batches) const override {
        std::int32_t most = Grid::nothing;
        for (const std::int32_t needed : needed_) most = std::max(most, needed);
        return most + static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(micro_batches)));
    }

    [[nodiscard]] std::size_t misfit() const override { return misfit_; }
    [[nodiscard]] bool only_new() const override { return only_new_; }
    [[nodiscard]] GridRange* grids() override { return this; }

    [[nodiscard]] std::span<const GridStretch> stretches() const { return stretches_; }
    /// Part of the run's state: one exponent per parameter, `unknown` at first.
    [[nodiscard]] std::span<const std::int32_t> exponents() const { return exponents_; }
    /// Empty: no grid is known, as at first.
    void restore(std::span<const std::int32_t> saved) {
        if (saved.empty()) {
            std::fill(exponents_.begin(), exponents_.end(), unknown);
            for (GridStretch& one : stretches_) one.exponent = least_;
            return;
        }
        if (saved.size() != exponents_.size())
            refuse_input({"the grids of ", saved.size(), " parameters were given; expected ", exponents_.size()});
        for (std::size_t p = 0; p < saved.size(); ++p)
            if (saved[p] != unknown && (saved[p] < least_ || saved[p] > Grid::greatest))
                refuse_input({"the grid of parameter ", p, " has exponent ", saved[p], "; expected ", least_, " to ",
                              Grid::greatest});
        for (std::size_t p = 0; p < saved.size(); ++p) {
            exponents_[p] = saved[p];
            stretches_[p].exponent = saved[p] == unknown ? least_ : saved[p];
        }
    }

private:
    [[nodiscard]] bool fits(std::size_t p) const {
        return needed_[p] == Grid::nothing || needed_[p] + more_ <= stretches_[p].exponent;
    }
    void set(std::size_t p, std::int32_t exponent) {
        exponents_[p] = std::clamp(exponent, least_, Grid::greatest);
        stretches_[p].exponent = exponents_[p];
    }

    std::int32_t headroom_;
    std::int32_t least_;
    std::int32_t more_ = 0;
    List<GridStretch> stretches_;
    List<std::int32_t> exponents_;
    List<std::int32_t> needed_;
    std::size_t misfit_ = no_offender;
    bool only_new_ = false;
};

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

/// The loops: gradients to images, sums of images to numbers.
template <class T, class Integer>
class ImageKernels {
public:
    ImageKernels() = default;
    ImageKernels(const ImageKernels&) = delete;
    ImageKernels& operator=(const ImageKernels&) = delete;
    virtual ~ImageKernels() = default;

    /// Starts an update.
    virtual void begin() {}
    /// images[i] = weight * from[i] on the parameter's grid; `adds`: adds it to images[i]. Sets
    /// `from` to zero. Tells the grids which exponent was needed; a device does so in `tell`.
    virtual void image(bool adds, std::size_t parameter, Integer* images, T* from, std::size_t count,
                       double weight) = 0;
    /// Tells the grids what they do not know yet. Waits for the device.
    virtual void tell() {}
    virtual void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const = 0;
    virtual void add(Integer* sum, const Integer* one, std::size_t count) const = 0;
    virtual void copy(Integer* to, const Integer* from, std::size_t count) const = 0;
    [[nodiscard]] virtual std::size_t bytes() const { return 0; }
};

template <class T, class Integer>
class HostImages final : public ImageKernels<T, Integer> {
public:
    explicit HostImages(GridRange& grids) : grids_(&grids) {}

    void image(bool adds, std::size_t parameter, Integer* images, T* from, std::size_t count, double weight) override {
        constexpr std::size_t chunk = 16384 / sizeof(T); // stays in the first-level cache
        const InstructionSet set = best_instruction_set();
        const std::int32_t exponent = grids_->stretches()[parameter].exponent;
        double largest = 0;
        for (std::size_t at = 0; at < count; at += chunk) {
            const std::size_t n = std::min(chunk, count - at);
            const double found = adds ? image_on<T, true>(set, images + at, from + at, n, weight, exponent)
                                      : image_on<T, false>(set, images + at, from + at, n, weight, exponent);
            largest = found > largest ? found : largest;
            HostArithmetic::zero(std::span<T>(from + at, n));
        }
        grids_->need(parameter, needed_by(largest, weight));
    }
    void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const override {
        from_image_on<T>(best_instruction_set(), to, images, count, exponent);
    }
    void add(Integer* sum, const Integer* one, std::size_t count) const override {
        apply(AddImage<Integer>{}, std::span<Integer>(sum, count), std::span<const Integer>(one, count));
    }
    void copy(Integer* to, const Integer* from, std::size_t count) const override { std::copy_n(from, count, to); }

private:
    GridRange* grids_;
};

template <class Integer, class T>
[[nodiscard]] ImageKernels<T, Integer>* images_for(const HostKernels<T>&, GridRange& grids) {
    return new HostImages<T, Integer>(grids);
}

/// The bits by which the exponent of a grid of integers must exceed that of each number, so that a
/// sum of `addends` numbers does not overflow. Exponents are those of 64-bit grids, whose step is
/// 2^(exponent - 51).
template <class Integer>
[[nodiscard]] std::int32_t headroom_of(std::int64_t addends);
template <>
[[nodiscard]] inline std::int32_t headroom_of<std::int64_t>(std::int64_t addends) {
    return Grid::bits_for(addends);
}
template <>
[[nodiscard]] inline std::int32_t headroom_of<std::int32_t>(std::int64_t addends) {
    return Grid::bits - NarrowGrid::bits_for(addends);
}

/// `Integer`: the integer type. Models in units use it as they use FloatSums
/// (extensions/sharded/gradients.hpp).
template <class T, class Integer>
class GridSums : public GridRange {
public:
    using Sum = Integer;
    using Kept = Integer;
    static constexpr bool in_place = false;

    template <class Computes, class Policy>
    GridSums(const Computes& kernels, const Layout& layout, const Policy& policy)
        : GridRange(layout, policy.checked_headroom(), Grid::least<T>), images_(images_for<Integer>(kernels, *this)) {}

    void begin() {
        GridRange::begin();
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
        images_->numbers(to, images, count, stretches()[parameter].exponent);
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
        need(parameter, needed_exponent(gradient, weight));
    }
    /// `owner`: the rank that gets the sum; below 0: all ranks. `data` begin at `flat` in the flat
    /// order.
    Operation sum_numbers(GroupCore& world, std::span<T> data, std::size_t flat, double weight, int owner) const {
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
        return GridRange::first_not_finite();
    }
    [[nodiscard]] bool agree(GroupCore& world, std::int64_t micro_batches) override {
        return this->agree_on_needs(world, headroom_of<Integer>(micro_batches));
    }
    [[nodiscard]] std::size_t bytes() const { return images_->bytes(); }

private:
    [[nodiscard]] GridMap map(std::size_t flat, double weight) const { return {stretches().data(), flat, weight}; }

    Owned<ImageKernels<T, Integer>> images_;
};

} // namespace detail
UNISONO_NAMESPACE_END
