#pragma once

/// \file
/// The store of a model whose memory is whole on every rank. The gradient travels in buckets, each
/// as soon as the backward pass has filled it. The sums go to all ranks, or to the owners of
/// slices, which update their parameters and publish them.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/bucket_facts.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/reducer/reducer.hpp"
#include "unisono/trainer/exchange/base.hpp"
#include "unisono/trainer/exchange/bucket_sums.hpp"
#include "unisono/trainer/exchange/gradient_sum.hpp"
#include "unisono/trainer/exchange/left_over.hpp"
#include "unisono/trainer/exchange/owned_slices.hpp"
#include "unisono/trainer/exchange/peers_memory.hpp"
#include "unisono/trainer/exchange/publication.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/parameter_matrices.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Starts a compression for gradients in the trainer's memory. For memory of a device,
/// `start_device_wire(type, place, ...)` is found by argument-dependent lookup.
template <class T, class Place, class C, class World>
[[nodiscard]] auto start_wire([[maybe_unused]] const Place& place, const C& policy, World& world,
                              const List<Slice>& buckets, const List<ParameterMatrix>& parameters) {
    if constexpr (std::same_as<C, NoCompression>) return NoCompression::Run{};
    else if constexpr (!Place::on_device || !C::compresses)
        return start_compression<T>(policy, world, buckets, parameters);
    else return start_device_wire(std::type_identity<T>(), place, policy, world, buckets, parameters);
}

/// Tracks which buckets are complete while the backward pass reports gradients as ready.
class Readiness {
public:
    explicit Readiness(const Layout& layout) : layout_(&layout) {
        waiting_.resize(layout.buckets().size());
        ready_in_.resize(layout.parameters());
    }

    /// Starts a pass: no gradient is ready yet.
    void expect();
    /// Returns the parameter's bucket; Layout::none for one without elements. \throws error
    /// bad_input: no such parameter, or twice
    std::size_t note(std::size_t parameter);
    [[nodiscard]] bool complete(std::size_t bucket) const { return waiting_[bucket] == 0; }

private:
    const Layout* layout_;
    List<std::size_t> waiting_;    ///< parameters of each bucket that are not ready yet
    List<std::uint64_t> ready_in_; ///< the pass in which each parameter was last reported as ready
    std::uint64_t pass_ = 0;
};

/// `ContextType::owned`: slices may have owners.
template <class ContextType>
class WholeStore : public ExchangeBase<ContextType> {
    using Base = ExchangeBase<ContextType>;

public:
    using typename Base::Context;
    using typename Base::Place;
    using typename Base::ReducerRun;
    using typename Base::T;
    using typename Base::World;

    [[nodiscard]] const FlatModel<T>& flat() const { return flat_; }
    [[nodiscard]] const OwnedSlices& owned_slices() const { return owned_slices_; }
    /// Starts to sum elements over all ranks. Their memory comes from `place().allocate`.
    [[nodiscard]] Operation start_sum(T* values, std::size_t count) {
        place_.order();
        return run_.sum(*world_, place_.view(values, count));
    }
    [[nodiscard]] auto& wire() { return wire_; }
    /// Drops what earlier updates have left over, because another training continues here.
    void restart() {
        if constexpr (Base::compresses) {
            restart_compression(wire_);
            left_over_.forget();
        }
    }
    [[nodiscard]] auto& gradients() { return gradient_; }
    [[nodiscard]] auto& sums_of_gradients() { return gradient_.sums(); }
    [[nodiscard]] const auto& sums_of_gradients() const { return gradient_.sums(); }
    /// Bytes beside the model's own and the optimizer's: arrays of gradients and parameters.
    [[nodiscard]] std::size_t memory_bytes() const { return gradient_.bytes() + publication_.bytes() + wire_.bytes(); }

    /// For sums on a grid: all ranks know that each of them hosts at most one micro-batch of this
    /// update.
    void expect_one() {
        if constexpr (straight)
            gradient_.expect_one(policies_.weighing.share({.samples = 1, .tokens = 0, .kind = kind_}).multiplier);
    }

    // --- the part of an update that moves numbers ---

    /// Starts to sum the buckets that the backward pass has not started yet, in bucket order; does
    /// not wait.
    void start() {
        for (; next_bucket_ < bucket_count(); ++next_bucket_) start_bucket(next_bucket_);
    }
    /// True if buckets of this update are in flight.
    [[nodiscard]] bool has_started() const { return next_bucket_ != 0; }
    /// Waits until the sums have arrived at their owners.
    void finish() {
        for (Operation& operation : operations_) operation.wait();
        operations_.clear();
        if constexpr (Base::compresses) finish_wire();
    }

protected:
    using Base::alone_, Base::place_, Base::policies_, Base::run_, Base::world_;

