#pragma once

/// \file
/// No rank waits or sends messages: workers update common parameters in shared memory. First the
/// run: that memory of rank 0, how a rank updates the parameters in it, and how ranks synchronise.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/process_mark.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/extensions/updates/asynchronous_run.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/update/local.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory of rank 0 that all ranks of a group read and write by atomic accesses to its elements:
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

/// The optimizer makes its step in the model's memory, starting from the parameters that this rank
/// has read. The run adds the difference to the common parameters and reads them back into the
/// model. A world of one rank has no common parameters.
///
/// An update is counted, and gets its number, when this rank begins to add it. So the count
/// includes updates of which a reader may have read only a part.
template <class Training, class Policy>
class HogwildRun : public AsynchronousRun<LocalRun<Training>> {
    using Base = AsynchronousRun<LocalRun<Training>>;
    using World = typename Training::World;
    using T = typename Training::Element;

public:
    /// Sets all ranks to the same parameters. Collective.
    HogwildRun(Training& training, const Policy& policy) : Base(training), world_(&training.world()), policy_(policy) {
        if (world_->size() == 1) return;
        common_.emplace(*world_, training.flat().count());
        read_.resize(training.flat().count());
        write();
    }

    /// Throws if another rank has failed, which this rank would not notice otherwise. \throws error
    void before() { world_->check(); }
    /// Called when this rank's update has ended. Returns false, since no synchronisation is ever
    /// due.
    [[nodiscard]] bool after(Verdict verdict) {
        this->count_update();
        if (!common_) return false;
        if constexpr (has_virtual_time<typename Training::World::transport_type>) {
            world_->endpoint().reach_shared_memory();
            world_->check();
        }
        told_ = {.number = number()};
        if (verdict == Verdict::commit) {
            const auto before = static_cast<std::uint64_t>(common_->counter().fetch_add(1, std::memory_order_relaxed));
            told_ = {.number = before + 1, .staleness = before - version_};
            count_.applied(told_.staleness);
            add();
        } else {
            read();
        }
        version_ = told_.number;
        tick();
        return false;
    }
    template <class Report>
    void tell(Report& report) const {
        if (!common_) return;
        report.number = told_.number;
        report.staleness = told_.staleness;
        report.ahead = told_.ahead;
    }

    /// Waits for all ranks; then all read the same parameters. Collective.
    void synchronise() {
        static_cast<void>(this->begin_synchronisation());
        this->count_synchronisation();
        if (!common_) return;
        common_->counter_of(world_->rank()).store(none, std::memory_order_relaxed); // no rank is ahead of this one
        barrier(*world_);
        read();
        version_ = number();
        clock_ = 0;
        common_->counter_of(world_->rank()).store(0, std::memory_order_relaxed);
        count_.synchronise(
            0, [&](auto& sums) { all_reduce(*world_, sums, Few<Sum>{}); },
            [&](auto& most) { all_reduce(*world_, most, Few<Max>{}); }); // no rank continues before all have read
    }

    /// Takes the parameters, which are the same on all ranks, as the common ones. Collective.
    void restore(std::uint64_t synchronisations) {
        Base::restore(synchronisations);
        count_.forget();
        if (!common_) return;
        barrier(*world_); // no rank reads or adds after this
        version_ = number();
        clock_ = 0;
        common_->counter_of(world_->rank()).store(0, std::memory_order_relaxed);
        write();
    }

    [[nodiscard]] std::size_t bytes() const { return read_.size() * sizeof(T) + (common_ ? common_->bytes() : 0); }

private:
    static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

    struct Told {
        std::uint64_t number = 0, staleness = 0, ahead = 0;
    };

    [[nodiscard]] std::uint64_t number() const {
        return static_cast<std::uint64_t>(common_->counter().load(std::memory_order_relaxed));
    }

