#pragma once

/// \file
/// The gradient during an update: first the sum over this rank's micro-batches, then the sum over
/// the ranks.
///
/// - If this rank hosts one micro-batch, the gradient stays in the model's own memory and is summed
///   over the ranks in place. On a grid this holds only if no rank hosts more than one micro-batch,
///   memory is mapped, and the reducer combines all ranks' elements at once.
/// - If this rank hosts several micro-batches, or the model's spans are not contiguous, each
///   gradient is added to one array in flat order, of the type that travels (sums.hpp), and the
///   model's memory is zeroed. So the gradient of a replica is computed separately, whichever rank
///   hosts it, and then added: the bits do not depend on the host. The same holds if the ranks do
///   not map the model's memory: the array is memory of the group, and adding to it costs less than
///   copying gradients to the group's memory and sums back.
///
/// After each update that was made, the model's gradients are zero. If an update is left out, they
/// are zeroed before the next pass adds to them.

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/place.hpp"

#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T, class Place, class Sums>
class GradientSum {
public:
    using Sum = typename Sums::Sum;
    static constexpr bool on_grid = Sums::on_grid;

    template <class Policy>
    GradientSum(const GroupCore& world, const FlatModel<T>& flat, const Place& place, const Policy& policy)
        : world_(&world), flat_(&flat), place_(&place), sums_(place, flat.layout(), policy),
          in_place_(can_sum_in_model()) {
        flat.zero_gradients(place.arithmetic());
    }
    GradientSum(const GradientSum&) = delete;
    GradientSum& operator=(const GradientSum&) = delete;

    /// Starts an update: no gradient is there yet. `alone`: nothing is summed over ranks.
    void begin(bool alone);
    /// For sums on a grid: no rank hosts more than one micro-batch in this update, and all of them
    /// have this weight. So plain numbers travel.
    void expect_one(double multiplier) {
        straight_ = true;
        multiplier_ = multiplier;
    }

    /// Call it before the model adds a micro-batch's gradient.
    void before_pass() {
        if (dirty_) flat_->zero_gradients(place_->arithmetic());
        dirty_ = true;
    }

    /// The model's memory holds a gradient of this update with weight `multiplier`.
    void hold(double multiplier);
    [[nodiscard]] bool held() const { return in_model_; }
    /// A gradient of weight 0 counts nothing, whatever is in the model's memory: it becomes zero.
    void drop_weightless(const Slice& slice) {
        if (in_model_ && multiplier_ == 0) zero_in_model(slice);
    }

    /// Moves the gradients in the model's memory to the array.
    void drain() {
        drain({0, flat_->count()});
        moved();
    }

    /// Prepares one bucket's sum over this rank's micro-batches for the sum over the ranks. Returns
    /// the array of numbers in flat order that contains the bucket. Returns null if the bucket is
    /// in the model's memory and not contiguous, or is in `array()` as integers on a grid. `last`:
    /// this is the update's last bucket.
    T* settle(const Slice& bucket, bool last);

    /// The array that travels, in flat order.
    Sum* array() {
        if (array_.empty()) array_ = place_->template allocate<Sum>(flat_->count());
        return array_.data();
    }
    /// Starts to sum, on the grid, numbers that `settle` returned. `owner`: the rank that gets the
    /// sum; below 0: all ranks.
    Operation sum_straight([[maybe_unused]] GroupCore& world, T* values, const Slice& slice,
                           [[maybe_unused]] int owner) {
        const std::span<T> data(values + slice.first, slice.count);
        if constexpr (on_grid) return sums_.sum_straight(world, data, slice.first, multiplier_, owner);
        else return {};
    }

    /// True if the optimizer finds this update's gradient in the model's memory; `left_over` is the
    /// factor that the optimizer must still apply.
    [[nodiscard]] bool in_place() const { return on_grid ? !straight_ || in_place_ : !in_array_; }
    [[nodiscard]] double left_over() const { return !on_grid && alone_ && in_place() && in_model_ ? multiplier_ : 1; }
    [[nodiscard]] T* at(const Stretch<T>& stretch) { return in_place() ? stretch.gradients : numbers() + stretch.flat; }
    /// The array in the group's memory, if it holds this update's numbers; else null.
    [[nodiscard]] T* numbers_in_use() { return in_place() ? nullptr : numbers(); }
    /// Converts the sum of these elements to numbers, and writes them where the optimizer reads
    /// them.
    void prepare([[maybe_unused]] std::size_t flat, [[maybe_unused]] T* to, [[maybe_unused]] std::size_t count);

    /// Marks the model's gradients as zero.
    void clean() { dirty_ = false; }
    void soil() { dirty_ = true; }

    [[nodiscard]] Sums& sums() { return sums_; }
    [[nodiscard]] const Sums& sums() const { return sums_; }
    [[nodiscard]] std::size_t bytes() const {
        return array_.size() * sizeof(Sum) + numbers_.size() * sizeof(T) + sums_.bytes();
    }

private:
    /// A world of one has no peers that must see the memory, so it need not be contiguous.
    [[nodiscard]] bool can_sum_in_model() const;
    [[nodiscard]] T* numbers() {
        if constexpr (on_grid) return numbers_.data();
        else return array_.data();
    }
    void moved();
    void zero_in_model(const Slice& slice) {
        flat_->visit(slice,
                     [&](const Stretch<T>& one) { place_->arithmetic().zero(std::span<T>(one.gradients, one.count)); });
    }

