#pragma once

/// \file
/// Where the gradient is, in the course of an update.
///
///  - One micro-batch on this rank: it stays in the model's own memory, and is summed over the ranks in place.
///  - Several, or a model whose spans do not follow one another: each is added to the *image*, one array in flat order, and
///    the model's memory is zeroed behind it. So a replica's gradient is formed alone, whichever rank hosts it, and then
///    added; the bits do not depend on who hosts it. So also where the ranks do not see the model's memory: the image is
///    memory of the group, and to add to it costs less than to copy the gradients there and the sums back.
/// After each update the model's gradients are zero.

#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/place.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class World, class T, class Place>
class GradientImage {
public:
    template <class Policy>
    GradientImage(World& world, const FlatModel<T>& flat, const Place& place, const Policy&)
        : flat_(&flat), place_(&place), sums_in_model_(can_sum_in_model(world.size())) {
        flat.zero_gradients(place.arithmetic());
    }
    GradientImage(const GradientImage&) = delete;
    GradientImage& operator=(const GradientImage&) = delete;

    /// A new update: nothing is there yet. `alone`: nothing will be summed over ranks.
    void begin(bool alone) {
        alone_ = alone;
        in_model_ = false;
        in_image_ = false;
        multiplier_ = 1;
    }

    /// Before the model adds a micro-batch's gradient.
    void before_pass() {
        if (dirty_) flat_->zero_gradients(place_->arithmetic());
        dirty_ = true;
    }

    /// The model's memory holds a gradient of this update, which counts so much.
    void hold(double multiplier) {
        multiplier_ = multiplier;
        in_model_ = true;
    }
    [[nodiscard]] bool held() const { return in_model_; }

    /// Moves all that the model's memory holds to the image.
    void drain() {
        drain({0, flat_->count()});
        moved();
    }

    /// Makes one bucket's sum over this rank's micro-batches ready to travel. Returns the array in flat order in which it
    /// lies; null where it lies in the model's memory in pieces. `last`: of the update's buckets.
    T* settle(const Slice& bucket, bool last) {
        if (!in_image_ && (alone_ || sums_in_model_)) {
            if (!in_model_ && dirty_) zero(bucket);
            if (in_model_ && multiplier_ != 1 && !alone_) multiply(bucket);
            return flat_->contiguous() ? flat_->stretches().front().gradients : nullptr;
        }
        T* const values = image();
        if (in_model_) drain(bucket);
        else if (!in_image_) place_->arithmetic().zero(std::span<T>(values + bucket.first, bucket.count));
        if (last) moved();
        return values;
    }

    /// The gradient of this update lies in the model's memory; `left_over` is by how much it must still be multiplied.
    [[nodiscard]] bool in_place() const { return !in_image_; }
    [[nodiscard]] double left_over() const { return alone_ && in_place() && in_model_ ? multiplier_ : 1; }
    [[nodiscard]] T* at(const Stretch<T>& stretch) {
        return in_place() ? stretch.gradients : image_.data() + stretch.flat;
    }

    /// The image where the gradient of this update lies in it, else null.
    [[nodiscard]] T* image_in_use() { return in_image_ ? image_.data() : nullptr; }

    /// The model's gradients are zero, or not known to be.
    void clean() { dirty_ = false; }
    void soil() { dirty_ = true; }

    [[nodiscard]] std::size_t bytes() const { return image_.size() * sizeof(T); }

private:
    T* image() {
        if (image_.empty()) image_ = place_->template allocate<T>(flat_->count());
        return image_.data();
    }
    /// One that sums over none has no need to: memory in pieces will do.
    [[nodiscard]] bool can_sum_in_model(int ranks) const {
        if (ranks == 1 || !flat_->contiguous()) return false;
        const Stretch<T>& all = flat_->stretches().front();
        return place_->is_shared(all.gradients, all.count);
    }
    void moved() {
        in_image_ = true;
        if (in_model_) dirty_ = false;
        in_model_ = false;
    }
    void zero(const Slice& slice) {
        flat_->visit(slice,
                     [&](const Stretch<T>& one) { place_->arithmetic().zero(std::span<T>(one.gradients, one.count)); });
    }
    void multiply(const Slice& slice) {
        flat_->visit(slice, [&](const Stretch<T>& one) {
            place_->arithmetic().scale(std::span<T>(one.gradients, one.count), multiplier_);
        });
    }
    void drain(const Slice& slice) {
        constexpr std::size_t chunk = Place::template chunk<T>;
        T* const to = image();
        const auto& on = place_->arithmetic();
        flat_->visit(slice, [&](const Stretch<T>& stretch) {
            for (std::size_t at = 0, n = 0; at < stretch.count; at += n) {
                n = std::min(chunk, stretch.count - at);
                const std::span<T> sum(to + stretch.flat + at, n);
                const std::span<T> one(stretch.gradients + at, n);
                if (in_image_) on.accumulate(sum, std::span<const T>(one), multiplier_);
                else on.accumulate_first(sum, std::span<const T>(one), multiplier_);
                on.zero(one);
            }
        });
    }

    const FlatModel<T>* flat_;
    const Place* place_;
    bool alone_ = false; ///< nothing is summed over ranks in this update
    bool sums_in_model_; ///< one micro-batch's gradient is summed where the model put it
    typename Place::template Array<T> image_;
    bool in_model_ = false; ///< the model's memory holds a gradient of this update
    bool in_image_ = false; ///< the image does
    bool dirty_ = false;    ///< the model's memory may be other than zero
    double multiplier_ = 1; ///< of what is in the model's memory
};

} // namespace detail
UNISONO_NAMESPACE_END
