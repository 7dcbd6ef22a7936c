#pragma once

/// \file
/// The gradient of an update that is summed on a grid (grid_sums.hpp). Integers travel, or, where
/// each rank has one micro-batch and the reducer combines all ranks' elements at once, the numbers
/// themselves (`sums_numbers_`).

#include "unisono/core/error.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/grid_sums.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T, class Integer>
class GridGradient final : public GradientSum<T> {
    using Base = GradientSum<T>;

public:
    using Sum = Integer; ///< the type that travels
    using typename Base::Look;

    template <class Computes, class Policy>
    GridGradient(GroupCore& world, const FlatModel<T>& flat, const Computes& kernels, const Policy& policy)
        : Base(world, flat, kernels), sums_(kernels, flat.layout(), policy) {}

    void combine_at_once(double weight) override {
        at_once_ = true;
        weight_ = weight;
    }

    void expect_one() override {
        sums_numbers_ = at_once_;
        if (sums_numbers_) multiplier_ = weight_;
    }
    void hold(double multiplier) override {
        if (sums_numbers_ && multiplier != multiplier_)
            refuse_input(
                {"a micro-batch was weighed by ", multiplier, " and others by ", multiplier_,
                 "; expected one weight of a policy that declares neither `needs_samples` nor `needs_tokens`"});
        Base::hold(multiplier);
    }

    void start(std::size_t b, Carrier<T>& carrier, Look look) override;

    [[nodiscard]] bool in_place() const override { return !sums_numbers_ || may_sum_in_model_; }
    void prepare(std::size_t flat, T* to, std::size_t count) override;

    [[nodiscard]] SumsOfGradients& sums() override { return sums_; }
    [[nodiscard]] std::size_t bytes() const override {
        return Base::bytes() + images_.size() * sizeof(Integer) + sums_.bytes();
    }

private:
    using Base::flat_, Base::in_array_, Base::may_sum_in_model_, Base::kernels_, Base::multiplier_, Base::world_;

    void begin_form(bool, double) override {
        sums_numbers_ = false;
        sums_.begin();
    }
    T* complete_numbers(const Slice& bucket, Look look);
    void drain(const Slice& slice, Look look) override;
    Integer* images() {
        if (images_.empty()) images_ = kernels_->template allocate<Integer>(flat_->count());
        return images_.data();
    }

    GridSums<T, Integer> sums_;
    Array<Integer> images_;
    bool at_once_ = false;      ///< the reducer combines all ranks' numbers at once
    double weight_ = 1;         ///< of a micro-batch then
    bool sums_numbers_ = false; ///< numbers are summed on the grid; never on a device
};

template <class T, class Integer>
void GridGradient<T, Integer>::start(std::size_t b, Carrier<T>& carrier, Look look) {
    const Slice& bucket = flat_->bucket(b);
    this->drop_weightless(bucket);
    if (!sums_numbers_)
        return carrier.start(b, kernels_->buffer(this->complete_in_array(b, images(), look), bucket.count));
    T* const values = complete_numbers(bucket, look);
    carrier.start_each(b, [&](const OwnedSlice& owned) {
        const Slice& slice = owned.slice;
        const std::span<T> data(values + (slice.first - bucket.first), slice.count);
        return sums_.sum_numbers(*world_, data, slice.first, multiplier_, owned.owner);
    });
}

template <class T, class Integer>
T* GridGradient<T, Integer>::complete_numbers(const Slice& bucket, Look look) {
    T* const numbers = may_sum_in_model_ ? nullptr : this->numbers();
    if (!this->held()) {
        if (!may_sum_in_model_) kernels_->zero(numbers + bucket.first, bucket.count);
        else if (this->model_ == Base::InModel::stale) this->zero_in_model(bucket);
    } else {
        this->look_in_model(bucket, look);
        flat_->visit_by_parameter(bucket, [&](std::size_t p, const Stretch<T>& one) {
            sums_.note(p, std::span<const T>(one.gradients, one.count), multiplier_);
            if (may_sum_in_model_) return;
            std::copy(one.gradients, one.gradients + one.count, numbers + one.flat);
            kernels_->zero(one.gradients, one.count);
        });
    }
    if (!may_sum_in_model_) return numbers + bucket.first;
    return world_->size() > 1 ? flat_->stretches().front().gradients + bucket.first : nullptr;
}

template <class T, class Integer>
void GridGradient<T, Integer>::prepare(std::size_t flat, T* to, std::size_t count) {
    if (sums_numbers_ && world_->size() > 1) return;
    if (sums_numbers_) return sums_.round_alone(flat, to, count, multiplier_);
    sums_.numbers_from(flat, images_.data() + flat, to, count);
}

template <class T, class Integer>
void GridGradient<T, Integer>::drain(const Slice& slice, Look look) {
    this->look_in_model(slice, look); // integers do not tell the guard
    Integer* const to = images();
    flat_->visit_by_parameter(slice, [&](std::size_t p, const Stretch<T>& one) { // each parameter has its own grid
        sums_.encode(p, one.gradients, one.count, to + one.flat, multiplier_, in_array_);
    });
}

} // namespace detail
UNISONO_NAMESPACE_END
