#pragma once

/// \file
/// Metrics of classifiers. All count in integers, so that merging is exact.

#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/observe/metric.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

UNISONO_NAMESPACE_BEGIN

/// The harmonic mean of precision and recall of the positive class, 2 TP / (2 TP + FP + FN); 0 if
/// no sample and no prediction is positive.
class F1Metric {
public:
    static constexpr std::string_view name = "f1";
    void add(bool predicted, bool actual) {
        true_positives_ += predicted && actual ? 1 : 0;
        false_positives_ += predicted && !actual ? 1 : 0;
        false_negatives_ += !predicted && actual ? 1 : 0;
    }
    void merge(const F1Metric& other) {
        true_positives_ += other.true_positives_;
        false_positives_ += other.false_positives_;
        false_negatives_ += other.false_negatives_;
    }
    [[nodiscard]] double precision() const { return ratio(true_positives_, true_positives_ + false_positives_); }
    [[nodiscard]] double recall() const { return ratio(true_positives_, true_positives_ + false_negatives_); }
    [[nodiscard]] double value() const {
        return ratio(2 * true_positives_, 2 * true_positives_ + false_positives_ + false_negatives_);
    }

private:
    static double ratio(std::uint64_t part, std::uint64_t whole) {
        return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
    std::uint64_t true_positives_ = 0;
    std::uint64_t false_positives_ = 0;
    std::uint64_t false_negatives_ = 0;
};

namespace detail {

__extension__ using PairCount = unsigned __int128;

/// Takes groups of equal scores in ascending order. The area under the ROC curve is the share of
/// (positive, negative) pairs in which the positive sample has the higher score; ties count half
/// (Mann & Whitney 1947).
class RankedPairs {
public:
    void add(std::uint64_t positives, std::uint64_t negatives) {
        // Twice the number of won pairs, so that half a pair is a whole number.
        won_twice_ += PairCount{positives} * (PairCount{2} * negatives_ + negatives);
        positives_ += positives;
        negatives_ += negatives;
    }
    /// NaN unless there are samples of both classes.
    [[nodiscard]] double area() const {
        const auto pairs = PairCount{positives_} * negatives_;
        return static_cast<double>(won_twice_) / 2 / static_cast<double>(pairs);
    }

private:
    PairCount won_twice_ = 0;
    std::uint64_t positives_ = 0;
    std::uint64_t negatives_ = 0;
};

} // namespace detail

/// The area under the ROC curve, exact. Keeps every score: 16 bytes per sample.
class AucMetric {
public:
    static constexpr std::string_view name = "auc";
    void add(double score, bool positive) {
        if (detail::is_nan(score)) refuse_input("AucMetric: a score is NaN; expected a number");
        state_.push_back(score);
        state_.push_back(positive ? 1 : 0);
    }
    void merge(const AucMetric& other) {
        const std::size_t count = other.state_.size(); // `other` may be this object
        state_.reserve(state_.size() + count);
        for (std::size_t i = 0; i < count; ++i) state_.push_back(other.state_[i]);
    }
    [[nodiscard]] std::size_t size() const { return state_.size() / 2; }
    [[nodiscard]] double value() const {
        std::vector<double> sorted = state_;
        // Not std::sort, since its instantiation would add a quarter of a second to the compilation
        // of every program that includes this header.
        if (!sorted.empty()) ::qsort(sorted.data(), size(), 2 * sizeof(double), by_score);
        detail::RankedPairs pairs;
        for (std::size_t i = 0; i < sorted.size();) {
            std::uint64_t of_class[2] = {0, 0};
            const double score = sorted[i];
            for (; i < sorted.size() && sorted[i] == score; i += 2) ++of_class[sorted[i + 1] != 0 ? 1 : 0];
            pairs.add(of_class[1], of_class[0]);
        }
        return pairs.area();
    }

    void save(std::vector<double>& out) const {
        for (const double x : state_) out.push_back(x);
    }
    void load(std::span<const double> in) {
        if (in.size() % 2 != 0) refuse_input("AucMetric: the state has an odd number of values");
        state_.clear();
        for (std::size_t i = 0; i < in.size(); i += 2) add(in[i], in[i + 1] != 0);
    }

private:
    static int by_score(const void* a, const void* b) {
        const double x = *static_cast<const double*>(a);
        const double y = *static_cast<const double*>(b);
        return x < y ? -1 : (x > y ? 1 : 0);
    }
    std::vector<double> state_; ///< score and class, alternating
};

/// The area under the ROC curve of scores in [0, 1] that are rounded down to one of `Bins` equal
/// bins (other scores count as 0 or 1). Memory: 16 bytes per bin, for any number of samples.
template <std::size_t Bins = 1024>
class BinnedAucMetric {
    static_assert(Bins > 0);

public:
    static constexpr std::string_view name = "auc";
    void add(double score, bool positive) {
        if (detail::is_nan(score)) refuse_input("BinnedAucMetric: a score is NaN; expected a number");
        const double scaled = detail::rounded_down(detail::clamped(score, 0.0, 1.0) * static_cast<double>(Bins));
        const std::size_t bin = std::min(static_cast<std::size_t>(scaled), Bins - 1);
        ++(positive ? positives_ : negatives_)[bin];
    }
    void merge(const BinnedAucMetric& other) {
        for (std::size_t b = 0; b < Bins; ++b) {
            positives_[b] += other.positives_[b];
            negatives_[b] += other.negatives_[b];
        }
    }
    [[nodiscard]] double value() const {
        detail::RankedPairs pairs;
        for (std::size_t b = 0; b < Bins; ++b) pairs.add(positives_[b], negatives_[b]);
        return pairs.area();
    }

private:
    std::array<std::uint64_t, Bins> positives_ = {};
    std::array<std::uint64_t, Bins> negatives_ = {};
};

UNISONO_CERTIFY(mergeable_metric<AccuracyMetric>);
UNISONO_CERTIFY(mergeable_metric<F1Metric>);
UNISONO_CERTIFY(mergeable_metric<AucMetric>);
UNISONO_CERTIFY(mergeable_metric<BinnedAucMetric<>>);

UNISONO_NAMESPACE_END
