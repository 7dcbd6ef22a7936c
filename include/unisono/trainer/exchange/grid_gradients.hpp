#pragma once

/// \file
/// Where the gradient is in the course of an update whose sums are made on a grid: the counterpart of gradient_image.hpp.
///
///  - Each rank hosts at most one micro-batch, memory is mapped and the reducer combines all ranks' elements at once: the
///    gradient stays as it is and is summed straight, in the model's memory where the peers see it.
///  - Else each micro-batch's gradient is added to an *image* of integers, 8 bytes an element or 4; images are summed by any
///    schedule, and become numbers where the optimizer needs them, piece by piece in the first cache.
/// Both have the same bits, so that all ranks may choose either.
///
/// Each parameter has a grid of its own: a parameter with small gradients loses nothing to one with large ones, and buckets
/// play no part. The grid follows the range of the parameter's gradients by a rule on numbers that all ranks know alike: the
/// greatest exponent that any micro-batch needed, which is the same whoever hosts them.

#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/collective/reproducible_sum.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/trainer/exchange/grid_images.hpp"
#include "unisono/trainer/flat_model.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The grids of all parameters, and how they move.
class GridRange {
public:
    static constexpr std::int32_t unknown = Grid::nothing; ///< no gradient but zero was ever seen

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
    [[nodiscard]] std::size_t first_not_finite() const {
        for (std::size_t p = 0; p < needed_.size(); ++p)
            if (needed_[p] == Grid::not_finite) return p;
        return no_offender;
    }

