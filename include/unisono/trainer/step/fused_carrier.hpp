#pragma once

/// \file
/// The carrier of an update by owners over mapped memory, without operations for the data. Between
/// two synchronisations each owner reads the gradients of all ranks and writes the parameters of
/// all ranks, chunk by chunk. So a chunk is summed, updated and published while it is in the
/// first-level cache.

#include "unisono/arithmetic/kernels.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/list.hpp"
#include "unisono/trainer/step/carrier.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Runs `body`, which accesses peers' memory, unless the world has ended. `read`, `written`: the
/// bytes that it reads and writes there, for the count of traffic. \throws error the world's first
/// fault
void touch_peers(GroupCore& world, std::size_t read, std::size_t written, FunctionRef<void()> body);

/// The group keeps native schedules of all_reduce, all_gather and barrier. The model's memory is
/// contiguous.
template <class T>
class FusedCarrier final : public Carrier<T> {
public:
    FusedCarrier(GroupCore& world, const FlatModel<T>& flat)
        : world_(&world), flat_(&flat), views_(static_cast<std::size_t>(world.size())), addresses_(2 * views_.size()),
          sources_(views_.size()) {}

    /// True if all ranks map each other's parameters: only then use this carrier. `seen`: the peers
    /// map this rank's. Collective.
    [[nodiscard]] static bool agree(GroupCore& world, bool seen) {
        std::array<std::int32_t, 1> all = {seen ? 1 : 0};
        all_reduce_native(world, all, Few<Min>{});
        return all[0] == 1;
    }

    /// Waits until the gradients of all ranks are complete. Collective.
    void open(T* array) override {
        const Stretch<T>& model = flat_->stretches().front();
        const std::array<std::int64_t, 2> own = {
            reinterpret_cast<std::int64_t>(array != nullptr ? array : model.gradients),
            reinterpret_cast<std::int64_t>(model.parameters)};
        world_->run(native_call<Collective::all_gather, std::int64_t>(), buffer_of(own), buffer_of(addresses_));
        for (std::size_t rank = 0; rank < views_.size(); ++rank) {
            const std::ptrdiff_t shift = world_->context().shifts[rank];
            const auto at = [&](std::size_t i) {
                return reinterpret_cast<T*>(addresses_[i] + shift); // NOLINT(performance-no-int-to-ptr)
            };
            views_[rank] = {at(2 * rank), at(2 * rank + 1)};
        }
    }
    /// Replaces this rank's gradients by their sums over all ranks, in rank order.
    void take(const Stretch<T>& chunk) override {
        for (std::size_t rank = 0; rank < views_.size(); ++rank)
            sources_[rank] = reinterpret_cast<const std::byte*>(views_[rank].gradients + chunk.flat);
        auto* const target = reinterpret_cast<std::byte*>(chunk.gradients);
        touch_peers(*world_, peers_bytes(chunk), 0, [&] {
            combine_kernel<Sum, T>(nullptr, sources_.data(), sources_.size(), &target, 1, chunk.count);
        });
    }
    /// Writes this rank's parameters to those of all other ranks.
    void put(const Stretch<T>& chunk) override {
        touch_peers(*world_, 0, peers_bytes(chunk), [&] {
            for (const View& one : views_)
                if (T* const to = one.parameters + chunk.flat; to != chunk.parameters)
                    std::memcpy(to, chunk.parameters, chunk.count * sizeof(T));
        });
    }
    /// Waits until no rank accesses this rank's memory any more, and all parameters have their
    /// owners' values. Collective.
    void publish() override { world_->run(native_call<Collective::barrier, std::byte>(), {}, {}); }

private:
    /// The arrays of a rank in flat order, at their addresses in this process.
    struct View {
        T* gradients = nullptr;
        T* parameters = nullptr;
    };

    [[nodiscard]] std::size_t peers_bytes(const Stretch<T>& chunk) const {
        return chunk.count * sizeof(T) * (views_.size() - 1);
    }

    GroupCore* world_;
    const FlatModel<T>* flat_;
    List<View> views_;
    List<std::int64_t> addresses_;
    List<const std::byte*> sources_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/group/engine.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void touch_peers(GroupCore& world, std::size_t read, std::size_t written, FunctionRef<void()> body) {
    {
        const auto entry = world.enter();
        const Touching touching(world.engine().endpoint());
        if (touching) {
            world.context().traffic.bytes_received += read;
            world.context().traffic.bytes_sent += written;
            return body();
        }
    }
    world.check();
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
