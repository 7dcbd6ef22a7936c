#pragma once

/// \file
/// An update by owners over mapped memory, without operations for the data. Between two
/// synchronisations each owner reads the gradients of all ranks and writes the parameters of all
/// ranks, chunk by chunk. So a chunk is summed, updated and published while it is in the
/// first-level cache.

#include "unisono/arithmetic/kernels.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/core/list.hpp"
#include "unisono/transport/endpoint.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class World, class T>
class PeersMemory {
public:
    explicit PeersMemory(World& world) : world_(&world) {}

    /// Collective. `seen`: the peers map this rank's parameters, which are contiguous.
    void agree(bool seen) {
        std::array<std::int32_t, 1> all = {seen ? 1 : 0};
        all_reduce(*world_, all, Few<Min>{});
        usable_ = all[0] == 1;
        if (!usable_) return;
        views_.resize(static_cast<std::size_t>(world_->size()));
        addresses_.resize(2 * views_.size());
    }
    [[nodiscard]] bool usable() const { return usable_; }

    /// Waits until the gradients of all ranks are complete. Both arrays are in flat order, in
    /// memory that the peers map. Collective.
    void open(T* gradients, T* parameters) {
        const std::array<std::int64_t, 2> own = {reinterpret_cast<std::int64_t>(gradients),
                                                 reinterpret_cast<std::int64_t>(parameters)};
        all_gather(*world_, own, std::span<std::int64_t>(addresses_));
        for (std::size_t rank = 0; rank < views_.size(); ++rank) {
            const std::ptrdiff_t shift = world_->context().shifts[rank];
            views_[rank] = {reinterpret_cast<T*>(addresses_[2 * rank] + shift),
                            reinterpret_cast<T*>(addresses_[2 * rank + 1] + shift)};
        }
    }

    /// Replaces elements of this rank's gradient by their sums over all ranks, in rank order.
    void sum(std::size_t first, std::size_t count) {
        sources_.clear();
        for (const View& one : views_) sources_.push_back(reinterpret_cast<const std::byte*>(one.gradients + first));
        std::byte* const target = reinterpret_cast<std::byte*>(views_[me()].gradients + first);
        touch(count, 0, [&] { combine_kernel<Sum, T>(nullptr, sources_.data(), sources_.size(), &target, 1, count); });
    }

    /// Writes elements of this rank's parameters to the parameters of all other ranks.
    void publish(std::size_t first, std::size_t count) {
        const T* const from = views_[me()].parameters + first;
        touch(0, count, [&] {
            for (const View& one : views_)
                if (one.parameters + first != from) std::memcpy(one.parameters + first, from, count * sizeof(T));
        });
    }

    /// Waits until no rank accesses this rank's memory any more, and all parameters have their
    /// owners' values. Collective.
    void close() { barrier(*world_); }

private:
    struct View {
        T* gradients = nullptr;
        T* parameters = nullptr;
    };

    [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(world_->rank()); }

    /// Runs `body`, unless the world has ended. `read`, `written`: elements that `body` reads and
    /// writes of each peer, for the count of traffic. \throws error the world's first fault
    template <class Body>
    void touch(std::size_t read, std::size_t written, Body&& body) {
        {
            const auto entry = world_->enter();
            const Touching touching(world_->endpoint());
            if (touching) {
                Traffic& traffic = world_->context().traffic;
                traffic.bytes_received += read * sizeof(T) * (views_.size() - 1);
                traffic.bytes_sent += written * sizeof(T) * (views_.size() - 1);
                return body();
            }
        }
        world_->check();
    }

    World* world_;
    bool usable_ = false;
    List<View> views_; ///< the arrays of all ranks, at their addresses in this process
    List<std::int64_t> addresses_;
    List<const std::byte*> sources_;
};

} // namespace detail
UNISONO_NAMESPACE_END
