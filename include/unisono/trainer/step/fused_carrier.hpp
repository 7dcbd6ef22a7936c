#pragma once

/// \file
/// The carrier of an update by owners over mapped memory, without operations for the data. Between
/// two synchronisations each owner reads the gradients of all ranks and writes the parameters of
/// all ranks, chunk by chunk. So a chunk is summed, updated and published while it is in the
/// first-level cache.

#include "unisono/arithmetic/kernels.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/list.hpp"
#include "unisono/trainer/step/carrier.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Positions and counts are in elements of the parameters' type.
class PeersMemory {
public:
    /// `adds`: the kernel that adds elements, of which each has `element_bytes`.
    PeersMemory(GroupCore& world, CombineKernel adds, std::size_t element_bytes)
        : world_(&world), sum_(adds), element_bytes_(element_bytes) {}

    /// Collective. `seen`: the peers map this rank's parameters, which are contiguous. The group
    /// keeps native schedules of all_reduce, all_gather and barrier.
    void agree(bool seen);
    [[nodiscard]] bool usable() const { return usable_; }

    /// Waits until the gradients of all ranks are complete. Both arrays are in flat order, in
    /// memory that the peers map. Collective.
    void open(void* gradients, void* parameters);

    /// Replaces elements of this rank's gradient by their sums over all ranks, in rank order.
    void sum(std::size_t first, std::size_t count);

    /// Writes elements of this rank's parameters to the parameters of all other ranks.
    void publish(std::size_t first, std::size_t count);

    /// Waits until no rank accesses this rank's memory any more, and all parameters have their
    /// owners' values. Collective.
    void close();

private:
    struct View {
        std::byte* gradients = nullptr;
        std::byte* parameters = nullptr;
    };

    [[nodiscard]] const View& mine() const { return views_[static_cast<std::size_t>(world_->rank())]; }
    template <class Body>
    void touch(std::size_t read, std::size_t written, Body&& body);

    GroupCore* world_;
    CombineKernel sum_;
    std::size_t element_bytes_;
    bool usable_ = false;
    List<View> views_; ///< the arrays of all ranks, at their addresses in this process
    List<std::int64_t> addresses_;
    List<const std::byte*> sources_;
};

template <class T>
class FusedCarrier final : public Carrier<T> {
public:
    FusedCarrier(GroupCore& world, const FlatModel<T>& flat)
        : flat_(&flat), peers_(world, &combine_kernel<Sum, T>, sizeof(T)) {}

    /// Collective. True if all ranks map each other's parameters: only then use it. `seen`: the
    /// peers map this rank's. The group keeps native schedules of all_reduce, all_gather and
    /// barrier.
    [[nodiscard]] bool agree(bool seen) {
        peers_.agree(seen);
        return peers_.usable();
    }

    void open(T* array) override {
        const Stretch<T>& model = flat_->stretches().front();
        peers_.open(array != nullptr ? array : model.gradients, model.parameters);
    }
    void take(const Stretch<T>& chunk) override { peers_.sum(chunk.flat, chunk.count); }
    void put(const Stretch<T>& chunk) override { peers_.publish(chunk.flat, chunk.count); }
    void publish() override { peers_.close(); }

private:
    const FlatModel<T>* flat_;
    PeersMemory peers_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/group/engine.hpp"

#include <array>
#include <cstring>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void PeersMemory::agree(bool seen) {
    std::array<std::int32_t, 1> all = {seen ? 1 : 0};
    all_reduce_native(*world_, all, Few<Min>{});
    usable_ = all[0] == 1;
    if (!usable_) return;
    views_.resize(static_cast<std::size_t>(world_->size()));
    addresses_.resize(2 * views_.size());
}

UNISONO_DEFINITION void PeersMemory::open(void* gradients, void* parameters) {
    const std::array<std::int64_t, 2> own = {reinterpret_cast<std::int64_t>(gradients),
                                             reinterpret_cast<std::int64_t>(parameters)};
    world_->run(native_call<Collective::all_gather, std::int64_t>(), buffer_of(own), buffer_of(addresses_));
    for (std::size_t rank = 0; rank < views_.size(); ++rank) {
        const std::ptrdiff_t shift = world_->context().shifts[rank];
        const auto at = [&](std::size_t i) {
            return reinterpret_cast<std::byte*>(addresses_[i] + shift); // NOLINT(performance-no-int-to-ptr)
        };
        views_[rank] = {at(2 * rank), at(2 * rank + 1)};
    }
}

/// Runs `body`, unless the world has ended. `read`, `written`: elements that `body` reads and
/// writes of each peer, for the count of traffic. \throws error the world's first fault
template <class Body>
void PeersMemory::touch(std::size_t read, std::size_t written, Body&& body) {
    {
        const auto entry = world_->enter();
        const Touching touching(world_->engine().endpoint());
        if (touching) {
            Traffic& traffic = world_->context().traffic;
            traffic.bytes_received += read * element_bytes_ * (views_.size() - 1);
            traffic.bytes_sent += written * element_bytes_ * (views_.size() - 1);
            return body();
        }
    }
    world_->check();
}

UNISONO_DEFINITION void PeersMemory::sum(std::size_t first, std::size_t count) {
    const std::size_t at = first * element_bytes_;
    sources_.clear();
    for (const View& one : views_) sources_.push_back(one.gradients + at);
    std::byte* const target = mine().gradients + at;
    touch(count, 0, [&] { sum_(nullptr, sources_.data(), sources_.size(), &target, 1, count); });
}

UNISONO_DEFINITION void PeersMemory::publish(std::size_t first, std::size_t count) {
    const std::size_t at = first * element_bytes_;
    const std::byte* const from = mine().parameters + at;
    touch(0, count, [&] {
        for (const View& one : views_)
            if (one.parameters + at != from) std::memcpy(one.parameters + at, from, count * element_bytes_);
    });
}

UNISONO_DEFINITION void PeersMemory::close() { world_->run(native_call<Collective::barrier, std::byte>(), {}, {}); }

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