    /// Takes the parameters of rank 0, which all ranks hold, as the common ones.
    void write() {
        each([&](std::size_t i, T& parameter) {
            if (world_->rank() == 0) (*common_)[i].store(parameter, std::memory_order_relaxed);
            read_[i] = parameter;
        });
        barrier(*world_);
    }
    void read() {
        each(
            [&](std::size_t i, T& parameter) { read_[i] = parameter = (*common_)[i].load(std::memory_order_relaxed); });
    }
    /// Adds this rank's update. An element that no other rank has changed gets exactly the
    /// optimizer's result.
    void add() {
        if (policy_.loses_none) {
            each([&](std::size_t i, T& parameter) {
                const std::atomic_ref<T> common = (*common_)[i];
                const T was = read_[i];
                T next = parameter;
                T found = was;
                if (same(was, next)) next = common.load(std::memory_order_relaxed);
                else
                    while (!common.compare_exchange_strong(found, next, std::memory_order_relaxed))
                        next = found + (parameter - was);
                read_[i] = parameter = next;
            });
        } else {
            each([&](std::size_t i, T& parameter) {
                const std::atomic_ref<T> common = (*common_)[i];
                const T was = read_[i];
                const T found = common.load(std::memory_order_relaxed);
                T next = found;
                if (!same(was, parameter)) {
                    next = same(was, found) ? parameter : found + (parameter - was);
                    common.store(next, std::memory_order_relaxed);
                }
                read_[i] = parameter = next;
            });
        }
    }
    /// Compares bits: a NaN equals itself, and 0 differs from -0.
    static bool same(const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; }

    template <class Visit>
    void each(Visit visit) {
        const auto& flat = this->training().flat();
        flat.visit({0, flat.count()}, [&](const auto& one) {
            for (std::size_t i = 0; i < one.count; ++i) visit(one.flat + i, one.parameters[i]);
        });
    }

    void tick() {
        const std::int64_t clock = ++clock_;
        common_->counter_of(world_->rank()).store(clock, std::memory_order_relaxed);
        std::int64_t slowest = clock;
        for (int rank = 0; rank < world_->size(); ++rank)
            slowest = std::min(slowest, common_->counter_of(rank).load(std::memory_order_relaxed));
        told_.ahead = static_cast<std::uint64_t>(clock - slowest);
        count_.ahead(told_.ahead);
    }

    World* world_;
    Policy policy_;
    std::optional<CommonMemory<World, T>> common_; ///< empty if the world has one rank
    std::vector<T> read_;                          ///< the common parameters as this rank has read them
    std::uint64_t version_ = 0; ///< number of all ranks' updates that had begun when this rank began to read
    std::int64_t clock_ = 0;    ///< updates of this rank since the last synchronisation, including those left out
    Told told_;
    using Base::count_;
};

} // namespace detail

/// All ranks read and write one set of parameters in shared memory, without locks and in no fixed
/// order. A worker computes a gradient at the parameters that it has read, lets the optimizer make
/// its step from there, and adds the difference, element by element, to the common parameters. The
/// resulting sums are the parameters for its next gradient. So a reader may see half of another
/// worker's update. While each of W workers makes one update, the parameters get W updates, each as
/// large as that of a single worker: choose a learning rate and a momentum that tolerate a
/// staleness of about W - 1. Elements that the step did not change are only read, so sparse
/// gradients seldom collide.
///
/// Each worker has its own optimizer state, which sees the gradients of that worker alone. Terms
/// that depend on the parameters (weight decay) use the parameters that the worker has read. The
/// order of additions, and so the bits, depends on timing; over `Simulated`, on the seed alone.
/// With one rank the result has the bits of Synchronous.
///
/// Needs ranks that map each other's memory (InProcess, SharedMemory or Simulated). Bytes sent:
/// none between synchronisations. Memory: rank 0 holds the common parameters, and each rank a copy
/// of what it has read. No access is a data race in the sense of C++: each is a relaxed atomic
/// access to one element, which compilers do not vectorise.
/// Source: Niu et al. 2011 (Hogwild!), algorithm 1, whose addition to a component is atomic, as it
/// is here.
struct Hogwild {
    /// True: additions are atomic; false: faster, but one of two simultaneous additions may be
    /// lost.
    bool loses_none = true;

    static constexpr std::string_view name = "Hogwild";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    static constexpr bool shares_memory = true;
    friend bool operator==(const Hogwild&, const Hogwild&) = default;

    template <class Training>
    detail::HogwildRun<Training, Hogwild> start(Training& training) const {
        return detail::HogwildRun<Training, Hogwild>(training, *this);
    }
};
UNISONO_CERTIFY(update_policy<Hogwild>);

UNISONO_NAMESPACE_END
