#pragma once

/// \file
/// Learning-rate schedules: the learning rate of each update, computed from an optimizer's base
/// rate.
///
/// A policy `P` of the family learning_rate has
/// - `check() const`: refuses invalid parameters with bad_input that names the parameter;
/// - `rate(base, point) const -> double`: a pure function. Every rank computes the same rate, and a
///   resumed run continues with the same rates.
///
/// Menu: ConstantRate (the default), WarmupRate, CosineRate, StepDecayRate, and BatchScaledRate for
/// runs whose global batch differs from the one for which the base rate was tuned.
/// `then(WarmupRate{...}, CosineRate{})` runs one schedule after another;
/// `compose(BatchScaledRate{...}, CosineRate{})` applies one schedule to the result of another.
/// Absent: rates that react to the loss. They have a state on which ranks would have to agree.

#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstdint>
#include <numbers>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The position in a training at which a rate is asked for.
struct RatePoint {
    std::uint64_t update = 0;        ///< updates already made: 0 before the first
    std::uint64_t updates_total = 0; ///< updates of the whole training, without those left out so far; 0: unknown
    std::uint64_t global_batch = 0;  ///< samples per update, over all replicas; 0: unknown
};

/// Policies that compute an update's learning rate from the optimizer's and the progress.
template <class P>
concept learning_rate_policy =
    policy_of<P, Family::learning_rate> && requires(const P& policy, const RatePoint& point) {
        policy.check();
        { policy.rate(1.0, point) } -> std::same_as<double>;
    };

/// The base rate at every update.
struct ConstantRate {
    static constexpr std::string_view name = "ConstantRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const ConstantRate&, const ConstantRate&) = default;

    void check() const {}
    [[nodiscard]] double rate(double base, const RatePoint&) const { return base; }
};

/// base * (f + (1 - f) * (update + 1) / updates) during the first `updates` updates, f being
/// `start_factor`; then base.
/// Source: Goyal et al. 2017, section 2.2 (gradual warm-up).
struct WarmupRate {
    std::uint64_t updates = 1;
    double start_factor = 0;

    static constexpr std::string_view name = "WarmupRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const WarmupRate&, const WarmupRate&) = default;

    void check() const;
    [[nodiscard]] double rate(double base, const RatePoint& point) const;
};

/// base * (f + (1 - f) * (1 + cos(pi * update / updates)) / 2), f being `final_factor`; base * f
/// afterwards.
/// Source: Loshchilov & Hutter, ICLR 2017, equation 5 (without restarts).
struct CosineRate {
    double final_factor = 0;
    std::uint64_t updates = 0; ///< 0: the whole training; its length must then be known

    static constexpr std::string_view name = "CosineRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const CosineRate&, const CosineRate&) = default;

    void check() const;
    [[nodiscard]] double rate(double base, const RatePoint& point) const;
};

/// base * factor^floor(update / every).
struct StepDecayRate {
    std::uint64_t every = 1; ///< number of updates between two steps
    double factor = 0.1;

    static constexpr std::string_view name = "StepDecayRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const StepDecayRate&, const StepDecayRate&) = default;

    void check() const;
    [[nodiscard]] double rate(double base, const RatePoint& point) const;
};

/// How a learning rate grows with the global batch.
enum class BatchScaling : std::uint8_t {
    linear,      ///< Goyal et al. 2017: for SGD
    square_root, ///< Krizhevsky 2014: keeps the variance of an update; for Adam and similar optimizers
};

/// base * k or base * sqrt(k). k is the global batch divided by `base_batch`, the batch for which
/// the base rate was tuned.
struct BatchScaledRate {
    std::uint64_t base_batch = 256; ///< samples
    BatchScaling scaling = BatchScaling::linear;

    static constexpr std::string_view name = "BatchScaledRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const BatchScaledRate&, const BatchScaledRate&) = default;

    void check() const {
        if (base_batch == 0) refuse_input("BatchScaledRate.base_batch is 0; expected at least 1 sample");
    }
    [[nodiscard]] double rate(double base, const RatePoint& point) const;
};

/// `first` for its `updates` updates, then `second`. `second` sees a training that begins where
/// `first` ends; its total is shorter by the updates of `first`.
template <class First, class Second>
struct ChainedRate {
    First first = {};
    Second second = {};

    static constexpr std::string_view name = "ChainedRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const ChainedRate&, const ChainedRate&) = default;