    template <class Model>
    [[gnu::cold]] WholeStore(World& world, Model& model, const Context& policies, const Buckets& buckets)
        : Base(world, model, policies), flat_(model, buckets), gradient_(world, flat_, place_, policies_.summation),
          kind_(gradient_kind_of<Model>), publication_(world, flat_, place_),
          wire_(start_wire<T>(place_, policies_.compression, world, flat_.buckets(),
                              parameter_matrices(model, flat_.layout()))),
          owned_slices_(world.rank(), world.size()), peers_(world), readiness_(flat_.layout()) {
        for (std::size_t b = 0; b < bucket_count(); ++b) {
            const Slice bucket = flat_.bucket(b);
            const BucketFacts facts{b, bucket.count, sizeof(T), world.size()};
            if constexpr (Context::Reducer::gives_owners) owned_slices_.add(bucket, policies_.reducer.owners(facts));
            else owned_slices_.add(bucket, policies_.sharding.owners(facts));
        }
        owned_slices_.close();
        reserve(operations_, owned_slices_.all().size());
        if constexpr (may_touch_peers)
            if (world.size() > 1 && owned_slices_.all_cut()) peers_.agree(publication_.from_model());
    }
    [[gnu::cold]] ~WholeStore() = default;

    void begin_update() {
        next_bucket_ = 0;
        hosted_ = 0;
        prepared_ = false;
        gradient_.begin(alone_);
    }

    // --- one micro-batch ---

    void before_pass(bool) { gradient_.before_pass(); }
    template <class>
    Pass make_pass(const PassFacts& facts, bool last) {
        const bool overlap = last && !alone_;
        ++hosted_;
        if (overlap) readiness_.expect();
        return Pass(facts, overlap ? &WholeStore::on_ready : nullptr, this);
    }
    static constexpr void after_pass() {}
    /// The model's memory holds the gradient of a micro-batch with weight `multiplier`.
    void keep(double multiplier, bool last) {
        check_tokens(multiplier);
        if (!gradient_.held()) gradient_.hold(multiplier);
        if (last) return;
        gradient_.drop_weightless({0, flat_.count()});
        if constexpr (inspects_parts)
            flat_.visit({0, flat_.count()}, [&](const Stretch<T>& one) { inspect_part(one); });
        gradient_.drain();
    }

    // --- the update ---

    [[nodiscard]] double left_over() const { return gradient_.left_over(); }
    /// Calls visit(parameter, flat, values, n) for the sum of the gradients: for each element on
    /// one rank if slices have owners, else on all ranks. It also converts sums on a grid to
    /// numbers, and sums gradients in peers' memory, so that later passes read each element only
    /// once more.
    template <class Visit>
    void each_gradient(Visit&& visit) {
        const bool touches = open_peers();
        for (const OwnedSlice& owned : owned_slices_.all()) {
            if (!owned_slices_.is_mine(owned)) continue;
            const bool counts = owned_slices_.counts_here(owned);
            flat_.visit_by_parameter(owned.slice, [&](std::size_t p, const Stretch<T>& one) {
                T* const gradients = gradient_.at(one);
                for (std::size_t at = 0, n = 0; at < one.count; at += n) {
                    n = std::min(Place::template chunk<T>, one.count - at);
                    prepare(one.flat + at, gradients + at, n, touches);
                    if (counts) visit(p, one.flat + at, gradients + at, n);
                }
            });
        }
        prepared_ = true;
    }
    /// An upper bound of the number of calls of `visit` on a device.
    [[nodiscard]] std::size_t most_gradients() const {
        return flat_.layout().parameters() + owned_slices_.all().size();
    }

