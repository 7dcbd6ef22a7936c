#pragma once

/// \file
/// The run of updates whose ranks synchronise by sums of parameters: LocalSteps and Diloco. Also
/// the base of the runs of StreamingDiloco and Gossip.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/update/local.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
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

/// Sums a copy of the parameters in the group's memory, bucket by bucket, so that one bucket
/// travels while the next is copied. With an outer optimizer (`policy.outer`) or a compression, the
/// ranks sum how far each has moved from the common parameters; otherwise they sum the parameters
/// themselves. The next synchronisation adds what a compression has left over of these differences.
template <class Training, class Policy>
class Averaging : public LocalRun<Training> {
    using Base = LocalRun<Training>;
    using World = typename Training::World;

protected:
    using T = typename Training::Element;
    using Array = typename Training::Array;
    static constexpr bool compresses = Training::compresses;
    static constexpr bool has_outer = requires(const Policy& policy) { policy.outer.state(); };
    static constexpr bool has_common = compresses || has_outer;

public:
    Averaging(Training& training, const Policy& policy) : Base(training, policy.warm_up), policy_(policy) {}
    ~Averaging() { kernels().wait(); } // before the copies are released

    void before() {
        if constexpr (has_common) {
            if (this->own() != 0 || !common_.empty()) return;
            common_ = kernels().template allocate_own<T>(flat().count());
            all([&](const auto& one) { kernels().copy(common_.data() + one.flat, one.parameters, one.count); });
        }
        if constexpr (has_outer) static_cast<void>(state());
    }

    [[nodiscard]] bool after(Verdict) { return this->count_update() >= policy_.steps; }

    /// Does nothing if no rank has made an update of its own since the last synchronisation.
    void synchronise() {
        if (!this->begin_synchronisation() || (!has_outer && world().size() == 1)) return;
        allocate_sum();
        if constexpr (compresses) {
            if (this->synchronisations() == 0)
                this->training().compression()->forget(); // drops the remainder of the warm-up's gradients
        }
        for (std::size_t b = 0; b < flat().layout().buckets().size(); ++b) {
            const Slice& bucket = flat().bucket(b);
            flat().visit(bucket, [&](const auto& one) { set_out(one); });
            if (world().size() == 1) continue;
            if constexpr (compresses) this->training().start_compressed(b, sum_memory_.data() + bucket.first);
            else sums_.push_back(this->training().start_sum(sum_memory_.data() + bucket.first, bucket.count));
        }
        if constexpr (compresses) this->training().compression()->finish(0);
        for (Operation& sum : sums_) sum.wait();
        sums_.clear();
        this->count_synchronisation();
        all([&](const auto& one) { arrive(one); });
    }

    /// The state of the outer optimizer, the same on all ranks; without arrays if there is none.
    [[nodiscard]] decltype(auto) state() {
        if constexpr (has_outer) {
            if (state_.count() == 0) state_ = kernels().state(policy_.outer.state(), flat().count());
        }
        return kernels().shown(state_);
    }
    /// As above, to read; without arrays before the first synchronisation.
    [[nodiscard]] decltype(auto) state() const { return kernels().shown(state_); }
    void restore(std::uint64_t synchronisations) {
        Base::restore(synchronisations);
        kernels().wait();
        common_ = Array();
    }

    /// Bytes of the copies of the parameters, which are made when they are first needed, and of the
    /// outer optimizer's state.
    [[nodiscard]] std::size_t bytes() const {
        return (sum_memory_.size() + common_.size()) * sizeof(T) + state_.bytes();
    }

protected:
    [[nodiscard]] World& world() const { return this->training().world(); }
    [[nodiscard]] const auto& flat() const { return this->training().flat(); }
    [[nodiscard]] const auto& kernels() const { return this->training().kernels(); }
    [[nodiscard]] const Policy& policy() const { return policy_; }
    [[nodiscard]] const auto& common() const { return common_; }
    [[nodiscard]] T* sum() { return sum_memory_.data(); }

