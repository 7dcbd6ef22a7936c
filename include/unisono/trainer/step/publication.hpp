#pragma once

/// \file
/// Sends the parameters that each owner has updated to all ranks.

#include "unisono/group/operation.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/carrier.hpp"

#include <cstddef>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Owners publish directly from the model's memory if it is contiguous and the peers map it.
/// Otherwise they publish from an array in the group's memory, to which each chunk of parameters is
/// copied after the optimizer, while it is in the first-level cache. The array of the gradient's
/// sum serves for that, since a chunk's gradient is not needed any more. Other ranks receive into
/// the model if its memory is contiguous.
template <class T>
class Publication {
public:
    Publication(const GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels)
        : world_(&world), flat_(&flat), kernels_(&kernels),
          from_model_(flat.contiguous() && kernels.is_shared(flat.stretches().front().parameters, flat.count())) {}
    Publication(const Publication&) = delete;
    Publication& operator=(const Publication&) = delete;

    /// True if the model's parameters are contiguous and the peers map them.
    [[nodiscard]] bool from_model() const { return from_model_; }

    /// Call it before the optimizer runs. `gradient`: the array of the gradient, or null if the
    /// gradient is in the model's memory.
    void begin(T* gradient);

    /// Notes that the optimizer has updated `n` elements from `flat` on.
    void note(std::size_t flat, const T* parameters, std::size_t n) {
        if (array_ != nullptr) kernels_->copy(array_ + flat, parameters, n);
    }

    void start(Carrier& carrier, Part<const OwnedSlice> slices, std::vector<Operation>& operations);

    /// Call it when all operations are done.
    void finish(Part<const OwnedSlice> slices);

    [[nodiscard]] std::size_t bytes() const { return own_.size() * sizeof(T); }

private:
    const GroupCore* world_;
    const FlatModel<T>* flat_;
    const Kernels<T>* kernels_;
    bool from_model_;
    T* array_ = nullptr; ///< this update's array, in flat order
    Array<T> own_;
};

template <class T>
void Publication<T>::begin(T* gradient) {
    if (from_model_) return;
    if (gradient == nullptr && own_.empty()) own_ = kernels_->template allocate<T>(flat_->count());
    array_ = gradient != nullptr ? gradient : own_.data();
}

template <class T>
void Publication<T>::start(Carrier& carrier, Part<const OwnedSlice> slices, std::vector<Operation>& operations) {
    T* const model = flat_->contiguous() ? flat_->stretches().front().parameters : nullptr;
    kernels_->order();
    for (const OwnedSlice& owned : slices) {
        if (owned.owner == every_rank) continue;
        const bool own = owned.owner == world_->rank();
        T* const values = (own && array_ != nullptr) || model == nullptr ? array_ : model;
        const CallBuffer slice = kernels_->buffer(values + owned.slice.first, owned.slice.count);
        keep(operations, carrier.publish(slice, owned.owner));
    }
}

template <class T>
void Publication<T>::finish(Part<const OwnedSlice> slices) {
    if (kernels_->has_low_weights || !flat_->contiguous()) {
        for (const OwnedSlice& owned : slices) {
            if (owned.owner == every_rank || owned.owner == world_->rank()) continue;
            flat_->visit(owned.slice, [&](const Stretch<T>& to) {
                if (!flat_->contiguous()) kernels_->copy(to.parameters, array_ + to.flat, to.count);
                kernels_->follow(to.parameters, to.count);
            });
        }
    }
    array_ = nullptr;
}

} // namespace detail
UNISONO_NAMESPACE_END
