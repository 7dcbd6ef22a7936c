#pragma once

/// \file
/// Diloco for one fragment of the parameters at a time, while the ranks train.

#include "unisono/core/standard.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/update/averaging.hpp"
#include "unisono/update/in_flight.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The run of StreamingDiloco: the ranks train while a fragment of the parameters is summed.
template <class Training, class Policy>
class Streaming : public Averaging<Training, Policy> {
    using Base = Averaging<Training, Policy>;
    using typename Base::T;

public:
    Streaming(Training& training, const Policy& policy) : Base(training, policy), synchronised_(policy.fragments) {}

    [[nodiscard]] bool after(Verdict) {
        const std::uint64_t own = this->count_update();
        if (under_way_.count != 0) {
            if (own == arrives_) land();
            else this->world().progress();
        }
        if (this->policy().sets_out_after(own)) set_out_after(own);
        return false;
    }
    void synchronise() {
        land();
        if (this->own() == 0) return;
        Base::synchronise();
        std::fill(synchronised_.begin(), synchronised_.end(), this->synchronisations());
    }
    void restore(std::uint64_t synchronisations) {
        sum_.wait(); // the sum of a fragment in flight is not used any more
        under_way_ = {};
        std::fill(synchronised_.begin(), synchronised_.end(), synchronisations);
        Base::restore(synchronisations);
    }

private:
    void set_out_after(std::uint64_t own) {
        fragment_ = this->policy().fragment_after(own);
        const std::size_t parts = this->policy().fragments;
        const std::size_t count = this->flat().count();
        const std::size_t begin = count * fragment_ / parts;
        under_way_ = {begin, count * (fragment_ + 1) / parts - begin};
        if (under_way_.count == 0) return; // there are fewer elements than fragments
        this->allocate_sum();
        this->flat().visit(under_way_, [&](const auto& one) { this->set_out(one); });
        if (this->world().size() > 1) sum_ = this->training().start_sum(this->sum() + begin, under_way_.count);
        arrives_ = own + this->policy().overlap;
        if (this->policy().overlap == 0) land();
    }
    /// Completes the fragment in flight, if there is one.
    void land() {
        if (under_way_.count == 0) return;
        if (this->world().size() > 1) sum_.wait();
        const std::uint64_t number = ++synchronised_[fragment_];
        this->set_synchronisations(
            std::max(this->synchronisations(), number)); // all fragments count this as their next synchronisation
        const double mix = this->policy().mix;
        this->flat().visit(under_way_, [&](const auto& one) {
            this->step_outside(one, number);
            const std::span<const T> common(this->common().data() + one.flat, one.count);
            using W = accumulator_t<T>;
            if (mix == 0) this->kernels().copy(one.parameters, common.data(), one.count);
            else
                this->kernels().arithmetic().apply(Mix<T>{static_cast<W>(mix), static_cast<W>(1 - mix)},
                                                   std::span<T>(one.parameters, one.count), common);
            this->kernels().write_low_weights(one.parameters, one.count);
        });
        under_way_ = {};
    }

    std::vector<std::uint64_t> synchronised_; ///< number of synchronisations of each fragment
    Slice under_way_ = {};                    ///< the fragment in flight; empty: none
    std::size_t fragment_ = 0;                ///< number of the fragment in flight
    std::uint64_t arrives_ = 0;               ///< the number of own updates after which it is completed
    OperationInFlight sum_;
};

} // namespace detail

/// Streaming DiLoCo: the flat order of parameters is cut into `fragments` equal parts. Each
/// fragment is synchronised every `steps` updates; successive fragments are steps / fragments
/// updates apart. First the ranks start to sum how far each has moved from the common parameters of
/// the fragment. `overlap` updates later the outer optimizer makes a step on the common parameters
/// by the mean of these differences, and each rank's parameters of the fragment become `mix` x its
/// own + (1 - mix) x the outer optimizer's. So a link carries 1/fragments of the bytes at a time,
/// during `overlap` updates. The bytes move during each update, and with a ProgressThread also
/// between updates. At a synchronisation (`synchronise()`, the end of `fit`, `evaluate`), the
/// fragment in flight is completed, and all fragments are synchronised at once, without a mix. From
/// then on all fragments have the same count of synchronisations. So an outer Adam, which corrects
/// its bias by that count, assumes one step too many for fragments that were behind.
///
/// A trainer that ends without a synchronisation, after the same number of updates on all ranks,
/// waits for the fragment in flight, at most for the group's timeout, and discards it; the world
/// remains usable. If an exception ends the trainer, it does not wait, and the world is aborted.
/// With one fragment, no overlap and no mix, the result has the bits of Diloco. All ranks make the
/// same number of updates. Memory: as Diloco.
/// Source: Douillard et al. 2025 (Streaming DiLoCo), algorithm 2, without its quantisation; here
/// fragments are slices of the flat order instead of sets of layers. The outer optimizer's defaults
/// are Diloco's.
template <optimizer_policy Outer = Sgd>
struct StreamingDiloco {
    std::uint64_t steps = 100; ///< updates between two synchronisations of a fragment; a multiple of `fragments`
    std::uint64_t fragments = 4;
    std::uint64_t overlap = 1; ///< length of the sum, in updates; less than steps / fragments
    double mix = 0.5;          ///< 0 to 1: weight of a rank's own parameters when a fragment is completed
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous
    Outer outer = default_outer();

    static constexpr std::string_view name = "streaming Diloco";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool on_device = true;
    friend bool operator==(const StreamingDiloco&, const StreamingDiloco&) = default;

    void check() const {
        detail::check_steps(name, steps);
        if (fragments == 0 || steps % fragments != 0)
            refuse_input({name, ".steps is ", steps, " and .fragments is ", fragments,
                          "; expected at least one fragment, and steps that are a multiple of fragments"});
        if (overlap >= apart())
            refuse_input({name, ".overlap is ", overlap, "; expected less than ", apart(),
                          " updates, after which the next fragment follows"});
        if (!(mix >= 0 && mix <= 1)) refuse_input({name, ".mix is ", mix, "; expected 0 to 1"});
        outer.check();
    }
    /// Updates between successive fragments.
    [[nodiscard]] std::uint64_t apart() const { return steps / fragments; }
    /// True if a fragment starts after `own` updates since the last synchronisation.
    [[nodiscard]] bool sets_out_after(std::uint64_t own) const { return own % apart() == 0; }
    [[nodiscard]] std::size_t fragment_after(std::uint64_t own) const {
        return static_cast<std::size_t>((own / apart() - 1) % fragments);
    }
    template <class Training>
    detail::Streaming<Training, StreamingDiloco> start(Training& training) const {
        return detail::Streaming<Training, StreamingDiloco>(training, *this);
    }

private:
    static constexpr Outer default_outer() {
        if constexpr (std::same_as<Outer, Sgd>) return Sgd{.learning_rate = 0.7, .momentum = 0.9, .nesterov = true};
        else return Outer{};
    }
};
UNISONO_CERTIFY(update_policy<StreamingDiloco<>>);

UNISONO_NAMESPACE_END