    void allocate_sum() {
        if (sum_memory_.empty()) sum_memory_ = kernels().template allocate<T>(flat().count());
    }
    template <class Visit>
    void all(Visit visit) const {
        flat().visit({0, flat().count()}, visit);
    }
    /// Writes this rank's contribution to the sum: its parameters, or the common parameters minus
    /// its own.
    template <class Stretch>
    void set_out(const Stretch& one) {
        T* const sum = sum_memory_.data() + one.flat;
        if constexpr (has_common) {
            kernels().arithmetic().apply(Difference<T>{}, std::span<T>(sum, one.count),
                                         std::span<const T>(common_.data() + one.flat, one.count),
                                         std::span<const T>(one.parameters, one.count));
        } else {
            kernels().copy(sum, one.parameters, one.count);
        }
    }
    /// Makes the outer optimizer's step on the common parameters, with the mean of the ranks'
    /// differences.
    template <class Stretch>
    void step_outside(const Stretch& one, std::uint64_t number) {
        kernels().update_other(policy_.outer, state_.slice(one.flat, one.count), common_.data() + one.flat,
                               sum_memory_.data() + one.flat,
                               OptimizerStep{policy_.outer.learning_rate, number, 1.0 / world().size()});
    }

private:
    template <class Stretch>
    void arrive(const Stretch& one) {
        const auto& on = kernels().arithmetic();
        const std::span<T> sum(sum_memory_.data() + one.flat, one.count);
        if constexpr (has_outer) step_outside(one, this->synchronisations());
        else on.divide(sum, world().size());
        if constexpr (has_common && !has_outer)
            on.apply(Subtract<T>{}, std::span<T>(common_.data() + one.flat, one.count), std::span<const T>(sum));
        if constexpr (has_common) kernels().copy(one.parameters, common_.data() + one.flat, one.count);
        else kernels().copy(one.parameters, sum.data(), one.count);
        kernels().write_low_weights(one.parameters, one.count);
    }

    Policy policy_;
    Array sum_memory_;
    Array common_;            ///< the parameters after the last synchronisation
    OptimizerState<T> state_; ///< state of the outer optimizer
    std::vector<Operation> sums_;
};

} // namespace detail

/// Sends parameters every `steps` updates instead of gradients at every update: 1/steps of the
/// bytes and of the waits. With `steps` 1 it equals Synchronous up to rounding (for optimizers
/// without a non-linear state). The larger `steps` is, the further the ranks diverge; a warm-up of
/// synchronous updates helps (post-local SGD). Every rank has the same weight in the mean, however
/// many samples it has. Memory: one copy of the parameters.
/// Source: Stich 2019 (local SGD), section 2; Lin et al. 2020 (post-local SGD), algorithm 2.
struct LocalSteps {
    std::uint64_t steps = 8;
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous

    static constexpr std::string_view name = "local steps";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool sums_buckets = true;
    static constexpr bool on_device = true;
    friend bool operator==(const LocalSteps&, const LocalSteps&) = default;

    void check() const { detail::check_steps(name, steps); }
    template <class Training>
    detail::Averaging<Training, LocalSteps> start(Training& training) const {
        return detail::Averaging<Training, LocalSteps>(training, *this);
    }
};
UNISONO_CERTIFY(update_policy<LocalSteps>);

/// DiLoCo: every `steps` updates, the ranks average how far each has moved from the common
/// parameters. That mean, negated, is the gradient of an outer optimizer. The inner optimizer is
/// the trainer's (AdamW in the paper). An outer Sgd with a learning rate of 1 and no momentum is
/// LocalSteps; with a learning rate below 1 it is Lookahead. With momentum, and a constant inner
/// learning rate, it is SlowMo. An outer Adam is FedAdam. Memory in addition to that of LocalSteps:
/// the common parameters and the outer optimizer's state.
/// Source: Douillard et al. 2023 (DiLoCo), algorithm 1, whose outer values are the defaults; Reddi
/// et al. 2021 (adaptive federated optimization), algorithm 2; Wang et al. 2020 (SlowMo), algorithm
/// 1; Zhang et al. 2019 (Lookahead), algorithm 1.
template <optimizer_policy Outer = Sgd>
struct Diloco {
    std::uint64_t steps = 500;
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous
    Outer outer = default_outer();

    static constexpr std::string_view name = "Diloco";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool sums_buckets = true;
    static constexpr bool on_device = true;
    friend bool operator==(const Diloco&, const Diloco&) = default;

    void check() const {
        detail::check_steps(name, steps);
        outer.check();
    }
    template <class Training>
    detail::Averaging<Training, Diloco> start(Training& training) const {
        return detail::Averaging<Training, Diloco>(training, *this);
    }

private:
    static constexpr Outer default_outer() {
        if constexpr (std::same_as<Outer, Sgd>) return Sgd{.learning_rate = 0.7, .momentum = 0.9, .nesterov = true};
        else return Outer{};
    }
};
UNISONO_CERTIFY(update_policy<Diloco<>>);

UNISONO_NAMESPACE_END