    void check() const {
        first.check();
        second.check();
        if (first.updates == 0) {
            refuse_input({First::name, ".updates is 0; expected at least 1 before ", Second::name});
        }
    }
    [[nodiscard]] double rate(double base, const RatePoint& point) const {
        if (point.update < first.updates) return first.rate(base, point);
        RatePoint later = point;
        later.update -= first.updates;
        // A training that ends within the warm-up still gives `second` a length of one update,
        // since `second` may divide by the length.
        if (point.updates_total != 0) {
            later.updates_total = point.updates_total > first.updates ? point.updates_total - first.updates : 1;
        }
        return second.rate(base, later);
    }
};

/// `second` applied to the result of `first`.
template <class First, class Second>
struct ComposedRate {
    First first = {};
    Second second = {};

    static constexpr std::string_view name = "ComposedRate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const ComposedRate&, const ComposedRate&) = default;

    void check() const {
        first.check();
        second.check();
    }
    [[nodiscard]] double rate(double base, const RatePoint& point) const {
        return second.rate(first.rate(base, point), point);
    }
};

/// One schedule for its own number of updates, then another.
template <learning_rate_policy First, learning_rate_policy Second>
    requires requires(const First& first) {
        { first.updates } -> detail::converts_to<std::uint64_t>;
    }
ChainedRate<First, Second> then(const First& first, const Second& second) {
    return {first, second};
}

/// One schedule applied to the result of another.
template <learning_rate_policy First, learning_rate_policy Second>
ComposedRate<First, Second> compose(const First& first, const Second& second) {
    return {first, second};
}

UNISONO_CERTIFY(learning_rate_policy<ConstantRate>);
UNISONO_CERTIFY(learning_rate_policy<WarmupRate>);
UNISONO_CERTIFY(learning_rate_policy<CosineRate>);
UNISONO_CERTIFY(learning_rate_policy<StepDecayRate>);
UNISONO_CERTIFY(learning_rate_policy<BatchScaledRate>);
UNISONO_CERTIFY(learning_rate_policy<ChainedRate<WarmupRate, CosineRate>>);
UNISONO_CERTIFY(learning_rate_policy<ComposedRate<BatchScaledRate, CosineRate>>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void check_rate(bool fits, const char* parameter, double found, const char* expected) {
    if (fits && detail::is_finite(found)) return;
    refuse_input({parameter, " is ", found, "; expected ", expected});
}

} // namespace detail

UNISONO_DEFINITION void WarmupRate::check() const {
    if (updates == 0) refuse_input("WarmupRate.updates is 0; expected at least 1");
    detail::check_rate(start_factor >= 0, "WarmupRate.start_factor", start_factor, "a finite number of at least 0");
}

UNISONO_DEFINITION double WarmupRate::rate(double base, const RatePoint& point) const {
    if (point.update >= updates) return base;
    const double done = static_cast<double>(point.update + 1) / static_cast<double>(updates);
    return base * (start_factor + (1 - start_factor) * done);
}

UNISONO_DEFINITION void CosineRate::check() const {
    detail::check_rate(final_factor >= 0, "CosineRate.final_factor", final_factor, "a finite number of at least 0");
}

UNISONO_DEFINITION double CosineRate::rate(double base, const RatePoint& point) const {
    const std::uint64_t length = updates != 0 ? updates : point.updates_total;
    if (length == 0) {
        refuse_input("CosineRate.updates is 0 and the length of the training is unknown, as in a loop of your own or "
                     "with AccumulateTokens; expected one of the two");
    }
    const double done = static_cast<double>(std::min(point.update, length)) / static_cast<double>(length);
    return base * (final_factor + (1 - final_factor) * (1 + detail::cosine_of(std::numbers::pi * done)) / 2);
}

UNISONO_DEFINITION void StepDecayRate::check() const {
    if (every == 0) refuse_input("StepDecayRate.every is 0; expected at least 1 update");
    detail::check_rate(factor >= 0, "StepDecayRate.factor", factor, "a finite number of at least 0");
}

UNISONO_DEFINITION double StepDecayRate::rate(double base, const RatePoint& point) const {
    const std::uint64_t decays = point.update / every;
    return base * detail::power_of(factor, static_cast<double>(decays));
}

UNISONO_DEFINITION double BatchScaledRate::rate(double base, const RatePoint& point) const {
    if (point.global_batch == 0) refuse_input("BatchScaledRate needs the global batch, which is unknown here");
    const double k = static_cast<double>(point.global_batch) / static_cast<double>(base_batch);
    return base * (scaling == BatchScaling::linear ? k : detail::root_of(k));
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
