#pragma once

/// \file
/// How ranks that have gone their own ways come together again (update/local.hpp).

#include "unisono/arithmetic/scale.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/modes/neighbours.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/update/update.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct Difference {
    UNISONO_INLINE void operator()(T& y, const T& from, const T& x) const { y = from - x; }
};
template <class T>
struct Subtract {
    UNISONO_INLINE void operator()(T& y, const T& x) const { y -= x; }
};

UNISONO_NO_CONTRACTION_END

/// For updates that are not local: nothing. `Place`: the trainer's, in whose memory all is.
template <class World, class T, class Policy, class Compression, class Place>
class Meeting {
public:
    template <class Flat>
    Meeting(World&, const Flat&, const Place&, const Policy&) {}
    static constexpr bool alone(std::uint64_t) { return false; }
    static constexpr void depart() {}
    template <class Run>
    static constexpr bool due(Verdict, Run&) {
        return false;
    }
    static constexpr std::size_t bytes() { return 0; }
};

/// Sums over an image of the parameters in the group's memory, bucket by bucket, so that a bucket travels while the next is copied.
/// Compressed are the differences to the parameters that the ranks had in common, whose leftovers the next meeting brings.
template <class World, class T, class Policy, class Compression, class Place>
    requires(local_update<Policy> && !in_common<Policy>)
class Meeting<World, T, Policy, Compression, Place> {
    using State = typename Place::template State<T>;

public:
    Meeting(World& world, const FlatModel<T>& flat, const Place& place, const Policy& policy)
        : world_(&world), flat_(&flat), place_(&place), policy_(policy) {
        policy_.check();
        if constexpr (gossip) neighbours_.emplace(world, flat);
        if constexpr (streams) synchronised_.resize(policy_.fragments);
    }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    /// A fragment under way ends here, if all is well: its sum is waited for, at most the group's timeout, and forgotten. After a
    /// fault there is nothing to wait for, and the world's next call tells of it. While an exception passes that came up since the
    /// trainer was made, the other ranks need not have gone as far: it is dropped, which aborts the world.
    ~Meeting() {
        if constexpr (streams) {
            if (std::uncaught_exceptions() <= exceptions_) {
                try {
                    sum_.wait();
                } catch (...) { // the world has the fault: every rank's next call throws it
                }
            }
        }
        place_->settle(); // before the images go
    }

    /// Whether the update after so many is this rank's own.
    [[nodiscard]] bool alone(std::uint64_t updates) const { return policy_.alone(updates); }
    /// Such an update begins: all ranks hold the same parameters if it is the first since they met.
    void depart() {
        if constexpr (has_common) {
            if (own_ != 0 || !common_.empty()) return;
            common_ = place_->template allocate_own<T>(flat_->count());
            flat_->visit({0, flat_->count()},
                         [&](const Stretch<T>& one) { copy(common_.data() + one.flat, one.parameters, one.count); });
        }
        if constexpr (has_outer) static_cast<void>(outer());
    }
    /// It has ended. True if it is time to meet.
    template <class Run>
    [[nodiscard]] bool due(Verdict, [[maybe_unused]] Run& run) {
        ++own_;
        if constexpr (streams) stream(run);
        if constexpr (gossip) {
            if (policy_.gossips_after(own_)) neighbours_->average(policy_, own_ / policy_.steps - 1);
        }
        return policy_.meets_after(own_);
    }

    /// All ranks' parameters become equal. Nothing to do if no rank has made an update of its own since the last time.
    /// `wire`: a compression's run, by which differences travel; it has carried the gradients of a warm-up before, maybe.
    template <class Run, class Wire>
    void meet(Run& run, Wire& wire, std::vector<Operation>& operations) {
        if (own_ == 0) return;
        own_ = 0;
        if constexpr (streams) land();
        if (!has_outer && world_->size() == 1) return;
        if (image_.empty()) image_ = place_->template allocate<T>(flat_->count());
        if constexpr (compresses) {
            if (met_ == 0) wire.forget(); // what is left over of gradients
        }
        for (std::size_t b = 0; b < flat_->layout().buckets().size(); ++b) {
            const Slice& bucket = flat_->bucket(b);
            flat_->visit(bucket, [&](const Stretch<T>& one) { set_out(one); });
            T* const values = image_.data() + bucket.first;
            if (world_->size() == 1) continue;
            if constexpr (compresses) {
                wire.begin(b, values, run);
            } else {
                place_->order();
                operations.push_back(run.sum(*world_, place_->view(values, bucket.count)));
            }
        }
        if constexpr (compresses) wire.finish();
        for (Operation& operation : operations) operation.wait();
        operations.clear();
        ++met_;
        if constexpr (streams) std::fill(synchronised_.begin(), synchronised_.end(), met_);
        flat_->visit({0, flat_->count()}, [&](const Stretch<T>& one) { arrive(one); });
    }

    // --- the run's state, for checkpoints; between two meetings it is each rank's own --------------------------------

    /// Updates of this rank alone since the ranks last met.
    [[nodiscard]] std::uint64_t own() const { return own_; }
    /// How often they met.
    [[nodiscard]] std::uint64_t met() const { return met_; }
    /// The outer optimizer's state, the same on all ranks; without arrays where there is none.
    [[nodiscard]] State& outer() {
        if constexpr (has_outer)
            if (state_.count() == 0) state_ = place_->template state<T>(policy_.outer.state(), flat_->count());
        return state_;
    }
    /// The ranks have just met for the so-manieth time, and hold the parameters of now. The outer state is the caller's to write.
    void restore(std::uint64_t met) {
        own_ = 0;
        met_ = met;
        if constexpr (streams) {
            sum_.wait(); // of a fragment under way, which is of no use any more
            under_way_ = {};
            std::fill(synchronised_.begin(), synchronised_.end(), met_);
        }
        place_->settle();
        common_ = typename Place::template OwnArray<T>();
    }