    /// Calls visit(state, n, parameters, gradients) for the elements that this rank updates.
    /// `state`: index among owned elements. Works in chunks that stay in the first-level cache
    /// until they are published and their gradients are zeroed.
    template <class Visit>
    void each_owned(Visit&& visit) {
        const bool in_place = gradient_.in_place();
        const bool touches = open_peers();
        if constexpr (Context::owned) {
            if (owned_slices_.cut() && !touches) publication_.begin(gradient_.numbers_in_use());
        }
        const bool zero_all = in_place && owned_slices_.cut(); // other ranks' slices hold values that are not used
        std::size_t state = 0;
        for (const Slice& slice : owned_slices_.owned()) {
            flat_.visit(slice, [&](const Stretch<T>& stretch) {
                T* const gradients = gradient_.at(stretch);
                Place::in_chunks(stretch.parameters, stretch.count, [&](std::size_t at, std::size_t n) {
                    prepare(stretch.flat + at, gradients + at, n, touches);
                    visit(state + at, n, stretch.parameters + at, gradients + at);
                    if constexpr (may_touch_peers)
                        if (touches) peers_.publish(stretch.flat + at, n);
                    if constexpr (Context::owned) publication_.note(stretch.flat + at, stretch.parameters + at, n);
                    if (in_place && !zero_all) place_.arithmetic().zero(std::span<T>(gradients + at, n));
                });
                state += stretch.count;
            });
        }
        if (touches) return; // other ranks may still read the gradients
        if (zero_all) flat_.zero_gradients(place_.arithmetic());
        gradient_.clean();
    }
    void publish_owned() {
        if constexpr (Context::owned) {
            if (!owned_slices_.cut()) return;
            if (touches_peers()) {
                peers_.close();
                if (gradient_.in_place()) flat_.zero_gradients(place_.arithmetic());
                return gradient_.clean();
            }
            publication_.start(*world_, run_, owned_slices_.all(), operations_);
            finish();
            publication_.finish(owned_slices_.all());
        }
    }
    void forget() {
        gradient_.soil();
        if constexpr (Base::compresses) {
            if (next_bucket_ == 0 || alone_) return;
            wire_.forget();
            left_over_.forget();
        }
    }

private:
    /// Converts this update's sums to numbers where the optimizer reads them, unless that was done
    /// before.
    void prepare(std::size_t flat, T* gradients, std::size_t n, [[maybe_unused]] bool touches) {
        if (prepared_) return;
        gradient_.prepare(flat, gradients, n);
        if constexpr (may_touch_peers)
            if (touches) peers_.sum(flat, n);
    }
    /// True if this update reads the peers' gradients and writes their parameters. Opens their
    /// memory then.
    [[nodiscard]] bool open_peers() {
        if (!touches_peers()) return false;
        if constexpr (may_touch_peers) {
            const Stretch<T>& model = flat_.stretches().front();
            if (!prepared_)
                peers_.open(gradient_.in_place() ? model.gradients : gradient_.numbers_in_use(), model.parameters);
        }
        return true;
    }

    // Overlap with the backward pass: a bucket starts when all its parameters are ready and all
    // earlier buckets have started.

    static void on_ready(void* self, std::size_t parameter) { static_cast<WholeStore*>(self)->ready(parameter); }

    void ready(std::size_t parameter) {
        if (parameter != Pass::no_parameter) note_ready(parameter);
        if (next_bucket_ != 0) world_->progress(); // operations in flight need this rank to forward and add
    }

    void note_ready(std::size_t parameter) {
        const std::size_t bucket = readiness_.note(parameter);
        if (next_bucket_ != bucket || !readiness_.complete(bucket)) return;
        if (!gradient_.held()) gradient_.hold(this->weigh().multiplier);
        while (next_bucket_ < bucket_count() && readiness_.complete(next_bucket_)) start_bucket(next_bucket_++);
    }

    /// Refuses tokens that the model counts after a `ready`, because its gradient may have
    /// travelled with another weight by then. The call is refused on any number of ranks, whether
    /// the gradient has travelled or not.
    void check_tokens(double multiplier) {
        const std::size_t first = this->pass_->first_ready();
        if (first == Pass::no_parameter || this->pass_->tokens_when_ready() == this->micro_->tokens) return;
        MicroBatchFacts then = *this->micro_;
        then.tokens = this->pass_->tokens_when_ready();
        if (checked_share(policies_.weighing, then).multiplier != multiplier)
            refuse_input({"parameter ", first,
                          ": tokens were counted after the first gradient was complete; expected all before it"});
    }

    /// Prepares a bucket's gradient to travel, lets the guard look at it, and starts to sum it.
    void start_bucket(std::size_t b) {
        const Slice bucket = flat_.bucket(b);
        gradient_.drop_weightless(bucket);
        if constexpr (inspects_parts) {
            if (gradient_.held()) flat_.visit(bucket, [&](const Stretch<T>& one) { inspect_part(one); });
        }
        T* const values = gradient_.settle(bucket, b + 1 == bucket_count());
        if constexpr (Base::inspects && !Base::on_grid) {
            if (values != nullptr) inspect_part({bucket.first, bucket.count, nullptr, values + bucket.first});
            else flat_.visit(bucket, [&](const Stretch<T>& one) { inspect_part(one); });
        }
        if (alone_ || touches_peers()) return;
        if constexpr (Base::compresses) {
            if (b == 0) rescale_left_over();
            if constexpr (Context::owned) {
                BucketReduction<true, ReducerRun> to_owners{run_, owned_slices_, b, bucket.first, operations_};
                wire_.begin(b, values + bucket.first, to_owners);
            } else {
                wire_.begin(b, values + bucket.first, run_);
            }
        } else if constexpr (!Base::on_grid) {
            start_sums(b, values);
        } else if (values == nullptr) {
            start_sums(b, gradient_.array());
        } else if constexpr (straight) {
            for (const OwnedSlice& owned : owned_slices_.of_bucket(b))
                detail::keep(operations_, gradient_.sum_straight(*world_, values, owned.slice, owned.owner));
        }
    }

