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
/// `CompressedGradient` (compressed_gradient.hpp) sums floats in the format of a compression. Each
/// is a form in which the gradient travels, by any carrier (carrier.hpp) but `FusedCarrier`, which
/// takes only the first.

#include "unisono/core/error.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/carrier.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class GridRange;
template <class T>
class CompressionRun; // compressed_gradient.hpp

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
    /// The update was made: grids follow its gradients.
    virtual void adapt() {}
    /// The update was left out: grids that were too fine become coarser.
    virtual void widen() {}
    /// Null if sums are on no grid.
    [[nodiscard]] virtual GridRange* grids() { return nullptr; }
};

template <class T>
class GradientSum {
public:
    /// Lets the guard look at `count` values of this rank's gradient, the first of which has index
    /// `flat` in the flat order.
    using Look = FunctionRef<void(const T* values, std::size_t count, std::size_t flat)>;

    GradientSum(const GradientSum&) = delete;
    GradientSum& operator=(const GradientSum&) = delete;
    virtual ~GradientSum() = default;

    /// The reducer combines all ranks' elements at once, from mapped memory, and a micro-batch of
    /// any size has this weight.
    virtual void combine_at_once(double /*weight*/) {}

    /// Starts an update: no gradient is there yet. `alone`: nothing is summed over ranks.
    void begin(bool alone, double loss_scale) {
        if (model_ == InModel::gradient) model_ = InModel::stale;
        in_array_ = false;
        multiplier_ = 1;
        begin_form(alone, loss_scale);
    }
    /// No rank hosts more than one micro-batch in this update.
    virtual void expect_one() {}

    /// Call it before the model adds a micro-batch's gradient.
    void before_pass() {
        if (model_ != InModel::zeros) flat_->zero_gradients(*kernels_);
        model_ = InModel::stale;
    }

    /// The model's memory holds a gradient of this update with weight `multiplier`.
    virtual void hold(double multiplier) {
        multiplier_ = multiplier;
        model_ = InModel::gradient;
    }
    [[nodiscard]] bool held() const { return model_ == InModel::gradient; }

    /// Moves the gradients in the model's memory to the array.
    void drain(Look look) {
        drop_weightless({0, flat_->count()});
        drain({0, flat_->count()}, look);
        moved();
    }

    /// Completes the sum of bucket b over this rank's micro-batches, and starts its sum over the
    /// ranks. Call it for each bucket, in their order.
    virtual void start(std::size_t b, Carrier<T>& carrier, Look look) = 0;
    /// Waits for the sums over the ranks. `divisor`: the sum of the weights of all ranks; 0: they
    /// have not agreed on an update.
    virtual void finish(Carrier<T>& carrier, double /*divisor*/) { carrier.wait(); }

    /// True if the optimizer finds this update's gradient in the model's memory; `factor_left` is
    /// the factor that the optimizer must still apply.
    [[nodiscard]] virtual bool in_place() const = 0;
    [[nodiscard]] virtual double factor_left() const { return 1; }
    [[nodiscard]] T* at(const Stretch<T>& stretch) {
        return in_place() ? stretch.gradients : numbers_.data() + stretch.flat;
    }
    /// The array in the group's memory, if it holds this update's numbers; else null.
    [[nodiscard]] T* numbers_in_use() { return in_place() ? nullptr : numbers_.data(); }
    /// Converts the sum of these elements to numbers, and writes them where the optimizer reads
    /// them.
    virtual void prepare(std::size_t, T*, std::size_t) {}

    /// The model's gradients count as zero from now on: the optimizer or the move to the array has
    /// zeroed them, else this does.
    void clean() {
        if (model_ == InModel::stale && !in_place()) flat_->zero_gradients(*kernels_);
        model_ = InModel::zeros;
    }
    /// Zeroes the model's gradients if they served this update.
    void zero() {
        if (in_place()) flat_->zero_gradients(*kernels_);
        clean();
    }
    /// Drops this update's gradient.
    virtual void forget() { model_ = InModel::stale; }
    /// Drops what a compression has left over, because another training continues here.
    virtual void restart() {}

    [[nodiscard]] virtual SumsOfGradients& sums() = 0;
    /// The compression's run, or null.
    [[nodiscard]] virtual CompressionRun<T>* compression() { return nullptr; }
    [[nodiscard]] virtual std::size_t bytes() const { return numbers_.size() * sizeof(T); }

protected:
    /// The contents of the model's memory for gradients.
    enum class InModel : std::uint8_t {
        zeros,
        stale,    ///< anything, which counts nothing
        gradient, ///< one of this update, of weight `multiplier_`
    };

    [[gnu::cold]] GradientSum(GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels)
        : world_(&world), flat_(&flat), kernels_(&kernels), may_sum_in_model_(can_sum_in_model()) {
        flat.zero_gradients(kernels);
    }

