#pragma once

/// \file
/// Memory of rank 0 that all ranks of a group read and write by atomic accesses to its elements.

#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/process_mark.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `count` elements; one counter for all ranks together, and one for each rank, each in a cache
/// line of its own. All are zero at first. The memory lives as long as any rank in rank 0's process
/// uses it. If ranks of other processes use it, it also lives as long as rank 0's group, so that a
/// late rank never writes into memory that rank 0 has reused.
template <class World, class T>
class CommonMemory {
    static_assert(std::atomic_ref<T>::is_always_lock_free);

public:
    /// Collective.
    CommonMemory(World& world, std::size_t count) : world_(&world), count_(count) {
        struct Said {
            std::uint64_t values = 0, counters = 0, owner = 0;
            ProcessMark process = {};
        };
        std::array<Said, 1> said = {};
        if (world.rank() == 0) {
            owned_ = std::make_shared<Owned>();
            owned_->values = world.template allocate<T>(count);
            owned_->counters =
                world.template allocate<std::int64_t>(line * (static_cast<std::size_t>(world.size()) + 2));
            values_ = owned_->values.data();
            counters_ = owned_->counters.data();
            auto& kept = world.context().kept;
            std::erase_if(kept, [](const KeptMemory& one) {
                return std::atomic_ref(*one.users).load(std::memory_order_acquire) == 0;
            });
            kept.reserve(kept.size() + 1); // the destructor must not throw
            said[0].values = reinterpret_cast<std::uintptr_t>(values_);
            said[0].counters = reinterpret_cast<std::uintptr_t>(counters_);
            said[0].owner = reinterpret_cast<std::uintptr_t>(&owned_);
        }
        broadcast(world, said, 0);
        if (world.rank() != 0) attach(said[0].values, said[0].counters, said[0].owner, said[0].process);
        barrier(world); // rank 0 waits until all ranks have attached
    }
    CommonMemory(const CommonMemory&) = delete;
    CommonMemory& operator=(const CommonMemory&) = delete;
    ~CommonMemory() {
        if (!owned_) users().fetch_sub(1, std::memory_order_release);
        else if (world_->rank() == 0 && users().load(std::memory_order_acquire) != 0)
            world_->context().kept.push_back({owned_, counters_});
    }

    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] std::atomic_ref<T> operator[](std::size_t index) const { return std::atomic_ref<T>(values_[index]); }
    /// The counter of all ranks together.
    [[nodiscard]] std::atomic_ref<std::int64_t> counter() const { return counter_at(1); }
    [[nodiscard]] std::atomic_ref<std::int64_t> counter_of(int rank) const {
        return counter_at(2 + static_cast<std::size_t>(rank));
    }
    /// Bytes on the rank that holds the memory; 0 on the others.
    [[nodiscard]] std::size_t bytes() const { return world_->rank() == 0 ? count_ * sizeof(T) : 0; }

private:
    static constexpr std::size_t line = 128 / sizeof(std::int64_t);
    struct Owned {
        Memory<T> values;
        Memory<std::int64_t> counters;
    };

    [[nodiscard]] std::atomic_ref<std::int64_t> counter_at(std::size_t index) const {
        return std::atomic_ref<std::int64_t>(counters_[line * index]);
    }
    /// The number of ranks in other processes that may still access the memory.
    [[nodiscard]] std::atomic_ref<std::int64_t> users() const { return counter_at(0); }

    /// Rank 0 waits for this rank, unless a fault was reported. After a fault no rank begins to
    /// access rank 0's memory.
    void attach(std::uint64_t values, std::uint64_t counters, std::uint64_t owner, const ProcessMark& process) {
        world_->check();
        const auto entry = world_->enter();
        auto& transport = world_->endpoint();
        std::ptrdiff_t shift = 0;
        if (process == ProcessMark{}) {
            if constexpr (World::transport_type::maps_peers) {
                if (!transport.begin_touching()) return world_->check();
            }
            owned_ = *reinterpret_cast<const std::shared_ptr<Owned>*>(owner);
            if constexpr (World::transport_type::maps_peers) transport.end_touching();
        } else if constexpr (World::transport_type::maps_peers) {
            shift = world_->context().shifts[0];
        }
        const auto here = [&](std::uint64_t address) { return address + static_cast<std::uintptr_t>(shift); };
        values_ = reinterpret_cast<T*>(here(values));
        counters_ = reinterpret_cast<std::int64_t*>(here(counters));
        if (!owned_) users().fetch_add(1, std::memory_order_relaxed); // rank 0 sees the count after the barrier
    }

    World* world_;
    std::size_t count_;
    std::shared_ptr<Owned> owned_; ///< on rank 0 and on the ranks in its process; else null
    T* values_ = nullptr;
    std::int64_t* counters_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
