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
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/parameter_matrices.hpp"
#include "unisono/trainer/step/carrier.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/owned_slices.hpp"
#include "unisono/trainer/step/peers_memory.hpp"
#include "unisono/trainer/step/publication.hpp"
#include "unisono/trainer/step/readiness.hpp"
#include "unisono/trainer/step/update.hpp"
#include "unisono/trainer/step/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T>
class WholeStore : public Update<T> {
    using Base = Update<T>;

public:
    [[nodiscard]] const FlatModel<T>& flat() const { return flat_; }
    /// Starts to sum elements over all ranks. Their memory comes from the kernels.
    [[nodiscard]] Operation start_sum(T* values, std::size_t count) {
        kernels_->order();
        return carrier_->sum(kernels_->buffer(values, count));
    }
    /// The compression's run, or null.
    [[nodiscard]] Wire<T>* wire() { return wire_.get(); }
    /// Starts its sum of elements of a bucket over all ranks.
    void start_compressed(std::size_t b, T* values) { wire_->begin(b, values, to_all_); }
    [[nodiscard]] GradientSum<T>& gradients() { return *gradient_; }
    /// Bytes beside the model's own and the optimizer's: arrays of gradients and parameters.
    [[nodiscard]] std::size_t memory_bytes() const {
        return gradient_->bytes() + publication_.bytes() + (wire_ ? wire_->bytes() : 0);
    }

    /// For sums on a grid: all ranks know that each of them hosts at most one micro-batch of this
    /// update.
    void expect_one();
    static constexpr void end_round() {}

    /// Starts to sum the buckets that the backward pass has not started yet, in bucket order; does
    /// not wait.
    void start() override {
        for (; next_bucket_ < bucket_count(); ++next_bucket_) start_bucket(next_bucket_);
    }
    /// True if buckets of this update are in flight.
    [[nodiscard]] bool has_started() const { return next_bucket_ != 0; }
    /// Waits until the sums have arrived at their owners.
    void finish() override;

protected:
    using Base::alone_, Base::carrier_, Base::inspects_, Base::kernels_, Base::policies_, Base::world_;

    template <class World, class Model, class Policies, class Sharding, class Computes>
    [[gnu::cold]] WholeStore(World& world, Model& model, const Policies& policies, const Sharding& sharding,
                             Computes& kernels);
    [[gnu::cold]] ~WholeStore() override = default;

    void begin_update() override;

    // --- one micro-batch ---

    void before_pass(bool) override { gradient_->before_pass(); }
    template <class>
    Pass make_pass(const PassFacts& facts, bool last) {
        const bool overlap = last && !alone_;
        ++hosted_;
        if (overlap) readiness_.expect();
        return Pass(facts, overlap ? &WholeStore::on_ready : nullptr, this);
    }
    /// The model's memory holds the gradient of a micro-batch with weight `multiplier`.
    void keep(double multiplier, bool last) override;

    // --- the update ---

    [[nodiscard]] double left_over() const override { return gradient_->left_over(); }
    /// It also converts sums on a grid to numbers, and sums gradients in peers' memory, so that
    /// later passes read each element only once more.
    void each_gradient(typename Base::GradientVisit visit) override;
    [[nodiscard]] std::size_t most_gradients() const override {
        return flat_.layout().parameters() + slices_.all().size();
    }
    /// Works in chunks that stay in the first-level cache until they are published and their
    /// gradients are zeroed.
    void update_owned(const OptimizerStep& step) override;
    void publish_owned() override {
        if (slices_.cut()) publish_slices();
    }
    void forget() override;
    void restart() override {
        if (wire_) wire_->restart();
    }

private:
    void publish_slices();
    /// True if `prepare` must still bring this update's sums to where the optimizer reads them.
    /// Opens the peers' memory for that, if this update reads their gradients.
    [[nodiscard]] bool opens_sums();
    /// Converts this update's sums to numbers where the optimizer reads them.
    void prepare(std::size_t flat, T* gradients, std::size_t n);

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

    /// Prepares a bucket's gradient to travel, lets the guard look at it, and starts to sum it.
    void start_bucket(std::size_t b);

    /// Lets the guard look at gradients in the model's memory.
    void inspect_in_model(const Slice& slice) {
        flat_.visit(slice, [&](const Stretch<T>& one) { this->inspect(one.gradients, one.count, one.flat); });
    }

    template <class Reducer, class World>
    static constexpr bool combines_at_once =
        requires { requires decltype(std::declval<const Reducer&>().start(std::declval<World&>()))::combines_at_once; };
    [[nodiscard]] std::size_t bucket_count() const { return flat_.layout().buckets().size(); }

