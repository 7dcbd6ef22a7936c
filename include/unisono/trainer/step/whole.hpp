#pragma once

/// \file
/// The store of a model whose memory is whole on every rank. The gradient travels in buckets, each
/// as soon as the backward pass has filled it. It has a form (gradient_sum.hpp) and a way to the
/// optimizer (carrier.hpp), and the store asks for neither.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/step/carrier.hpp"
#include "unisono/trainer/step/compressed_gradient.hpp"
#include "unisono/trainer/step/fused_carrier.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/owned_slices.hpp"
#include "unisono/trainer/step/update.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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

template <class T>
class WholeStore : public Update<T> {
    using Base = Update<T>;

public:
    [[nodiscard]] const FlatModel<T>& flat() const { return flat_; }
    /// Starts to sum elements over all ranks. Their memory comes from the kernels.
    [[nodiscard]] Operation start_sum(T* values, std::size_t count) {
        kernels_->order();
        return reducer_->start({Collective::all_reduce, kernels_->buffer(values, count)});
    }
    /// The compression's run, or null.
    [[nodiscard]] CompressionRun<T>* compression() { return gradient_->compression(); }
    /// Starts its sum of elements of a bucket over all ranks.
    void start_compressed(std::size_t b, T* values) {
        carrier_->start_encoded(b, [&](BucketReduction& to_all) { compression()->begin(b, values, to_all); });
    }
    [[nodiscard]] GradientSum<T>& gradients() { return *gradient_; }
    /// Bytes beside the model's own and the optimizer's: arrays of gradients and parameters.
    [[nodiscard]] std::size_t memory_bytes() const { return gradient_->bytes() + carrier_->bytes(); }

    /// For sums on a grid: all ranks know that each of them hosts at most one micro-batch of this
    /// update.
    void expect_one() { gradient_->expect_one(); }
    static constexpr void end_round() {}

    /// Starts to sum the buckets that the backward pass has not started yet, in bucket order; does
    /// not wait.
    void start() override { start_below(bucket_count()); }
    /// True if buckets of this update are in flight.
    [[nodiscard]] bool has_started() const { return next_bucket_ != 0; }
    /// Waits until the sums have arrived at their owners.
    void finish() override { gradient_->finish(*way_, this->divisor_); }

protected:
    using Base::nothing_travels_, Base::kernels_, Base::policies_, Base::reducer_, Base::world_;

    template <class World, class Model, class Policies, class Sharding, class Computes>
    [[gnu::cold]] WholeStore(World& world, Model& model, const Policies& policies, const Sharding& sharding,
                             Computes& kernels);
    [[gnu::cold]] ~WholeStore() override = default;

    void begin_update() override;

    // --- one micro-batch ---

    template <class>
    Pass make_pass(const PassFacts& facts, bool last) {
        gradient_->before_pass();
        const bool overlap = last && !nothing_travels_;
        if (overlap) readiness_.expect();
        return Pass(facts, overlap ? &WholeStore::on_ready : nullptr, this);
    }
    /// The model's memory holds the gradient of a micro-batch with weight `multiplier`.
    void keep(double multiplier, bool last) override;

    // --- the update ---

    [[nodiscard]] double factor_left() const override { return gradient_->factor_left(); }
    /// It also brings the sums to where the optimizer reads them, so that later passes read each
    /// element only once more.
    void each_gradient(typename Base::GradientVisit visit) override;
    [[nodiscard]] std::size_t most_gradients() const override {
        return flat_.layout().parameters() + slices_.all().size();
    }
    /// Works in chunks that stay in the first-level cache until they are published and their
    /// gradients are zeroed.
    void update_owned(const OptimizerStep& step) override;
    void publish_owned() override;
    void forget() override { gradient_->forget(); }
    void restart() override { gradient_->restart(); }

private:
    [[nodiscard]] auto lets_guard_look() {
        return [this](const T* values, std::size_t count, std::size_t flat) { this->inspect(values, count, flat); };
    }

