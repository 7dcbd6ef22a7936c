#pragma once

/// \file
/// The ways of a gradient's sums over the ranks to the optimizer, and of the parameters from there.
///
/// | carrier            | whose sums, and where       | parameters                                |
/// |--------------------|-----------------------------|-------------------------------------------|
/// | `Carrier`          | this rank's alone, here     | are here                                  |
/// | `CarrierToAll`     | all ranks', on all ranks    | every rank makes the same update          |
/// | `CarrierToOwners`  | all ranks', at their owners | owners publish them (sharding, a server)  |
/// | `FusedCarrier`     | as above, over mapped memory, chunk by chunk (fused_carrier.hpp)        |
///
/// The store chooses one of the last three when it is made; an update of one rank alone takes the
/// first. Nothing asks which it is.

#include "unisono/core/function_ref.hpp"
#include "unisono/core/list.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/owned_slices.hpp"
#include "unisono/trainer/step/reducer_run.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The reduction that a compression uses for one bucket. It sums to the same ranks as without
/// compression.
struct BucketReduction {
    ReducerRun& reducer;
    const OwnedSlices* slices = nullptr; ///< null: to all ranks, any number of elements
    std::size_t bucket = 0;
    std::size_t first = 0;                        ///< index of the bucket's first element in the flat order
    std::vector<Operation>* operations = nullptr; ///< the operations of all slices but the last

    template <class World, class Values>
    Operation sum(World& group, Values encoded) {
        reducer.check_group(group);
        if (slices == nullptr) return reducer.start({Collective::all_reduce, buffer_of(encoded)});
        start_slice_sums(reducer, *slices, bucket, first, buffer_of(encoded), *operations);
        Operation last = std::move(operations->back());
        operations->pop_back();
        return last;
    }
};

/// Nothing travels: an update of this rank alone. Each function is called in this order; after an
/// update that was left out, `publish` is not.
template <class T>
class Carrier {
public:
    Carrier() = default;
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    virtual ~Carrier() = default;

    /// Starts to sum bucket b, whose elements are `values`.
    virtual void start(std::size_t, const CallBuffer&) {}
    /// The same for a bucket whose sums start_sum(slice) starts.
    virtual void start_each(std::size_t, FunctionRef<Operation(const OwnedSlice&)>) {}
    /// The same for a bucket that begin(reduction) encodes. How long it may use the reduction:
    /// compression/compression.hpp.
    virtual void start_encoded(std::size_t, FunctionRef<void(BucketReduction&)>) {}
    /// Waits for the sums of all buckets.
    virtual void wait() {}

    /// The guard, or the optimizer, will read the sums. `array`: where they are, in flat order;
    /// null: in the model's memory.
    virtual void open(T* /*array*/) {}
    /// Brings the sums of a chunk to where the optimizer reads them.
    virtual void take(const Stretch<T>&) {}
    /// Notes that the optimizer has updated a chunk.
    virtual void put(const Stretch<T>&) {}
    /// Waits until all ranks have all parameters, and need no gradient of this rank.
    virtual void publish() {}

    [[nodiscard]] virtual std::size_t bytes() const { return 0; }
};

/// Sums of buckets in flight: each slice to its owner. Their operations are prepared when they
/// start first.
class BucketSums {
public:
    BucketSums() = default;
    BucketSums(const BucketSums&) = delete;
    BucketSums& operator=(const BucketSums&) = delete;
    [[gnu::noinline, gnu::cold]] ~BucketSums() = default;

    /// Starts the sum of bucket b. `values` are the bucket's elements; the first one has index
    /// `first` in the flat order.
    void start(ReducerRun& reducer, const OwnedSlices& slices, std::size_t b, std::size_t first,
               const CallBuffer& values);
    /// Operations in flight that were not prepared.
    [[nodiscard]] std::vector<Operation>& others() { return others_; }
    /// Waits for all of them.
    void wait();

private:
    /// As `start`, for a bucket whose sums are not prepared for this memory. Prepares them, if the
    /// reducer sums by calls that can be prepared.
    void start_anew(ReducerRun& reducer, const OwnedSlices& slices, std::size_t b, std::size_t first,
                    const CallBuffer& values);

    FixedArray<std::optional<Prepared>> sums_; ///< by slice; one may sum several slices of its bucket
    List<const std::byte*> prepared_at_;       ///< by bucket: the memory; null: not all its sums are prepared
    List<std::size_t> started_;
    std::vector<Operation> others_;
};

template <class T>
class CarrierToAll : public Carrier<T> {
public:
    CarrierToAll(ReducerRun& reducer, const FlatModel<T>& flat, const OwnedSlices& slices, const Kernels<T>& kernels)
        : reducer_(&reducer), flat_(&flat), slices_(&slices), kernels_(&kernels), to_all_{reducer} {
        reserve(sums_.others(), slices.all().size());
    }

    void start(std::size_t b, const CallBuffer& values) final {
        kernels_->order();
        sums_.start(*reducer_, *slices_, b, flat_->bucket(b).first, values);
    }
    void start_each(std::size_t b, FunctionRef<Operation(const OwnedSlice&)> start_sum) final {
        for (const OwnedSlice& owned : slices_->of_bucket(b)) keep(sums_.others(), start_sum(owned));
    }
    void start_encoded(std::size_t, FunctionRef<void(BucketReduction&)> begin) override { begin(to_all_); }
    void wait() final { sums_.wait(); }

protected:
    ReducerRun* reducer_;
    const FlatModel<T>* flat_;
    const OwnedSlices* slices_;
    const Kernels<T>* kernels_;
    BucketSums sums_;

private:
    BucketReduction to_all_; ///< a compression may keep it until the next update
};

