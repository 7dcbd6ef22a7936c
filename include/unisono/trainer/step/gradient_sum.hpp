#pragma once

/// \file
/// The gradient during an update: first the sum over this rank's micro-batches, then the sum over
/// the ranks.
///
/// - If this rank hosts one micro-batch, the gradient stays in the model's own memory and is summed
///   over the ranks in place. On a grid this holds only if no rank hosts more than one micro-batch,
///   memory is mapped, and the reducer combines all ranks' elements at once.
/// - If this rank hosts several micro-batches, or the model's spans are not contiguous, each
///   gradient is added to one array in flat order, of the type that travels, and the
///   model's memory is zeroed. So the gradient of a replica is computed separately, whichever rank
///   hosts it, and then added: the bits do not depend on the host. The same holds if the ranks do
///   not map the model's memory: the array is memory of the group, and adding to it costs less than
///   copying gradients to the group's memory and sums back.
///
/// After each update that was made, the model's gradients are zero. If an update is left out, they
/// are zeroed before the next pass adds to them.
///
/// `FloatGradient` sums floats. `GridGradient` (grid_gradient.hpp) sums on a grid.

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"

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

template <class T>
class GradientSum {
public:
    GradientSum(const GradientSum&) = delete;
    GradientSum& operator=(const GradientSum&) = delete;
    virtual ~GradientSum() = default;

    /// Starts an update: no gradient is there yet. `alone`: nothing is summed over ranks.
    virtual void begin(bool alone) {
        alone_ = alone;
        in_model_ = false;
        in_array_ = false;
        multiplier_ = 1;
    }
    /// For sums on a grid: no rank hosts more than one micro-batch in this update, and all of them
    /// have this weight. So plain numbers travel.
    virtual void expect_one(double) {}

    /// Call it before the model adds a micro-batch's gradient.
    void before_pass() {
        if (dirty_) flat_->zero_gradients(*kernels_);
        dirty_ = true;
    }

    /// The model's memory holds a gradient of this update with weight `multiplier`.
    virtual void hold(double multiplier) {
        multiplier_ = multiplier;
        in_model_ = true;
    }
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
    /// in the model's memory and not contiguous, or is in the array as integers on a grid. `last`:
    /// this is the update's last bucket.
    virtual T* settle(const Slice& bucket, bool last) = 0;
    /// The elements of a bucket that travel, after `settle` has returned `values`.
    [[nodiscard]] virtual CallBuffer travelling(const Slice& bucket, T* values) = 0;
    /// True if numbers travel and are summed on the grid.
    [[nodiscard]] virtual bool straight() const { return false; }
    /// Starts such a sum. `owner`: the rank that gets it; below 0: all ranks.
    [[nodiscard]] virtual Operation sum_straight(GroupCore&, T*, const Slice&, int) { return {}; }

    /// True if the optimizer finds this update's gradient in the model's memory; `left_over` is the
    /// factor that the optimizer must still apply.
    [[nodiscard]] virtual bool in_place() const = 0;
    [[nodiscard]] virtual double left_over() const { return 1; }
    [[nodiscard]] T* at(const Stretch<T>& stretch) {
        return in_place() ? stretch.gradients : numbers_.data() + stretch.flat;
    }
    /// The array in the group's memory, if it holds this update's numbers; else null.
    [[nodiscard]] T* numbers_in_use() { return in_place() ? nullptr : numbers_.data(); }
    /// Converts the sum of these elements to numbers, and writes them where the optimizer reads
    /// them.
    virtual void prepare(std::size_t, T*, std::size_t) {}

    /// Marks the model's gradients as zero.
    void clean() { dirty_ = false; }
    void soil() { dirty_ = true; }

    [[nodiscard]] virtual SumsOfGradients& sums() = 0;
    [[nodiscard]] virtual std::size_t bytes() const { return numbers_.size() * sizeof(T); }

protected:
    [[gnu::cold]] GradientSum(const GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels)
        : world_(&world), flat_(&flat), kernels_(&kernels), in_place_(can_sum_in_model()) {
        flat.zero_gradients(kernels);
    }