    /// True once an update: the sums are not yet where the optimizer reads them. Opens their way.
    bool must_take() {
        if (std::exchange(taken_, true)) return false;
        way_->open(gradient_->numbers_in_use());
        return true;
    }
    /// Brings the sums of a chunk to where the optimizer reads them.
    void take(const Stretch<T>& chunk) {
        gradient_->prepare(chunk.flat, chunk.gradients, chunk.count);
        way_->take(chunk);
    }

    // Overlap with the backward pass: a bucket starts when all its parameters are ready and all
    // earlier buckets have started.

    static void on_ready(void* self, std::size_t parameter) { static_cast<WholeStore*>(self)->ready(parameter); }

    void ready(std::size_t parameter) {
        if (parameter != Pass::no_parameter) note_ready(parameter);
        if (next_bucket_ != 0) world_->progress(); // operations in flight need this rank to forward and add
    }

    void note_ready(std::size_t parameter);

    /// Refuses tokens that the model counts after a `ready`, because its gradient may have
    /// travelled with another weight by then. The call is refused on any number of ranks, whether
    /// the gradient has travelled or not.
    void check_tokens(double multiplier);

    /// Starts the buckets below `end` that have not started yet.
    void start_below(std::size_t end) {
        for (; next_bucket_ < end; ++next_bucket_) gradient_->start(next_bucket_, *way_, lets_guard_look());
    }

    template <class Reducer, class World>
    static constexpr bool combines_at_once =
        requires { requires decltype(std::declval<const Reducer&>().start(std::declval<World&>()))::combines_at_once; };
    [[nodiscard]] std::size_t bucket_count() const { return flat_.layout().buckets().size(); }

    FlatModel<T> flat_;
    Owned<GradientSum<T>> gradient_; ///< the form in which gradients travel
    OwnedSlices slices_;
    Owned<Carrier<T>> carrier_;      ///< their way to the optimizer
    Carrier<T> alone_here_;          ///< the same in an update of this rank alone
    Carrier<T>* way_ = &alone_here_; ///< of this update
    std::size_t next_bucket_ = 0;
    bool taken_ = false; ///< this update's sums are where the optimizer reads them
    Readiness readiness_;
};

template <class T>
template <class World, class Model, class Policies, class Sharding, class Computes>
WholeStore<T>::WholeStore(World& world, Model& model, const Policies& policies, const Sharding& sharding,
                          Computes& kernels)
    : Base(world, model, policies, sharding, kernels), flat_(model, policies.buckets),
      gradient_(gradient_for<T>(world, model, flat_, kernels, policies)), slices_(world.rank(), world.size()),
      readiness_(flat_.layout()) {
    for (std::size_t b = 0; b < bucket_count(); ++b) {
        const Slice bucket = flat_.bucket(b);
        const BucketFacts facts{b, bucket.count, sizeof(T), world.size()};
        if constexpr (Policies::Reducer::gives_owners) slices_.add(bucket, policies.reducer.owners(facts));
        else slices_.add(bucket, sharding.owners(facts));
    }
    slices_.close();
    constexpr bool at_once = World::transport_type::maps_peers && !Computes::on_device &&
                             combines_at_once<typename Policies::Reducer, World>;
    constexpr bool owned = may_have_owners<Policies, Sharding>;
    if constexpr (at_once && Policies::Summation::reproducible) {
        if constexpr (owned) keep_native<Collective::reduce>(world);
        if (!this->facts_.needs_samples && !this->facts_.needs_tokens) {
            const Share of_one = policies_->share({.samples = 1, .tokens = 0, .kind = gradient_kind_of<Model>});
            gradient_->combine_at_once(of_one.multiplier);
        }
    }
    if constexpr (owned) {
        constexpr bool fuses = at_once && !Policies::Summation::reproducible && !Policies::Compression::compresses &&
                               !Policies::Clipping::measures_norm;
        if constexpr (fuses) {
            keep_native<Collective::all_gather, Collective::barrier>(world);
            const bool seen = CarrierToOwners<T>::publishes_from_model(flat_, *kernels_);
            if (world.size() > 1 && slices_.all_cut() && FusedCarrier<T>::agree(world, seen))
                carrier_.take(new FusedCarrier<T>(world, flat_));
        }
        if (!carrier_ && slices_.cut()) carrier_.take(new CarrierToOwners<T>(*reducer_, flat_, slices_, *kernels_));
    }
    if (!carrier_) carrier_.take(new CarrierToAll<T>(*reducer_, flat_, slices_, *kernels_));
    this->begin_store(flat_.layout(), slices_, gradient_->sums());
}

