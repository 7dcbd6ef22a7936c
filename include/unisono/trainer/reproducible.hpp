#pragma once

/// \file
/// Policy: an update's bits are a function of its replicas' gradients alone. Not in the umbrella:
/// include it where it is used.
///
///     un::Trainer trainer{world, model, un::Replicas{.count = 8}, un::Reproducible{},
///                         un::RingReducer{}, un::AdamW{}};
///
/// With `Replicas`, 1 to 8 ranks compute the same parameters, with any synchronous reducer, over
/// any transport, with buckets of any size, however many replicas each rank hosts. The model's own
/// arithmetic is the user's: `verify_reproducible` (trainer/verify_reproducible.hpp) tests whether
/// it is deterministic. docs/reproducible_sums.md has the error bound and its derivation.

#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/core/list.hpp"
#include "unisono/observe/exact_sum.hpp"
#include "unisono/trainer/step/grid_gradient.hpp"
#include "unisono/trainer/step/grid_sums.hpp"
#include "unisono/trainer/summation.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

namespace detail {
/// \throws error bad_input
inline std::int32_t checked_headroom(const char* policy, std::int32_t found, std::int32_t most) {
    if (found < 0 || found > most) refuse_input({policy, ".headroom_bits is ", found, "; expected 0 to ", most});
    return found;
}

/// Losses and weights are added exactly and rounded once, counts as integers. Tokens are counted in
/// steps of 2^-20.
class ExactTotals final : public LossTotals {
public:
    void begin() override {
        divisor_ = ExactSum{};
        loss_ = ExactSum{};
    }
    void add(const Share& share, double loss) override {
        divisor_.add(share.divisor);
        loss_.add_product(share.multiplier, loss);
    }
    void agree(GroupCore& world, UpdateSums& sums, Call (*)()) override {
        if (world.size() > 1) {
            std::array<std::int64_t, counts + 2 * ExactSum::words> all = {
                static_cast<std::int64_t>(sums.micro_batches), static_cast<std::int64_t>(sums.samples),
                std::llrint(sums.tokens * 0x1p20), static_cast<std::int64_t>(sums.offenders)};
            divisor_.save(all.data() + counts);
            loss_.save(all.data() + counts + ExactSum::words);
            all_reduce_native(world, all, Sum{});
            sums.micro_batches = static_cast<double>(all[0]);
            sums.samples = static_cast<double>(all[1]);
            sums.tokens = static_cast<double>(all[2]) * 0x1p-20;
            sums.offenders = static_cast<double>(all[3]);
            divisor_ = ExactSum::load(all.data() + counts);
            loss_ = ExactSum::load(all.data() + counts + ExactSum::words);
        }
        sums.divisor = divisor_.value();
        sums.loss = loss_.value();
    }

private:
    static constexpr std::size_t counts = 4;
    ExactSum divisor_;
    ExactSum loss_;
};

/// Sums squares on a grid. All ranks derive this grid without communication from what the
/// parameters' grids needed.
template <class T>
class ExactSquares final : public NormSquares<T> {
public:
    void begin(std::int32_t above, std::size_t) override { sum_ = SquareSum(above); }
    void add(std::span<const T> x) override { sum_.add(x); }
    /// To this a device adds, on one grid.
    [[nodiscard]] SquareSum& exact() { return sum_; }
    void agree(GroupCore& world) override {
        std::array<std::int64_t, SquareSum::words> all;
        sum_.save(all.data());
        all_reduce_native(world, all, Sum{});
        sum_.load(all.data());
    }
    [[nodiscard]] double value() const override { return sum_.value(); }

private:
    SquareSum sum_ = SquareSum(0);
};

} // namespace detail

/// The treatment of an update with a gradient that does not fit its parameter's grid. (At a
/// parameter's first gradient that is not zero, the update is always repeated, since no grid is
/// known yet.) NaN and infinity fit no grid: the guard decides. Without a guard, `skip` skips the
/// update, and the other values stop the training.
enum class OnMisfit : std::uint8_t {
    widen, ///< the update is repeated, on a wider grid: the model is called again on the same micro-batches
    skip,  ///< the update is left out on every rank; the next has a wider grid
    stop,  ///< every rank throws an error that names the parameter; the next update has a wider grid
};

constexpr std::string_view name_of(OnMisfit what) {
    return what == OnMisfit::widen ? "widen" : (what == OnMisfit::skip ? "skip" : "stop");
}

