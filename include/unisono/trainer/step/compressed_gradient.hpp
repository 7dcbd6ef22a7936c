#pragma once

/// \file
/// A gradient in the format of a compression: the compression's run (compression/compression.hpp)
/// without its type, and the scale of what it leaves over.

#include "unisono/compression/compression.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/step/carrier.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A gradient is a weighted sum, times the loss scale. The optimizer's pass divides it by the sum
/// of the weights of all ranks and by the loss scale. The remainder of one update is sent in the
/// next, which divides by another sum of weights and another loss scale. So the remainder is
/// multiplied by the ratio of the two divisors. The loss scale is known before a bucket travels,
/// the sum of weights is not. Until then the number of this rank's micro-batches serves as an
/// estimate. It is exact if all ranks' windows changed by the same factor. Once all ranks have
/// agreed on the weights, the estimate is corrected (compression/compression.hpp).
template <class T>
class CompressionRun {
public:
    CompressionRun() = default;
    CompressionRun(const CompressionRun&) = delete;
    CompressionRun& operator=(const CompressionRun&) = delete;
    virtual ~CompressionRun() = default;

    /// Call it before the first bucket of an update travels. `micro_batches`: of this rank.
    void begin_update(double micro_batches, double loss_scale) {
        now_ = {micro_batches, loss_scale, 0};
        begun_ = true;
        if (last_.divisor == 0) return; // nothing is left over
        const bool both = micro_batches > 0 && last_.micro_batches > 0;
        expected_ = both ? micro_batches / last_.micro_batches : 1;
        if (const double factor = expected_ * (loss_scale / last_.loss_scale); factor != 1) rescale(factor);
    }
    virtual void begin(std::size_t b, T* values, BucketReduction& reduction) = 0;
    /// Waits for the sums. `divisor`: the sum of the weights of all ranks; 0: they have not agreed
    /// on an update.
    void finish(double divisor) {
        if (divisor > 0 && std::exchange(begun_, false)) {
            const double lacks = last_.divisor == 0 ? 1 : divisor / last_.divisor / expected_;
            if (lacks != 1) correct(lacks);
            last_ = now_;
            last_.divisor = divisor;
        }
        wait();
    }
    /// Forgets what is left over.
    void forget() {
        forget_unit();
        forget_rest();
    }
    /// The same, and begins anew.
    void restart() {
        forget_unit();
        restart_run();
    }
    [[nodiscard]] virtual std::size_t bytes() const = 0;

private:
    /// The divisors of an update.
    struct Unit {
        double micro_batches = 0; ///< number of this rank's micro-batches
        double loss_scale = 1;
        double divisor = 0; ///< the sum of all ranks' weights; 0: nothing is left over
    };

    virtual void wait() = 0;
    virtual void rescale(double factor) = 0;
    virtual void correct(double factor) = 0;
    virtual void forget_rest() = 0;
    virtual void restart_run() = 0;
    void forget_unit() {
        begun_ = false;
        last_ = {};
    }

    Unit last_; ///< the scale of the remainder
    Unit now_;
    double expected_ = 1; ///< estimated ratio of the divisors
    bool begun_ = false;
};

template <class T, class Run>
class CompressionRunOf final : public CompressionRun<T> {
public:
    static_assert(compression_run<Run, T, BucketReduction>,
                  "unisono::Trainer: the compression's run lacks what compression/compression.hpp asks of one: "
                  "begin(bucket, values, reduction), finish(), forget() and bytes()");

    /// `start()` returns the run.
    template <class Start>
    explicit CompressionRunOf(const Start& start) : run_(start()) {}

    void begin(std::size_t b, T* values, BucketReduction& reduction) override { run_.begin(b, values, reduction); }
    [[nodiscard]] std::size_t bytes() const override { return run_.bytes(); }

private:
    void wait() override { run_.finish(); }
    void rescale([[maybe_unused]] double factor) override {
        if constexpr (requires { run_.rescale(factor); }) run_.rescale(factor);
    }
    void correct([[maybe_unused]] double factor) override {
        if constexpr (requires { run_.correct(factor); }) run_.correct(factor);
    }
    void forget_rest() override { run_.forget(); }
    void restart_run() override { restart_compression(run_); }

    Run run_;
};

/// Sums floats that travel in the format of a compression.
template <class T>
class CompressedGradient final : public FloatGradient<T> {
    using Base = FloatGradient<T>;

public:
    template <class Policy>
    CompressedGradient(GroupCore& world, const FlatModel<T>& flat, const Kernels<T>& kernels, const Policy& policy,
                       CompressionRun<T>* run)
        : Base(world, flat, kernels, policy), run_(run) {}

    void hold(double multiplier) override {
        ++micro_batches_;
        Base::hold(multiplier);
    }
    void finish(Carrier<T>& carrier, double divisor) override {
        carrier.wait();
        run_->finish(divisor);
    }
    void forget() override {
        Base::forget();
        if (started_) run_->forget();
    }
    void restart() override { run_->restart(); }
    [[nodiscard]] CompressionRun<T>* compression() override { return &*run_; }
    [[nodiscard]] std::size_t bytes() const override { return Base::bytes() + run_->bytes(); }

private:
    void begin_form(bool alone, double loss_scale) override {
        Base::begin_form(alone, loss_scale);
        loss_scale_ = loss_scale;
        micro_batches_ = 0;
        started_ = false;
    }
    void travel(std::size_t b, T* values, Carrier<T>& carrier) override {
        carrier.start_encoded(b, [&](BucketReduction& reduction) {
            if (b == 0) run_->begin_update(micro_batches_, loss_scale_);
            started_ = true;
            run_->begin(b, values, reduction);
        });
    }

    Owned<CompressionRun<T>> run_;
    double loss_scale_ = 1;
    double micro_batches_ = 0; ///< of this rank in this update
    bool started_ = false;     ///< a bucket of this update has travelled
};

/// The type of a compression's run in a trainer; NoCompression's for models in units, which use the
/// format alone.
template <class World, class T, class Computes, class Policies>
struct CompressionRunFor {
    using type = NoCompression::Run;
};
template <class World, class T, class Computes, class Policies>
    requires(Policies::Compression::compresses && !shards_gradients<typename Policies::Sharding>)
struct CompressionRunFor<World, T, Computes, Policies> {
    using type = decltype(start_compression_on<T>(std::declval<const Computes&>(),
                                                  std::declval<const typename Policies::Compression&>(),
                                                  std::declval<World&>(), {}, {}));
};

/// The gradient of a trainer, by its policies of summation and compression.
template <class T, class Policies, class World, class Model, class Computes>
[[nodiscard]] GradientSum<T>* gradient_for(World& world, Model&, const FlatModel<T>& flat, const Computes& kernels,
                                           const Policies& policies) {
    using Gradient = typename Policies::Summation::template Gradient<T>;
    return new Gradient(world, flat, kernels, policies.summation);
}
template <class T, class Policies, class World, class Model, class Computes>
    requires(Policies::Compression::compresses)
[[nodiscard]] GradientSum<T>* gradient_for(World& world, Model& model, const FlatModel<T>& flat,
                                           const Computes& kernels, const Policies& policies) {
    using Run = typename CompressionRunFor<World, T, Computes, Policies>::type;
    auto* const run = new CompressionRunOf<T, Run>([&] {
        return start_compression_on<T>(kernels, policies.compression, world, flat.buckets(),
                                       parameter_matrices(model, flat.layout()));
    });
    return new CompressedGradient<T>(world, flat, kernels, policies.summation, run);
}

} // namespace detail
UNISONO_NAMESPACE_END