    /// Owners may read the peers' gradients and write the peers' parameters themselves, if the
    /// reducer combines all ranks' elements at once.
    [[nodiscard]] bool touches_peers() const { return !alone_ && peers_.usable(); }

    FlatModel<T> flat_;
    Owned<GradientSum<T>> gradient_;
    GradientKind kind_;
    Publication<T> publication_;
    Owned<Wire<T>> wire_;               ///< null: gradients travel unchanged
    BucketReduction to_all_{*carrier_}; ///< of the wire, which may use it until `finish` ends
    OwnedSlices slices_;
    PeersMemory peers_;
    bool straight_ = false; ///< sums on a grid read the ranks' numbers directly where all host one micro-batch
    BucketSums bucket_sums_;
    std::size_t next_bucket_ = 0;
    double hosted_ = 0;     ///< number of this rank's micro-batches in this update
    bool prepared_ = false; ///< this update's sums are where the optimizer reads them
    Readiness readiness_;
};

template <class T>
template <class World, class Model, class Policies, class Sharding, class Computes>
WholeStore<T>::WholeStore(World& world, Model& model, const Policies& policies, const Sharding& sharding,
                          Computes& kernels)
    : Base(world, model, policies, sharding, kernels), flat_(model, policies.buckets),
      gradient_(new typename Policies::Summation::template Gradient<T>(world, flat_, kernels, policies.summation)),
      kind_(gradient_kind_of<Model>), publication_(world, flat_, kernels), slices_(world.rank(), world.size()),
      peers_(world, &combine_kernel<Sum, T>, sizeof(T)), readiness_(flat_.layout()) {
    constexpr bool on_grid = Policies::Summation::reproducible;
    constexpr bool compresses = Policies::Compression::compresses;
    if constexpr (compresses)
        wire_.take(new WireOf<T, typename WireRun<World, T, Computes, Policies>::type>([&] {
            return start_wire<T>(kernels, policies.compression, world, flat_.buckets(),
                                 parameter_matrices(model, flat_.layout()));
        }));
    for (std::size_t b = 0; b < bucket_count(); ++b) {
        const Slice bucket = flat_.bucket(b);
        const BucketFacts facts{b, bucket.count, sizeof(T), world.size()};
        if constexpr (Policies::Reducer::gives_owners) slices_.add(bucket, policies.reducer.owners(facts));
        else slices_.add(bucket, sharding.owners(facts));
    }
    slices_.close();
    reserve(bucket_sums_.others(), slices_.all().size());
    constexpr bool at_once = World::transport_type::maps_peers && !Computes::on_device &&
                             combines_at_once<typename Policies::Reducer, World>;
    constexpr bool owned = may_have_owners<Policies, Sharding>;
    if constexpr (at_once && on_grid) {
        if constexpr (owned) keep_native<Collective::reduce>(world);
        straight_ = !this->facts_.needs_samples && !this->facts_.needs_tokens;
    }
    if constexpr (at_once && owned && !on_grid && !compresses && !Policies::Clipping::measures_norm) {
        keep_native<Collective::all_gather, Collective::barrier>(world);
        if (world.size() > 1 && slices_.all_cut()) peers_.agree(publication_.from_model());
    }
    this->begin_store(flat_.layout(), slices_, gradient_->sums());
}

template <class T>
void WholeStore<T>::each_gradient(typename Base::GradientVisit visit) {
    const bool prepares = opens_sums();
    for (const OwnedSlice& owned : slices_.all()) {
        if (!slices_.is_mine(owned)) continue;
        const bool counts = slices_.counts_here(owned);
        flat_.visit_by_parameter(owned.slice, [&](std::size_t p, const Stretch<T>& one) {
            T* const gradients = gradient_->at(one);
            for (std::size_t at = 0, n = 0; at < one.count; at += n) {
                n = std::min(kernels_->chunk, one.count - at);
                if (prepares) prepare(one.flat + at, gradients + at, n);
                if (counts) visit(p, one.flat + at, gradients + at, n);
            }
        });
    }
    prepared_ = true;
}

