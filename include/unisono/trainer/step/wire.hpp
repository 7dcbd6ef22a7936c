#pragma once

/// \file
/// The run of a compression (compression/compression.hpp) without its type, and the scale of what
/// it leaves over.
///
/// A gradient is a weighted sum, times the loss scale. The optimizer's pass divides it by the sum
/// of the weights of all ranks and by the loss scale. The remainder of one update is sent in the
/// next, which divides by another sum of weights and another loss scale. So the remainder is
/// multiplied by the ratio of the two divisors. The loss scale is known before a bucket travels,
/// the sum of weights is not. Until then the number of this rank's micro-batches serves as an
/// estimate. It is exact if all ranks' windows changed by the same factor. Once all ranks have
/// agreed on the weights, the estimate is corrected (compression/compression.hpp).

#include "unisono/compression/compression.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/step/carrier.hpp"
#include "unisono/trainer/step/owned_slices.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The reduction that a compression uses for one bucket. It sums to the same ranks as without
/// compression.
struct BucketReduction {
    Carrier& carrier;
    const OwnedSlices* slices = nullptr; ///< null: to all ranks, any number of elements
    std::size_t bucket = 0;
    std::size_t first = 0;                        ///< index of the bucket's first element in the flat order
    std::vector<Operation>* operations = nullptr; ///< the operations of all slices but the last

    template <class World, class Values>
    Operation sum(World& group, Values wire) {
        carrier.check_group(group);
        if (slices == nullptr) return carrier.sum(buffer_of(wire));
        BucketSums::start_unprepared(carrier, *slices, bucket, first, buffer_of(wire), *operations);
        Operation last = std::move(operations->back());
        operations->pop_back();
        return last;
    }
};

template <class T>
class Wire {
public:
    Wire() = default;
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;
    virtual ~Wire() = default;

    virtual void begin(std::size_t b, T* values, BucketReduction& reduction) = 0;
    virtual void finish() = 0;
    virtual void rescale(double factor) = 0;
    virtual void correct(double factor) = 0;
    virtual void forget() = 0;
    virtual void restart() = 0;
    [[nodiscard]] virtual std::size_t bytes() const = 0;
};

template <class T, class Run>
class WireOf final : public Wire<T> {
public:
    /// `start()` returns the run.
    template <class Start>
    explicit WireOf(const Start& start) : run_(start()) {}

    void begin(std::size_t b, T* values, BucketReduction& reduction) override { run_.begin(b, values, reduction); }
    void finish() override { run_.finish(); }
    void rescale([[maybe_unused]] double factor) override {
        if constexpr (requires { run_.rescale(factor); }) run_.rescale(factor);
    }
    void correct([[maybe_unused]] double factor) override {
        if constexpr (requires { run_.correct(factor); }) run_.correct(factor);
    }
    void forget() override { run_.forget(); }
    void restart() override { restart_compression(run_); }
    [[nodiscard]] std::size_t bytes() const override { return run_.bytes(); }

private:
    Run run_;
};

/// The type of a compression's run in a trainer; NoCompression's for models in units, which use the
/// format alone.
template <class World, class T, class Computes, class Policies>
struct WireRun {
    using type = NoCompression::Run;
};
template <class World, class T, class Computes, class Policies>
    requires(Policies::Compression::compresses && !shards_gradients<typename Policies::Sharding>)
struct WireRun<World, T, Computes, Policies> {
    using type =
        decltype(start_wire<T>(std::declval<const Computes&>(), std::declval<const typename Policies::Compression&>(),
                               std::declval<World&>(), {}, {}));
};

class LeftOverUnit {
public:
    /// Call it before the first bucket of an update travels. `micro_batches`: of this rank. Returns
    /// the factor for what earlier updates have left over.
    double expect(double micro_batches, double loss_scale) {
        now_ = {micro_batches, loss_scale, 0};
        begun_ = true;
        if (last_.divisor == 0) return 1; // nothing is left over
        const bool both = micro_batches > 0 && last_.micro_batches > 0;
        expected_ = both ? micro_batches / last_.micro_batches : 1;
        return expected_ * (loss_scale / last_.loss_scale);
    }
    /// Call it when the weights of all ranks are known. Returns the correction of the factor.
    double settle(double divisor) {
        if (!begun_) return 1;
        begun_ = false;
        const double lacks = last_.divisor == 0 ? 1 : divisor / last_.divisor / expected_;
        last_ = now_;
        last_.divisor = divisor;
        return lacks;
    }
    /// Forgets the remainder.
    void forget() {
        begun_ = false;
        last_ = {};
    }

private:
    struct Unit {
        double micro_batches = 0; ///< number of this rank's micro-batches
        double loss_scale = 1;
        double divisor = 0; ///< the sum of all ranks' weights
    };
    Unit last_; ///< the scale of the remainder
    Unit now_;
    double expected_ = 1; ///< estimated ratio of the divisors
    bool begun_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