template <class T>
void WholeStore<T>::begin_update() {
    next_bucket_ = 0;
    taken_ = false;
    way_ = nothing_travels_ ? &alone_here_ : carrier_.get();
    gradient_->begin(nothing_travels_, this->scaled_by_);
}

template <class T>
void WholeStore<T>::keep(double multiplier, bool last) {
    if (this->pass_->first_ready() != Pass::no_parameter) check_tokens(multiplier);
    if (!gradient_->held()) gradient_->hold(multiplier);
    if (!last) gradient_->drain(lets_guard_look());
}

template <class T>
void WholeStore<T>::each_gradient(typename Base::GradientVisit visit) {
    const bool takes = must_take();
    for (const OwnedSlice& owned : slices_.all()) {
        if (!slices_.is_mine(owned)) continue;
        const bool counts = slices_.counts_here(owned);
        flat_.visit_by_parameter(owned.slice, [&](std::size_t p, const Stretch<T>& one) {
            T* const gradients = gradient_->at(one);
            for (std::size_t at = 0, n = 0; at < one.count; at += n) {
                n = std::min(kernels_->chunk, one.count - at);
                if (takes) take({one.flat + at, n, one.parameters + at, gradients + at});
                if (counts) visit(p, one.flat + at, gradients + at, n);
            }
        });
    }
}

template <class T>
void WholeStore<T>::update_owned(const OptimizerStep& step) {
    const bool takes = must_take();
    const bool zeroes = gradient_->in_place() && !slices_.cut();
    std::size_t state = 0;
    for (const Slice& slice : slices_.owned()) {
        flat_.visit(slice, [&](const Stretch<T>& stretch) {
            T* const gradients = gradient_->at(stretch);
            kernels_->in_chunks(stretch.parameters, stretch.count, [&](std::size_t at, std::size_t n) {
                const Stretch<T> chunk{stretch.flat + at, n, stretch.parameters + at, gradients + at};
                if (takes) take(chunk);
                policies_->update(this->state().slice(state + at, n), chunk.parameters, chunk.gradients, step);
                if (zeroes) kernels_->zero(chunk.gradients, n);
                way_->put(chunk);
            });
            state += stretch.count;
        });
    }
    if (!slices_.cut()) gradient_->clean();
}

template <class T>
void WholeStore<T>::publish_owned() {
    way_->publish();
    if (slices_.cut()) gradient_->zero(); // other ranks' slices hold values that are not used
}

template <class T>
void WholeStore<T>::note_ready(std::size_t parameter) {
    const std::size_t bucket = readiness_.note(parameter);
    if (next_bucket_ != bucket || !readiness_.complete(bucket)) return;
    if (!gradient_->held()) gradient_->hold(this->weigh().multiplier);
    std::size_t end = bucket;
    while (end < bucket_count() && readiness_.complete(end)) ++end;
    start_below(end);
}

template <class T>
void WholeStore<T>::check_tokens(double multiplier) {
    if (this->pass_->tokens_when_ready() == this->micro_->tokens) return;
    MicroBatchFacts then = *this->micro_;
    then.tokens = this->pass_->tokens_when_ready();
    if (policies_->checked_share(then, std::numeric_limits<double>::max()).multiplier != multiplier)
        refuse_input({"parameter ", this->pass_->first_ready(),
                      ": tokens were counted after the first gradient was complete; expected all before it"});
}

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