/// Gradients are summed on a grid (arithmetic/grid.hpp), losses and weights exactly. Each
/// parameter's grid follows its gradients: after an update E = max(needed + headroom_bits, E - 1),
/// where 2^needed is above the greatest |weight * g| of any micro-batch. So a gradient may grow
/// 2^headroom_bits-fold from one update to the next. The error of an element is at most L 2^(E -
/// 52) plus half an ulp. This bound is better than that of a float sum if the addends are above
/// 2^(headroom_bits - 27) / (L - 1) of the parameter's greatest.
///
/// Cost: 8 bytes per element on the wire, except over mapped memory; 8 bytes of memory per element
/// if a rank hosts more than one replica or the reducer is not a native one; per update one
/// all_reduce of 4 bytes per parameter and one of 1 KiB. A repeated update calls the model again on
/// the same batches, so the model's buffers (running statistics) change again.
struct Reproducible {
    std::int32_t headroom_bits = 6; ///< 0 to 24
    OnMisfit on_misfit = OnMisfit::widen;

    static constexpr std::string_view name = "reproducible";
    static constexpr Family family = Family::summation;
    static constexpr bool reproducible = true;
    friend bool operator==(const Reproducible&, const Reproducible&) = default;

    /// \throws error bad_input
    [[nodiscard]] std::int32_t checked_headroom() const {
        return detail::checked_headroom("Reproducible", headroom_bits, 24);
    }

    template <class T>
    using Sums = detail::GridSums<T, std::int64_t>;
    template <class T>
    using Gradient = detail::GridGradient<T, std::int64_t>;
    using Totals = detail::ExactTotals;
    template <class T>
    using Squares = detail::ExactSquares<T>;
};

static_assert(policy_of<Reproducible, Family::summation>);

/// The same promise with integers of 4 bytes: half the bytes on the wire and in memory if gradients
/// do not travel unchanged, which is as many as floats take. The price is precision
/// (arithmetic/narrow_grid.hpp). With L micro-batches per update, the greatest |weight * g| of a
/// parameter has 30 - headroom_bits - bit_width(L) bits (23 for L = 8; a float has 24). All other
/// elements of the parameter are on the same grid: relative to that greatest, the error of each is
/// at most L 2^(headroom_bits + bit_width(L) - 30) (2^-20 for L = 8), plus half an ulp. So small
/// elements have few bits, and elements below half a step have none. This suits optimizers that are
/// linear in the gradient better than those that divide by its size.
///
/// The default headroom is less than that of `Reproducible`, since bits are few. If gradients grow
/// more than 2^headroom_bits-fold, the update is repeated (`widen`), which costs a pass but no
/// precision. Other rules and costs: as `Reproducible`. Sums that read mapped memory directly use
/// the same grid, for the same bits, without conversion to integers.
struct NarrowReproducible {
    std::int32_t headroom_bits = 3; ///< 0 to 12
    OnMisfit on_misfit = OnMisfit::widen;

    static constexpr std::string_view name = "reproducible, 4 bytes";
    static constexpr Family family = Family::summation;
    static constexpr bool reproducible = true;
    friend bool operator==(const NarrowReproducible&, const NarrowReproducible&) = default;

    /// \throws error bad_input
    [[nodiscard]] std::int32_t checked_headroom() const {
        return detail::checked_headroom("NarrowReproducible", headroom_bits, 12);
    }

    template <class T>
    using Sums = detail::GridSums<T, std::int32_t>;
    template <class T>
    using Gradient = detail::GridGradient<T, std::int32_t>;
    using Totals = detail::ExactTotals;
    template <class T>
    using Squares = detail::ExactSquares<T>;
};
static_assert(policy_of<NarrowReproducible, Family::summation>);

// The instances that the library unisono::compiled has.
#if defined(UNISONO_COMPILED_TEMPLATE)
#define UNISONO_COMPILED_GRID(T, Integer)                           \
    UNISONO_COMPILED_TEMPLATE class detail::HostImages<T, Integer>; \
    UNISONO_COMPILED_TEMPLATE class detail::GridSums<T, Integer>;   \
    UNISONO_COMPILED_TEMPLATE class detail::GridGradient<T, Integer>;
#define UNISONO_COMPILED_GRIDS(T)                                                                            \
    UNISONO_COMPILED_GRID(T, std::int64_t)                                                                   \
    UNISONO_COMPILED_GRID(T, std::int32_t)                                                                   \
    UNISONO_COMPILED_TEMPLATE class detail::ExactSquares<T>;                                                 \
    UNISONO_COMPILED_TEMPLATE void detail::grid_kernel<T>(const void*, const std::byte* const*, std::size_t, \
                                                          std::byte* const*, std::size_t, std::size_t, std::size_t);
UNISONO_COMPILED_GRIDS(float)
UNISONO_COMPILED_GRIDS(double)
#undef UNISONO_COMPILED_GRIDS
#undef UNISONO_COMPILED_GRID
#endif

UNISONO_NAMESPACE_END