    /// Multiplies what the compression has left over by the factor for this update's gradients.
    void rescale_left_over() {
        const double factor = left_over_.expect(hosted_, this->scaled_by_);
        if constexpr (requires { wire_.rescale(factor); })
            if (factor != 1) wire_.rescale(factor);
    }
    void finish_wire() {
        if (this->divisor_ > 0) {
            const double factor = left_over_.settle(this->divisor_);
            if constexpr (requires { wire_.correct(factor); })
                if (factor != 1) wire_.correct(factor);
        }
        wire_.finish();
    }

    template <class E> // numbers, or integers on a grid
    void start_sums(std::size_t b, E* values) {
        place_.order();
        const Slice bucket = flat_.bucket(b);
        start_bucket_sums<Context::owned>(run_, *world_, owned_slices_, b, bucket.first,
                                          place_.view(values + bucket.first, bucket.count), operations_);
    }

    void inspect_part(const Stretch<T>& stretch) {
        this->inspect(stretch.gradients, stretch.count, stretch.flat, [&](std::size_t found) {
            this->note_offender(flat_.layout().element_at(stretch.flat + found).parameter);
        });
    }

    using Wire = decltype(start_wire<T>(
        std::declval<const Place&>(), std::declval<const typename Context::Compression&>(), std::declval<World&>(),
        std::declval<const List<Slice>&>(), std::declval<const List<ParameterMatrix>&>()));
    [[nodiscard]] std::size_t bucket_count() const { return flat_.layout().buckets().size(); }

    /// True if sums on a grid may read the ranks' numbers directly: the reducer combines those of
    /// all ranks at once.
    static constexpr bool straight = Base::on_grid && World::transport_type::maps_peers && !Place::on_device &&
                                     !Context::Weighing::needs_samples && !Context::Weighing::needs_tokens &&
                                     requires { requires ReducerRun::combines_at_once; };
    static constexpr bool inspects_parts = Base::on_grid && Base::inspects;

    /// True if owners may read the peers' gradients and write the peers' parameters themselves.
    static constexpr bool may_touch_peers = Context::owned && !Place::on_device && !Base::on_grid &&
                                            !Base::compresses && !Context::Clipping::measures_norm &&
                                            World::transport_type::maps_peers &&
                                            requires { requires ReducerRun::combines_at_once; };
    /// True if they do so in this update.
    [[nodiscard]] bool touches_peers() const { return may_touch_peers && !alone_ && peers_.usable(); }

    FlatModel<T> flat_;
    GradientSum<T, Place, typename Context::Summation::template Sums<T, Place>> gradient_;
    GradientKind kind_;
    Publication<T, Place> publication_;
    Wire wire_;
    LeftOverUnit left_over_;
    OwnedSlices owned_slices_;
    PeersMemory<World, T> peers_;
    std::vector<Operation> operations_;
    std::size_t next_bucket_ = 0;
    double hosted_ = 0;     ///< number of this rank's micro-batches in this update
    bool prepared_ = false; ///< this update's sums are where the optimizer reads them
    Readiness readiness_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void Readiness::expect() {
    ++pass_;
    for (std::size_t b = 0; b < waiting_.size(); ++b) waiting_[b] = layout_->buckets()[b].piece_count;
}

UNISONO_DEFINITION std::size_t Readiness::note(std::size_t parameter) {
    if (parameter >= layout_->parameters())
        refuse_input(concat({"pass.ready(", parameter, "): the model has ", layout_->parameters(),
                             " parameters; expected an index below that"}));
    const std::size_t bucket = layout_->bucket_of(parameter);
    if (bucket == Layout::none) return bucket;
    if (std::exchange(ready_in_[parameter], pass_) == pass_)
        refuse_input({"pass.ready(", parameter, ") was called twice in one micro-batch"});
    --waiting_[bucket];
    return bucket;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