    virtual void begin_form(bool alone, double loss_scale) = 0;
    /// Adds gradients in the model's memory to the array. A form whose guard looks at each
    /// micro-batch calls `look`; the others call it in `start`, for the sum.
    virtual void drain(const Slice& slice, Look look) = 0;
    void moved() {
        in_array_ = true;
        if (held()) model_ = InModel::zeros;
    }
    /// The sum of a bucket in `array`, which has the type that travels. Returns its first element.
    template <class Sum>
    Sum* complete_in_array(std::size_t b, Sum* array, Look look) {
        const Slice& bucket = flat_->bucket(b);
        if (held()) drain(bucket, look);
        else if (!in_array_) kernels_->zero(array + bucket.first, bucket.count);
        if (b + 1 == flat_->buckets().size()) moved();
        return array + bucket.first;
    }
    /// A gradient of weight 0 counts nothing, whatever is in the model's memory: it becomes zero.
    void drop_weightless(const Slice& slice) {
        if (held() && multiplier_ == 0) zero_in_model(slice);
    }
    void zero_in_model(const Slice& slice) {
        flat_->visit(slice, [&](const Stretch<T>& one) { kernels_->zero(one.gradients, one.count); });
    }
    void look_in_model(const Slice& slice, Look look) {
        flat_->visit(slice, [&](const Stretch<T>& one) { look(one.gradients, one.count, one.flat); });
    }
    /// The array of numbers, which travels.
    T* numbers() {
        if (numbers_.empty()) numbers_ = kernels_->template allocate<T>(flat_->count());
        return numbers_.data();
    }

    GroupCore* world_;
    const FlatModel<T>* flat_;
    const Kernels<T>* kernels_;
    bool may_sum_in_model_; ///< one micro-batch's gradient is summed in the model's memory
    Array<T> numbers_;
    InModel model_ = InModel::zeros;
    bool in_array_ = false; ///< the array holds a gradient of this update
    double multiplier_ = 1;

private:
    /// A world of one has no peers that must see the memory, so it need not be contiguous.
    [[nodiscard]] bool can_sum_in_model() const;
};

/// Sums floats.
template <class T>
class FloatGradient : public GradientSum<T> {
    using Base = GradientSum<T>;

public:
    using Sum = T; ///< the type that travels
    using typename Base::Look;

    template <class Policy>
    FloatGradient(GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels, const Policy&)
        : Base(world, flat, kernels) {}

    void start(std::size_t b, Carrier<T>& carrier, Look look) final;
    [[nodiscard]] bool in_place() const final { return !in_array_; }
    [[nodiscard]] double factor_left() const final {
        return nothing_travels_ && !in_array_ && this->held() ? multiplier_ : 1;
    }
    [[nodiscard]] SumsOfGradients& sums() final { return sums_; }

protected:
    /// Starts the sum of a bucket over the ranks. `values`: its elements; null: those of a model
    /// whose memory is not contiguous, in an update that no other rank sees.
    virtual void travel(std::size_t b, T* values, Carrier<T>& carrier) {
        carrier.start(b, kernels_->buffer(values, flat_->bucket(b).count));
    }

    void begin_form(bool alone, double /*loss_scale*/) override { nothing_travels_ = alone; }

    using Base::flat_, Base::in_array_, Base::kernels_, Base::multiplier_;

private:
    T* complete_in_model(const Slice& bucket);
    void drain(const Slice& slice, Look look) final;

    bool nothing_travels_ = false; ///< in this update
    SumsOfGradients sums_;
};

template <class T>
bool GradientSum<T>::can_sum_in_model() const {
    if (world_->size() == 1) return true;
    return flat_->contiguous() && kernels_->is_shared(flat_->stretches().front().gradients, flat_->count());
}

template <class T>
void FloatGradient<T>::start(std::size_t b, Carrier<T>& carrier, Look look) {
    const Slice& bucket = flat_->bucket(b);
    this->drop_weightless(bucket);
    const bool in_model = !in_array_ && (nothing_travels_ || this->may_sum_in_model_);
    T* const values = in_model ? complete_in_model(bucket) : this->complete_in_array(b, this->numbers(), look);
    if (values != nullptr) look(values, bucket.count, bucket.first);
    else this->look_in_model(bucket, look);
    travel(b, values, carrier);
}

template <class T>
T* FloatGradient<T>::complete_in_model(const Slice& bucket) {
    if (this->model_ == Base::InModel::stale) this->zero_in_model(bucket);
    if (this->held() && multiplier_ != 1 && !nothing_travels_)
        flat_->visit(bucket, [&](const Stretch<T>& one) { kernels_->scale(one.gradients, one.count, multiplier_); });
    return flat_->contiguous() ? flat_->stretches().front().gradients + bucket.first : nullptr;
}

template <class T>
void FloatGradient<T>::drain(const Slice& slice, Look) {
    T* const to = this->numbers();
    flat_->visit(slice, [&](const Stretch<T>& one) {
        kernels_->add(to + one.flat, one.gradients, one.count, multiplier_, !in_array_, true);
    });
}

} // namespace detail
UNISONO_NAMESPACE_END