    T* settle_in_model(const Slice& bucket);
    T* settle_straight(const Slice& bucket) {
        if (!in_place_ && numbers_.empty()) numbers_ = place_->template allocate<T>(flat_->count());
        if (!in_model_) {
            if (!in_place_) zero(numbers_.data() + bucket.first, bucket.count);
            else if (dirty_) zero_in_model(bucket);
        } else {
            flat_->visit_by_parameter(bucket, [&]([[maybe_unused]] std::size_t p, const Stretch<T>& one) {
                if constexpr (on_grid) sums_.note(p, std::span<const T>(one.gradients, one.count), multiplier_);
                if (in_place_) return;
                std::copy(one.gradients, one.gradients + one.count, numbers_.data() + one.flat);
                zero(one.gradients, one.count);
            });
        }
        if (!in_place_) return numbers_.data();
        return world_->size() > 1 ? flat_->stretches().front().gradients : nullptr;
    }

    /// Not inlined, so that an update of one micro-batch, which does not call it, stays small.
    [[gnu::noinline]] void drain(const Slice& slice);

    const GroupCore* world_;
    const FlatModel<T>* flat_;
    const Place* place_;
    Sums sums_;
    bool in_place_; ///< one micro-batch's gradient is summed in the model's memory
    typename Place::template Array<Sum> array_;
    typename Place::template Array<T> numbers_; ///< numbers that travel, if `array_` has integers
    bool alone_ = false;                        ///< nothing is summed over ranks in this update
    bool straight_ = false;                     ///< numbers are summed on the grid
    bool in_model_ = false;                     ///< the model's memory holds a gradient of this update
    bool in_array_ = false;                     ///< `array()` holds a gradient of this update
    bool dirty_ = false;                        ///< the model's memory may not be zero
    double multiplier_ = 1;                     ///< weight of the gradient in the model's memory
};

template <class T, class Place, class Sums>
void GradientSum<T, Place, Sums>::begin(bool alone) {
    alone_ = alone;
    in_model_ = false;
    in_array_ = false;
    straight_ = false;
    multiplier_ = 1;
    sums_.begin();
}

template <class T, class Place, class Sums>
void GradientSum<T, Place, Sums>::hold(double multiplier) {
    if constexpr (on_grid)
        if (straight_ && multiplier != multiplier_)
            refuse_input(
                {"a micro-batch was weighed by ", multiplier, " and others by ", multiplier_,
                 "; expected one weight of a policy that declares neither `needs_samples` nor `needs_tokens`"});
    multiplier_ = multiplier;
    in_model_ = true;
}

template <class T, class Place, class Sums>
auto GradientSum<T, Place, Sums>::settle(const Slice& bucket, bool last) -> T* {
    if constexpr (!on_grid) {
        if (!in_array_ && (alone_ || in_place_)) return settle_in_model(bucket);
    } else if constexpr (!Place::on_device) {
        if (straight_) return settle_straight(bucket);
    }
    Sum* const sums = array();
    if (in_model_) drain(bucket);
    else if (!in_array_) place_->arithmetic().zero(std::span<Sum>(sums + bucket.first, bucket.count));
    if (last) moved();
    if constexpr (on_grid) return nullptr;
    else return sums;
}

template <class T, class Place, class Sums>
void GradientSum<T, Place, Sums>::prepare(std::size_t flat, T* to, std::size_t count) {
    if constexpr (on_grid) {
        if (straight_ && world_->size() > 1) return;
        if constexpr (!Place::on_device) {
            if (straight_) return sums_.round_alone(flat, to, count, multiplier_);
        }
        sums_.numbers_from(flat, array_.data() + flat, to, count);
    }
}

template <class T, class Place, class Sums>
bool GradientSum<T, Place, Sums>::can_sum_in_model() const {
    if (world_->size() == 1) return true;
    if (!flat_->contiguous()) return false;
    const Stretch<T>& all = flat_->stretches().front();
    return place_->is_shared(all.gradients, all.count);
}

template <class T, class Place, class Sums>
void GradientSum<T, Place, Sums>::moved() {
    in_array_ = true;
    if (in_model_) dirty_ = false;
    in_model_ = false;
}

template <class T, class Place, class Sums>
auto GradientSum<T, Place, Sums>::settle_in_model(const Slice& bucket) -> T* {
    if (!in_model_ && dirty_) zero_in_model(bucket);
    if (in_model_ && multiplier_ != 1 && !alone_)
        flat_->visit(bucket, [&](const Stretch<T>& one) {
            place_->arithmetic().scale(std::span<T>(one.gradients, one.count), multiplier_);
        });
    return flat_->contiguous() ? flat_->stretches().front().gradients : nullptr;
}

template <class T, class Place, class Sums>
void GradientSum<T, Place, Sums>::drain(const Slice& slice) {
    Sum* const to = array();
    const auto take = [&](std::size_t p, const Stretch<T>& one) {
        if (in_array_) sums_.template take<true>(p, to + one.flat, one.gradients, one.count, multiplier_);
        else sums_.template take<false>(p, to + one.flat, one.gradients, one.count, multiplier_);
    };
    if constexpr (on_grid) flat_->visit_by_parameter(slice, take); // each parameter has its own grid
    else flat_->visit(slice, [&](const Stretch<T>& one) { take(0, one); });
}

} // namespace detail
UNISONO_NAMESPACE_END