    virtual void drain(const Slice& slice) = 0;
    void moved();
    /// `settle` into `array`, which has the type that travels.
    template <class Sum>
    void settle_in_array(const Slice& bucket, bool last, Sum* array) {
        if (in_model_) drain(bucket);
        else if (!in_array_) kernels_->zero(array + bucket.first, bucket.count);
        if (last) moved();
    }
    void zero_in_model(const Slice& slice) {
        flat_->visit(slice, [&](const Stretch<T>& one) { kernels_->zero(one.gradients, one.count); });
    }
    /// The array of numbers, which travels.
    T* numbers() {
        if (numbers_.empty()) numbers_ = kernels_->template allocate<T>(flat_->count());
        return numbers_.data();
    }

    const GroupCore* world_;
    const FlatModel<T>* flat_;
    const Kernels<T>* kernels_;
    bool in_place_; ///< one micro-batch's gradient is summed in the model's memory
    Array<T> numbers_;
    bool alone_ = false;    ///< nothing is summed over ranks in this update
    bool in_model_ = false; ///< the model's memory holds a gradient of this update
    bool in_array_ = false; ///< the array holds a gradient of this update
    bool dirty_ = false;    ///< the model's memory may not be zero
    double multiplier_ = 1; ///< weight of the gradient in the model's memory

private:
    /// A world of one has no peers that must see the memory, so it need not be contiguous.
    [[nodiscard]] bool can_sum_in_model() const;
};

/// Sums floats.
template <class T>
class FloatGradient final : public GradientSum<T> {
    using Base = GradientSum<T>;

public:
    using Sum = T; ///< the type that travels

    template <class Policy>
    FloatGradient(const GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels, const Policy&)
        : Base(world, flat, kernels) {}

    T* settle(const Slice& bucket, bool last) override;
    [[nodiscard]] CallBuffer travelling(const Slice& bucket, T* values) override {
        return kernels_->buffer(values + bucket.first, bucket.count);
    }
    [[nodiscard]] bool in_place() const override { return !in_array_; }
    [[nodiscard]] double left_over() const override { return alone_ && !in_array_ && in_model_ ? multiplier_ : 1; }
    [[nodiscard]] SumsOfGradients& sums() override { return sums_; }

private:
    using Base::alone_, Base::flat_, Base::in_array_, Base::in_model_, Base::kernels_, Base::multiplier_;

    T* settle_in_model(const Slice& bucket);
    void drain(const Slice& slice) override;

    SumsOfGradients sums_;
};

template <class T>
bool GradientSum<T>::can_sum_in_model() const {
    if (world_->size() == 1) return true;
    return flat_->contiguous() && kernels_->is_shared(flat_->stretches().front().gradients, flat_->count());
}

template <class T>
void GradientSum<T>::moved() {
    in_array_ = true;
    if (in_model_) dirty_ = false;
    in_model_ = false;
}

template <class T>
T* FloatGradient<T>::settle(const Slice& bucket, bool last) {
    if (!in_array_ && (alone_ || this->in_place_)) return settle_in_model(bucket);
    T* const sums = this->numbers();
    this->settle_in_array(bucket, last, sums);
    return sums;
}

template <class T>
T* FloatGradient<T>::settle_in_model(const Slice& bucket) {
    if (!in_model_ && this->dirty_) this->zero_in_model(bucket);
    if (in_model_ && multiplier_ != 1 && !alone_)
        flat_->visit(bucket, [&](const Stretch<T>& one) { kernels_->scale(one.gradients, one.count, multiplier_); });
    return flat_->contiguous() ? flat_->stretches().front().gradients : nullptr;
}

template <class T>
void FloatGradient<T>::drain(const Slice& slice) {
    T* const to = this->numbers();
    flat_->visit(slice, [&](const Stretch<T>& one) {
        kernels_->add(to + one.flat, one.gradients, one.count, multiplier_, !in_array_, true);
    });
}

} // namespace detail
UNISONO_NAMESPACE_END