template <class T>
void WholeStore<T>::update_owned(const OptimizerStep& step) {
    const bool in_place = gradient_->in_place();
    const bool touches = touches_peers();
    const bool prepares = opens_sums();
    if (slices_.cut() && !touches) publication_.begin(gradient_->numbers_in_use());
    const bool zero_all = in_place && slices_.cut(); // other ranks' slices hold values that are not used
    std::size_t state = 0;
    for (const Slice& slice : slices_.owned()) {
        flat_.visit(slice, [&](const Stretch<T>& stretch) {
            T* const gradients = gradient_->at(stretch);
            kernels_->in_chunks(stretch.parameters, stretch.count, [&](std::size_t at, std::size_t n) {
                if (prepares) prepare(stretch.flat + at, gradients + at, n);
                policies_->update(this->state().slice(state + at, n), stretch.parameters + at, gradients + at, step,
                                  in_place && !zero_all);
                if (touches) peers_.publish(stretch.flat + at, n);
                publication_.note(stretch.flat + at, stretch.parameters + at, n);
            });
            state += stretch.count;
        });
    }
    if (touches) return; // other ranks may still read the gradients
    if (zero_all) flat_.zero_gradients(*kernels_);
    gradient_->clean();
}

template <class T>
void WholeStore<T>::expect_one() {
    if (straight_) gradient_->expect_one(policies_->share({.samples = 1, .tokens = 0, .kind = kind_}).multiplier);
}

template <class T>
void WholeStore<T>::finish() {
    bucket_sums_.wait();
    if (wire_) wire_->finish(this->divisor_);
}

template <class T>
void WholeStore<T>::begin_update() {
    next_bucket_ = 0;
    hosted_ = 0;
    prepared_ = false;
    gradient_->begin(alone_);
}

template <class T>
void WholeStore<T>::keep(double multiplier, bool last) {
    if (this->pass_->first_ready() != Pass::no_parameter) check_tokens(multiplier);
    if (!gradient_->held()) gradient_->hold(multiplier);
    if (last) return;
    gradient_->drop_weightless({0, flat_.count()});
    if (this->on_grid_ && inspects_) inspect_in_model({0, flat_.count()});
    gradient_->drain();
}

template <class T>
void WholeStore<T>::publish_slices() {
    if (touches_peers()) {
        peers_.close();
        if (gradient_->in_place()) flat_.zero_gradients(*kernels_);
        return gradient_->clean();
    }
    publication_.start(*carrier_, slices_.all(), bucket_sums_.others());
    bucket_sums_.wait();
    publication_.finish(slices_.all());
}

template <class T>
void WholeStore<T>::forget() {
    gradient_->soil();
    if (wire_ && next_bucket_ != 0 && !alone_) wire_->forget();
}

template <class T>
void WholeStore<T>::prepare(std::size_t flat, T* gradients, std::size_t n) {
    gradient_->prepare(flat, gradients, n);
    if (touches_peers()) peers_.sum(flat, n);
}

template <class T>
bool WholeStore<T>::opens_sums() {
    if (prepared_) return false;
    if (!touches_peers()) return this->on_grid_;
    const Stretch<T>& model = flat_.stretches().front();
    peers_.open(gradient_->in_place() ? model.gradients : gradient_->numbers_in_use(), model.parameters);
    return true;
}

template <class T>
void WholeStore<T>::note_ready(std::size_t parameter) {
    const std::size_t bucket = readiness_.note(parameter);
    if (next_bucket_ != bucket || !readiness_.complete(bucket)) return;
    if (!gradient_->held()) gradient_->hold(this->weigh().multiplier);
    while (next_bucket_ < bucket_count() && readiness_.complete(next_bucket_)) start_bucket(next_bucket_++);
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

template <class T>
void WholeStore<T>::start_bucket(std::size_t b) {
    const Slice bucket = flat_.bucket(b);
    gradient_->drop_weightless(bucket);
    if (this->on_grid_ && inspects_ && gradient_->held()) inspect_in_model(bucket);
    T* const values = gradient_->settle(bucket, b + 1 == bucket_count());
    if (!this->on_grid_ && inspects_) {
        if (values != nullptr) this->inspect(values + bucket.first, bucket.count, bucket.first);
        else inspect_in_model(bucket);
    }
    if (alone_ || touches_peers()) return;
    if (wire_) {
        if (b == 0) wire_->begin_update(hosted_, this->scaled_by_);
        if (!slices_.cut()) return start_compressed(b, values + bucket.first);
        BucketReduction to_owners{*carrier_, &slices_, b, bucket.first, &bucket_sums_.others()};
        wire_->begin(b, values + bucket.first, to_owners);
    } else if (gradient_->straight()) {
        for (const OwnedSlice& owned : slices_.of_bucket(b))
            detail::keep(bucket_sums_.others(), gradient_->sum_straight(*world_, values, owned.slice, owned.owner));
    } else {
        kernels_->order();
        bucket_sums_.start(*carrier_, slices_, b, bucket.first, gradient_->travelling(bucket, values));
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