    /// All ranks' needs; the exponent must be above them by `more` for all addends to fit (GridImages). False where a
    /// parameter's grid is too fine for them.
    template <class World>
    bool agree(World& world, std::int32_t more) {
        if (world.size() > 1) all_reduce(world, needed_, Max{});
        more_ = more;
        misfit_ = no_offender;
        only_new_ = true;
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing || needed_[p] + more_ <= stretches_[p].exponent) continue;
            if (misfit_ == no_offender) misfit_ = p;
            if (exponents_[p] != unknown) only_new_ = false;
        }
        return misfit_ == no_offender;
    }

    /// After an update: `headroom` above what was needed, but at most one bit finer than before; where all gradients were
    /// zero, as before.
    void follow() {
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing) continue;
            const std::int32_t wanted = needed_[p] + more_ + headroom_;
            set(p, exponents_[p] == unknown ? wanted : std::max(wanted, exponents_[p] - 1));
        }
    }
    /// After a misfit: what did not fit gets its headroom; the others stay.
    void widen() {
        if (misfit_ == no_offender) return;
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing || needed_[p] + more_ <= stretches_[p].exponent) continue;
            set(p, needed_[p] + more_ + headroom_);
        }
    }

    /// E such that every element of the sum of so many micro-batches is below 2^E; after `agree` the same on all ranks.
    [[nodiscard]] std::int32_t above_sums(std::int64_t micro_batches) const {
        std::int32_t most = Grid::nothing;
        for (const std::int32_t needed : needed_) most = std::max(most, needed);
        return most + static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(micro_batches)));
    }

    [[nodiscard]] bool fits() const { return misfit_ == no_offender; }
    [[nodiscard]] std::size_t misfit() const { return misfit_; } ///< the first parameter whose grid was too fine
    [[nodiscard]] bool only_new() const { return only_new_; }    ///< and no grid was known for any such

    [[nodiscard]] std::span<const GridStretch> stretches() const { return stretches_; }
    /// The run's state: one exponent a parameter, `unknown` at first.
    [[nodiscard]] std::span<const std::int32_t> exponents() const { return exponents_; }
    void restore(std::span<const std::int32_t> saved) {
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

/// How far above the needed exponent a grid (in terms of 64-bit images, whose step is 2^(exponent - 51)) must be for so many
/// addends to fit into images of type I.
template <class I>
struct GridImages;
template <>
struct GridImages<std::int64_t> {
    static std::int32_t more_for(std::int64_t addends) { return Grid::bits_for(addends); }
};
template <>
struct GridImages<std::int32_t> {
    static std::int32_t more_for(std::int64_t addends) { return Grid::bits - NarrowGrid::bits_for(addends); }
};

/// `I`: the type of images.
template <class World, class T, class I, class Place>
class GridGradients {
public:
    template <class Policy>
    GridGradients(World& world, const FlatModel<T>& flat, const Place& place, const Policy& policy)
        : world_(&world), flat_(&flat), place_(&place), kernels_(place, flat.layout().parameters()),
          range_(flat.layout(), policy.checked_headroom(), Grid::least<T>), in_place_(can_sum_in_model()) {
        flat.zero_gradients(place.arithmetic());
    }
    GridGradients(const GridGradients&) = delete;
    GridGradients& operator=(const GridGradients&) = delete;

    // --- as GradientImage -------------------------------------------------------------------------------------------

    void begin(bool) {
        in_model_ = false;
        in_image_ = false;
        one_ = false;
        multiplier_ = 1;
        range_.begin();
        kernels_.begin();
    }
    void before_pass() {
        if (dirty_) flat_->zero_gradients(place_->arithmetic());
        dirty_ = true;
    }
    void hold(double multiplier) {
        if (one_ && multiplier != multiplier_)
            refuse_input(
                {"a micro-batch was weighed by ", multiplier, " and others by ", multiplier_,
                 "; expected one weight of a policy that declares neither `needs_samples` nor `needs_tokens`"});
        multiplier_ = multiplier;
        in_model_ = true;
    }
    [[nodiscard]] bool held() const { return in_model_; }

    void drain() {
        drain({0, flat_->count()});
        moved();
    }

    /// Makes one bucket ready to travel: as numbers, in the array that is returned, or as images, and then null.
    T* settle(const Slice& bucket, bool last) {
        if constexpr (!Place::on_device) {
            if (one_) return settle_numbers(bucket);
        }
        if (in_model_) drain(bucket);
        else if (!in_image_) place_->arithmetic().zero(std::span<I>(image() + bucket.first, bucket.count));
        if (last) moved();
        return nullptr;
    }

    [[nodiscard]] bool in_place() const { return !one_ || in_place_; }
    [[nodiscard]] double left_over() const { return 1; }
    [[nodiscard]] T* at(const Stretch<T>& stretch) {
        return in_place() ? stretch.gradients : numbers_.data() + stretch.flat;
    }
    /// An array in the group's memory that holds the gradient as numbers, if any does.
    [[nodiscard]] T* image_in_use() { return in_place() ? nullptr : numbers_.data(); }
    void clean() { dirty_ = false; }
    void soil() { dirty_ = true; }
    [[nodiscard]] std::size_t bytes() const {
        return image_.size() * sizeof(I) + numbers_.size() * sizeof(T) + kernels_.bytes();
    }

    // --- on a grid --------------------------------------------------------------------------------------------------

    /// No rank hosts more than one micro-batch in this update, and all have this weight.
    void expect_one(double multiplier) {
        one_ = true;
        multiplier_ = multiplier;
    }
    /// Before `agree`.
    [[nodiscard]] std::size_t first_not_finite() {
        kernels_.tell([&](std::size_t p, std::int32_t exponent) { range_.need(p, exponent); });
        return range_.first_not_finite();
    }
    bool agree(std::int64_t micro_batches) { return range_.agree(*world_, GridImages<I>::more_for(micro_batches)); }
    void follow() { range_.follow(); }
    void widen() { range_.widen(); }
    [[nodiscard]] GridRange& range() { return range_; }
    [[nodiscard]] const GridRange& range() const { return range_; }

    /// All images, in flat order.
    I* image() {
        if (image_.empty()) image_ = place_->template allocate<I>(flat_->count());
        return image_.data();
    }
    /// `owner`: below 0, all ranks.
    Operation sum_straight(T* values, const Slice& slice, int owner) {
        const std::span<T> data(values + slice.first, slice.count);
        const GridMap map{range_.stretches().data(), slice.first, multiplier_};
        return world_->handle(owner < 0 ? start_sum_on_grid<Collective::all_reduce>(*world_, data, map)
                                        : start_sum_on_grid<Collective::reduce>(*world_, data, map, owner));
    }
    /// The sum of these elements, as numbers, where the optimizer reads them.
    void prepare(std::size_t flat, T* to, std::size_t count) {
        if (one_ && world_->size() > 1) return;
        const GridMap map{range_.stretches().data(), flat, multiplier_};
        map.visit(0, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
            if constexpr (!Place::on_device) {
                if (one_) {
                    round_to_grid(std::span<T>(to + at, n), multiplier_, Grid{exponent});
                    return;
                }
            }
            kernels_.numbers(to + at, image_.data() + flat + at, n, exponent);
        });
    }

private:
    [[nodiscard]] bool can_sum_in_model() const {
        if (world_->size() == 1) return true;
        if (!flat_->contiguous()) return false;
        const Stretch<T>& all = flat_->stretches().front();
        return place_->is_shared(all.gradients, all.count);
    }
    void moved() {
        in_image_ = true;
        if (in_model_) dirty_ = false;
        in_model_ = false;
    }

    /// Calls visit(parameter, slice) for what lies in the slice of each parameter.
    template <class Visit>
    void by_parameter(const Slice& slice, Visit&& visit) const {
        const Layout& layout = flat_->layout();
        if (slice.count == 0) return;
        for (std::size_t p = layout.element_at(slice.first).parameter; p < layout.parameters(); ++p) {
            const std::size_t begin = std::max(layout.start_of(p), slice.first);
            const std::size_t end = std::min(layout.start_of(p) + layout.shapes()[p].count, slice.end());
            if (layout.start_of(p) >= slice.end()) return;
            if (begin < end) visit(p, Slice{begin, end - begin});
        }
    }

    T* settle_numbers(const Slice& bucket) {
        if (!in_place_ && numbers_.empty()) numbers_ = place_->template allocate<T>(flat_->count());
        if (!in_model_) {
            if (!in_place_) zero(numbers_.data() + bucket.first, bucket.count);
            else if (dirty_) flat_->visit(bucket, [](const Stretch<T>& one) { zero(one.gradients, one.count); });
        } else {
            by_parameter(bucket, [&](std::size_t p, const Slice& part) {
                flat_->visit(part, [&](const Stretch<T>& one) {
                    range_.need(p, needed_exponent(std::span<const T>(one.gradients, one.count), multiplier_));
                    if (in_place_) return;
                    std::copy_n(one.gradients, one.count, numbers_.data() + one.flat);
                    zero(one.gradients, one.count);
                });
            });
        }
        if (!in_place_) return numbers_.data();
        return world_->size() > 1 ? flat_->stretches().front().gradients : nullptr;
    }

    void drain(const Slice& slice) {
        I* const to = image();
        const auto need = [&](std::size_t p, std::int32_t exponent) { range_.need(p, exponent); };
        by_parameter(slice, [&](std::size_t p, const Slice& part) {
            const std::int32_t exponent = range_.stretches()[p].exponent;
            flat_->visit(part, [&](const Stretch<T>& one) {
                I* const sums = to + one.flat;
                if (in_image_)
                    kernels_.template image<true>(p, sums, one.gradients, one.count, multiplier_, exponent, need);
                else kernels_.template image<false>(p, sums, one.gradients, one.count, multiplier_, exponent, need);
            });
        });
    }

    World* world_;
    const FlatModel<T>* flat_;
    const Place* place_;
    GridImageKernels<Place, T, I> kernels_;
    GridRange range_;
    bool in_place_; ///< numbers are summed where the model put them
    typename Place::template Array<I> image_;
    typename Place::template Array<T> numbers_;
    bool in_model_ = false; ///< the model's memory holds a gradient of this update
    bool in_image_ = false; ///< the image does
    bool one_ = false;      ///< numbers are summed, not images
    bool dirty_ = false;    ///< the model's memory may be other than zero
    double multiplier_ = 1; ///< of what is in the model's memory
};

} // namespace detail
UNISONO_NAMESPACE_END