/// Owners publish directly from the model's memory if it is contiguous and the peers map it.
/// Otherwise they publish from an array in the group's memory, to which each chunk of parameters is
/// copied after the optimizer, while it is in the first-level cache. The array of the gradient's
/// sum serves for that, since a chunk's gradient is not needed any more. Other ranks receive into
/// the model if its memory is contiguous.
template <class T>
class CarrierToOwners final : public CarrierToAll<T> {
    using Base = CarrierToAll<T>;

public:
    CarrierToOwners(ReducerRun& reducer, const FlatModel<T>& flat, const OwnedSlices& slices, const Kernels<T>& kernels)
        : Base(reducer, flat, slices, kernels), from_model_(publishes_from_model(flat, kernels)) {}

    void start_encoded(std::size_t b, FunctionRef<void(BucketReduction&)> begin) override {
        BucketReduction to_owners{*reducer_, slices_, b, flat_->bucket(b).first, &sums_.others()};
        begin(to_owners);
    }
    void open(T* array) override;
    void put(const Stretch<T>& chunk) override {
        if (array_ != nullptr) kernels_->copy(array_ + chunk.flat, chunk.parameters, chunk.count);
    }
    void publish() override;
    [[nodiscard]] std::size_t bytes() const override { return own_.size() * sizeof(T); }

    /// True if the model's parameters are contiguous and the peers map them.
    [[nodiscard]] static bool publishes_from_model(const FlatModel<T>& flat, const Kernels<T>& kernels) {
        return flat.contiguous() && kernels.is_shared(flat.stretches().front().parameters, flat.count());
    }

private:
    using Base::flat_, Base::kernels_, Base::reducer_, Base::slices_, Base::sums_;

    void start_publication();
    /// Brings other owners' parameters to the model.
    void receive();

    bool from_model_;
    T* array_ = nullptr; ///< from which this update's parameters are published; null: the model's memory
    Array<T> own_;
};

template <class T>
void CarrierToOwners<T>::open(T* array) {
    if (from_model_) return;
    if (array == nullptr && own_.empty()) own_ = kernels_->template allocate<T>(flat_->count());
    array_ = array != nullptr ? array : own_.data();
}

template <class T>
void CarrierToOwners<T>::publish() {
    start_publication();
    sums_.wait();
    if (kernels_->has_low_weights || !flat_->contiguous()) receive();
    array_ = nullptr;
}

template <class T>
void CarrierToOwners<T>::start_publication() {
    T* const model = flat_->contiguous() ? flat_->stretches().front().parameters : nullptr;
    const int rank = reducer_->core().rank();
    kernels_->order();
    for (const OwnedSlice& owned : slices_->all()) {
        if (owned.owner == every_rank) continue;
        T* const values = (owned.owner == rank && array_ != nullptr) || model == nullptr ? array_ : model;
        const CallBuffer slice = kernels_->buffer(values + owned.slice.first, owned.slice.count);
        keep(sums_.others(), reducer_->start({Collective::broadcast, slice, owned.owner}));
    }
}

template <class T>
void CarrierToOwners<T>::receive() {
    for (const OwnedSlice& owned : slices_->all()) {
        if (slices_->is_mine(owned)) continue;
        flat_->visit(owned.slice, [&](const Stretch<T>& to) {
            if (!flat_->contiguous()) kernels_->copy(to.parameters, array_ + to.flat, to.count);
            kernels_->write_low_weights(to.parameters, to.count);
        });
    }
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::noinline]] UNISONO_DEFINITION void BucketSums::start(ReducerRun& reducer, const OwnedSlices& slices,
                                                            std::size_t b, std::size_t first,
                                                            const CallBuffer& values) {
    if (values.space == MemorySpace::device) // each start looks up its stream
        return start_slice_sums(reducer, slices, b, first, values, others_);
    if (prepared_at_.empty()) {
        sums_ = FixedArray<std::optional<Prepared>>(slices.all().size());
        prepared_at_.resize(slices.buckets());
    }
    if (values.data == nullptr || prepared_at_[b] != values.data) return start_anew(reducer, slices, b, first, values);
    const std::size_t begin = slices.first_of_bucket(b);
    const std::size_t end = begin + slices.of_bucket(b).size();
    for (std::size_t number = begin; number < end; ++number) {
        if (!sums_[number].has_value()) continue;
        sums_[number]->start();
        started_.push_back(number);
    }
}

[[gnu::noinline]] UNISONO_DEFINITION void BucketSums::start_anew(ReducerRun& reducer, const OwnedSlices& slices,
                                                                 std::size_t b, std::size_t first,
                                                                 const CallBuffer& values) {
    prepared_at_[b] = nullptr; // until all are
    bool all = true;
    each_slice_sum(reducer, slices, b, first, values, [&](const ReducerCall& sum, std::size_t number) {
        const CallBuffer out = reducer.result(sum);
        std::optional<Prepared>& prepared = sums_[number];
        if (prepared.has_value()) {
            prepared->start(sum.values, out);
        } else {
            const Call call = reducer.call(sum);
            if (call.by.plan == nullptr) {
                all = false;
                return keep(others_, reducer.start(sum));
            }
            prepared.emplace(reducer.core().prepare(call, sum.values, out));
            prepared->start();
        }
        started_.push_back(number);
    });
    if (all) prepared_at_[b] = values.data;
}

[[gnu::noinline]] UNISONO_DEFINITION void BucketSums::wait() {
    for (const std::size_t number : started_) sums_[number]->wait();
    started_.clear();
    for (Operation& operation : others_) operation.wait();
    others_.clear();
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