    /// Of images of the parameters, made when they are first needed, and of the outer optimizer's state.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t others = 0;
        if constexpr (gossip) others = neighbours_->bytes();
        return (image_.size() + common_.size()) * sizeof(T) + state_.bytes() + others;
    }

private:
    static constexpr bool gossip = gossips<Policy>;
    static constexpr bool streams = streams_fragments<Policy>;
    struct Nobody {};
    using Around = std::conditional_t<gossip, std::optional<Neighbours<World, T>>, Nobody>;
    static constexpr bool compresses = Compression::compresses;
    static constexpr bool has_common = compresses || requires(const Policy& policy) { policy.outer.state(); };
    static constexpr bool has_outer = requires(const Policy& policy) { policy.outer.state(); };

    // --- fragments, one at a time (update/streaming_diloco.hpp) -----------------------------------------------------

    template <class Run>
    void stream(Run& run) {
        if (under_way_.count != 0) {
            if (own_ == arrives_) land();
            else world_->progress();
        }
        if (!policy_.sets_out_after(own_)) return;
        fragment_ = policy_.fragment_after(own_);
        const std::size_t parts = policy_.fragments;
        const std::size_t begin = flat_->count() * fragment_ / parts;
        under_way_ = {begin, flat_->count() * (fragment_ + 1) / parts - begin};
        if (under_way_.count == 0) return; // fewer elements than fragments
        if (image_.empty()) image_ = place_->template allocate<T>(flat_->count());
        flat_->visit(under_way_, [&](const Stretch<T>& one) { set_out(one); });
        place_->order();
        if (world_->size() > 1) sum_ = run.sum(*world_, place_->view(image_.data() + begin, under_way_.count));
        arrives_ = own_ + policy_.overlap;
        if (policy_.overlap == 0) land();
    }
    /// What is under way arrives, if anything is.
    void land() {
        if (under_way_.count == 0) return;
        if (world_->size() > 1) sum_.wait();
        const std::uint64_t number = ++synchronised_[fragment_];
        met_ = std::max(met_, number); // a meeting is the next one for all fragments
        flat_->visit(under_way_, [&](const Stretch<T>& one) {
            step_outside(one, number);
            const std::span<const T> common(common_.data() + one.flat, one.count);
            using W = accumulator_t<T>;
            if (policy_.mix == 0) copy(one.parameters, common.data(), one.count);
            else
                place_->arithmetic().apply(Mix<T>{static_cast<W>(policy_.mix), static_cast<W>(1 - policy_.mix)},
                                           std::span<T>(one.parameters, one.count), common);
            place_->follow(one.parameters, one.count);
        });
        under_way_ = {};
    }

    /// What this rank says: its parameters, or how far it has come, the other way round.
    void set_out(const Stretch<T>& one) {
        T* const image = image_.data() + one.flat;
        if constexpr (has_common) {
            place_->arithmetic().apply(Difference<T>{}, std::span<T>(image, one.count),
                                       std::span<const T>(common_.data() + one.flat, one.count),
                                       std::span<const T>(one.parameters, one.count));
        } else {
            copy(image, one.parameters, one.count);
        }
    }
    void arrive(const Stretch<T>& one) {
        const auto& on = place_->arithmetic();
        const std::span<T> image(image_.data() + one.flat, one.count);
        if constexpr (has_outer) step_outside(one, met_);
        else on.divide(image, world_->size());
        if constexpr (has_common && !has_outer)
            on.apply(Subtract<T>{}, std::span<T>(common_.data() + one.flat, one.count), std::span<const T>(image));
        if constexpr (has_common) copy(one.parameters, common_.data() + one.flat, one.count);
        else copy(one.parameters, image.data(), one.count);
        place_->follow(one.parameters, one.count);
    }
    /// The outer optimizer's step of what the ranks have in common, by how far they have come.
    void step_outside(const Stretch<T>& one, std::uint64_t number) {
        place_->update_other(policy_.outer, state_.slice(one.flat, one.count), common_.data() + one.flat,
                             image_.data() + one.flat,
                             OptimizerStep{policy_.outer.learning_rate, number, 1.0 / world_->size()});
    }
    void copy(T* to, const T* from, std::size_t count) const {
        place_->arithmetic().copy(std::span<T>(to, count), std::span<const T>(from, count));
    }

    World* world_;
    const FlatModel<T>* flat_;
    const Place* place_;
    Policy policy_;
    typename Place::template Array<T> image_;
    typename Place::template OwnArray<T>
        common_;  ///< with an outer optimizer or a compression: what they held when they last met
    State state_; ///< the outer optimizer's
    [[no_unique_address]] Around neighbours_;
    std::vector<std::uint64_t> synchronised_; ///< how often, of each fragment
    Slice under_way_ = {};                    ///< the fragment that is; of no elements: none
    std::size_t fragment_ = 0;                ///< its number
    std::uint64_t arrives_ = 0;               ///< after so many updates
    Operation sum_;
    int exceptions_ = std::uncaught_exceptions(); ///< when the trainer was made
    std::uint64_t own_ = 0;                       ///< updates of this rank alone since then
    std::uint64_t met_ = 0;                       ///< how often
};

} // namespace detail
UNISONO_NAMESPACE_END
