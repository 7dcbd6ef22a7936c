#pragma once

/// \file
/// Metrics by which a run is judged, gathered on each rank and merged.
///
/// A metric `M` is copyable and has
/// - `merge(other)`: adds what another rank's metric has seen;
/// - `value() const`: a number;
/// and can be sent: it is trivially copyable, or has `save(std::vector<double>&) const`, which
/// appends its state, and `load(std::span<const double>)`, which replaces it. Each metric defines
/// its own `add(...)`.
///
/// Laws
/// - A new metric is neutral: merging it changes nothing.
/// - Merging over any split of the samples gives the value that one rank with all samples would
///   have. The metrics here give the same bits: they count in integers or sum exactly. The trainer
///   merges in rank order.
///
/// Menu: MeanMetric (weighted; losses), SumMetric, MaxMetric, MinMetric, AccuracyMetric, F1Metric
/// (binary), AucMetric (exact; its state grows with the samples), BinnedAucMetric (fixed state,
/// scores in [0, 1]). Deliberately absent: means of the ranks' values, which are wrong as soon as
/// ranks have different numbers of samples.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"
#include "unisono/observe/exact_sum.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class M>
concept saves_itself = requires(M& metric, const M& other, std::vector<double>& out, std::span<const double> in) {
    other.save(out);
    metric.load(in);
};

} // namespace detail

/// Metrics that take in another rank's state, and give one number.
template <class M>
concept mergeable_metric = detail::copyable_value<M> && (__is_trivially_copyable(M) ||
                                                         detail::saves_itself<M>)&&requires(M& metric, const M& other) {
    metric.merge(other);
    { other.value() } -> detail::converts_to<double>;
};

/// A metric's state as bytes, for a gather. The number of bytes may differ between ranks.
template <mergeable_metric M>
std::vector<std::byte> metric_bytes(const M& metric) {
    if constexpr (detail::saves_itself<M>) {
        std::vector<double> state;
        metric.save(state);
        std::vector<std::byte> bytes(state.size() * sizeof(double));
        if (!bytes.empty()) std::memcpy(bytes.data(), state.data(), bytes.size());
        return bytes;
    } else {
        std::vector<std::byte> bytes(sizeof(M));
        std::memcpy(bytes.data(), &metric, sizeof(M));
        return bytes;
    }
}

/// Merges the state that `metric_bytes` made on another rank. `metric` must have the same
/// parameters (such as bins). Errors: bad_input if the bytes cannot be such a state.
template <mergeable_metric M>
void merge_bytes(M& metric, std::span<const std::byte> bytes) {
    M other = metric;
    if constexpr (detail::saves_itself<M>) {
        if (bytes.size() % sizeof(double) != 0)
            refuse_input({"the state of a metric has ", bytes.size(), " bytes; expected whole doubles"});
        std::vector<double> state(bytes.size() / sizeof(double));
        if (!bytes.empty()) std::memcpy(state.data(), bytes.data(), bytes.size());
        other.load(state);
    } else {
        if (bytes.size() != sizeof(M))
            refuse_input({"the state of a metric has ", bytes.size(), " bytes; expected ", sizeof(M)});
        std::memcpy(static_cast<void*>(&other), bytes.data(), sizeof(M));
    }
    metric.merge(other);
}

/// sum of w * x over sum of w, both exact unless a product w * x is beyond the range of double; NaN
/// before the first sample. A sample of weight 0 counts nothing, also if x is not finite.
class MeanMetric {
public:
    static constexpr std::string_view name = "mean";
    void add(double x, double weight = 1) {
        if (weight == 0) return;
        sum_.add_product(x, weight);
        weight_.add(weight);
    }
    void merge(const MeanMetric& other) {
        sum_.merge(other.sum_);
        weight_.merge(other.weight_);
    }
    [[nodiscard]] double weight() const { return weight_.value(); }
    [[nodiscard]] double value() const { return sum_.value() / weight_.value(); }

private:
    ExactSum sum_;
    ExactSum weight_;
};

/// The exact sum, rounded once.
class SumMetric {
public:
    static constexpr std::string_view name = "sum";
    void add(double x) { sum_.add(x); }
    void merge(const SumMetric& other) { sum_.merge(other.sum_); }
    [[nodiscard]] double value() const { return sum_.value(); }

private:
    ExactSum sum_;
};

/// The largest value; minus infinity before the first. NaN if any value is NaN. 0 is above -0, so
/// that the order of samples does not matter.
class MaxMetric {
public:
    static constexpr std::string_view name = "max";
    void add(double x) {
        if (largest_ < x || detail::is_nan(x) || (x == largest_ && !detail::has_sign(x))) largest_ = x;
    }
    void merge(const MaxMetric& other) { add(other.largest_); }
    [[nodiscard]] double value() const { return largest_; }

private:
    double largest_ = -std::numeric_limits<double>::infinity();
};

/// The smallest value; infinity before the first. NaN if any value is NaN. -0 is below 0.
class MinMetric {
public:
    static constexpr std::string_view name = "min";
    void add(double x) {
        if (x < smallest_ || detail::is_nan(x) || (x == smallest_ && detail::has_sign(x))) smallest_ = x;
    }
    void merge(const MinMetric& other) { add(other.smallest_); }
    [[nodiscard]] double value() const { return smallest_; }

private:
    double smallest_ = std::numeric_limits<double>::infinity();
};

UNISONO_CERTIFY(mergeable_metric<MeanMetric>);
UNISONO_CERTIFY(mergeable_metric<SumMetric>);
UNISONO_CERTIFY(mergeable_metric<MaxMetric>);
UNISONO_CERTIFY(mergeable_metric<MinMetric>);

namespace detail {

template <std::integral T>
constexpr bool is_negative(T number) {
    if constexpr (std::signed_integral<T>) return number < 0;
    else return false;
}
} // namespace detail

/// The share of correct predictions; NaN before the first prediction. It counts in integers, so
/// that merging is exact.
class AccuracyMetric {
public:
    static constexpr std::string_view name = "accuracy";
    void add(bool right) {
        right_ += right ? 1 : 0;
        ++all_;
    }
    /// Classes as numbers or names, also of two types, such as int and std::int64_t.
    template <class Predicted, class Actual>
        requires(std::integral<Predicted> && std::integral<Actual>) ||
                requires(const Predicted& predicted, const Actual& actual) { predicted == actual; }
    void add(const Predicted& predicted, const Actual& actual) {
        if constexpr (std::integral<Predicted> && std::integral<Actual>)
            add(detail::is_negative(predicted) == detail::is_negative(actual) &&
                static_cast<std::uint64_t>(predicted) == static_cast<std::uint64_t>(actual));
        else add(predicted == actual);
    }
    void merge(const AccuracyMetric& other) {
        right_ += other.right_;
        all_ += other.all_;
    }
    [[nodiscard]] std::uint64_t right() const { return right_; }
    [[nodiscard]] std::uint64_t all() const { return all_; }
    [[nodiscard]] double value() const { return static_cast<double>(right_) / static_cast<double>(all_); }

private:
    std::uint64_t right_ = 0;
    std::uint64_t all_ = 0;
};

UNISONO_NAMESPACE_END
