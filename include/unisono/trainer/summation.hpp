#pragma once

/// \file
/// Policy: how gradients, losses and weights are summed over micro-batches and over ranks.
///
/// Menu:
/// - `PlainSums`: the bits of an update depend on the addends, and on the order in which ranks add
///   them.
/// - `Reproducible` (trainer/reproducible.hpp): the bits depend on the addends alone.
/// - `NarrowReproducible` (also there): the same on a coarser grid, at half the cost.
///
/// A policy names types, which the trainer makes when it starts and then calls by their bases:
/// `Gradient<T>`, a GradientSum (step/gradient_sum.hpp) for models whose memory is whole; `Totals`,
/// a LossTotals, adds losses and weights; `Squares<T>`, a NormSquares<T>, adds the squares of the
/// elements that ranks own. Models in units use `Sums<T>` (extensions/sharded/gradients.hpp).
/// `agree` of all three gets a GroupCore that keeps the native schedule of all_reduce
/// (collective/of_core.hpp).
/// Laws: all ranks reach the same bits and the same verdict; a gradient that a guard has refused is
/// not applied (its sum may travel already); `LossTotals::agree` tells all ranks whether one of
/// them has gradients so large that plain sums may overflow. Declared property: `reproducible`.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>

UNISONO_NAMESPACE_BEGIN

namespace detail {

template <class T>
class FloatSums; // extensions/sharded/gradients.hpp

/// Sums over micro-batches: those of this rank, and after `Totals::agree` those of all ranks.
struct UpdateSums {
    double divisor = 0;
    double loss = 0; ///< sum of weighted losses
    double micro_batches = 0;
    double samples = 0;
    double tokens = 0;
    double offenders = 0; ///< number of ranks on which the guard found something
    double large = 0;     ///< number of ranks with gradients so large that sums may overflow

    static constexpr std::size_t count = 7;
    [[nodiscard]] std::array<double, count> pack() const {
        return {divisor, loss, micro_batches, samples, tokens, offenders, large};
    }
    static UpdateSums unpack(const std::array<double, count>& sums) {
        return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6]};
    }
};

/// Adds all of UpdateSums over ranks. Over micro-batches the tally adds them as doubles.
class LossTotals {
public:
    LossTotals() = default;
    LossTotals(const LossTotals&) = delete;
    LossTotals& operator=(const LossTotals&) = delete;
    virtual ~LossTotals() = default;

    /// Starts an update.
    virtual void begin() {}
    /// For sums of losses and weights that are not those of doubles.
    virtual void add(const Share& /*share*/, double /*loss*/) {}
    /// Collective. `of_parts`: as Parts::order() (parts.hpp).
    virtual void agree(GroupCore& world, UpdateSums& sums, Call (*of_parts)()) = 0;
};

/// Adds doubles over ranks by the transport's best schedule.
class PlainTotals final : public LossTotals {
public:
    UNISONO_OUTSIDE void agree(GroupCore& world, UpdateSums& sums, Call (*of_parts)()) override;

private:
    std::array<double, UpdateSums::count> packed_ = {};
    std::optional<Prepared> sum_; ///< of `packed_`
};

/// Adds the squares of the elements that this rank owns, and over ranks.
template <class T>
class NormSquares {
public:
    NormSquares() = default;
    NormSquares(const NormSquares&) = delete;
    NormSquares& operator=(const NormSquares&) = delete;
    virtual ~NormSquares() = default;

    /// `above`: as SumsOfGradients::above. `most`: of the calls of `add` that follow.
    virtual void begin(std::int32_t above, std::size_t most) = 0;
    virtual void add(std::span<const T> x) = 0;
    /// Call it after the last `add`. Waits for the device.
    virtual void finish() {}
    /// Collective.
    virtual void agree(GroupCore& world) = 0;
    [[nodiscard]] virtual double value() const = 0;
};

/// The squares of a policy's type on a device: extensions/device/kernels.hpp.
template <class Squares, class T>
[[nodiscard]] NormSquares<T>* squares_for(const HostKernels<T>&) {
    return new Squares();
}

/// Adds squares in double in order of arrival, and over ranks by the transport's best schedule.
template <class T>
class PlainSquares final : public NormSquares<T> {
public:
    void begin(std::int32_t, std::size_t) override { sum_ = 0; }
    void add(std::span<const T> x) override { sum_ += sum_of_squares(x); }
    /// Adds a sum of squares that a device has computed.
    void add_sum(double sum) { sum_ += sum; }
    void agree(GroupCore& world) override {
        std::array<double, 1> all = {sum_};
        all_reduce_native(world, all, Few<Sum>{});
        sum_ = all[0];
    }
    [[nodiscard]] double value() const override { return sum_; }

private:
    double sum_ = 0;
};

} // namespace detail

/// Floats are added by the reducer's schedule: all ranks get the same bits, which depend on the
/// order of the additions.
struct PlainSums {
    static constexpr std::string_view name = "plain sums";
    static constexpr Family family = Family::summation;
    static constexpr bool reproducible = false;
    friend bool operator==(const PlainSums&, const PlainSums&) = default;

    template <class T>
    using Sums = detail::FloatSums<T>;
    template <class T>
    using Gradient = detail::FloatGradient<T>;
    using Totals = detail::PlainTotals;
    template <class T>
    using Squares = detail::PlainSquares<T>;
};
UNISONO_CERTIFY(policy_of<PlainSums, Family::summation>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void PlainTotals::agree(GroupCore& world, UpdateSums& sums, Call (*of_parts)()) {
    if (world.size() == 1) return;
    packed_ = sums.pack();
    if (!sum_.has_value()) {
        const Call native = native_call<Collective::all_reduce, double>(Few<Sum>{});
        const CallBuffer all = buffer_of(packed_);
        sum_ = world.prepare(of_parts != nullptr && world.hosts() != nullptr ? of_parts() : native, all, all);
    }
    sum_->run();
    sums = UpdateSums::unpack(packed_);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
