#pragma once

/// \file
/// The run of Hogwild: how a rank updates the common parameters, and how ranks synchronise.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/extensions/updates/asynchronous_run.hpp"
#include "unisono/extensions/updates/common_memory.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/update/local.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
UNISONO_NAMESPACE_END
