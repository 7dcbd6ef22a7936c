#pragma once

/// \file
/// The share of correct predictions. It counts in integers, so that merging is exact.

#include "unisono/observe/metric.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {
template <std::integral T>
constexpr bool is_negative(T number) {
    if constexpr (std::signed_integral<T>) return number < 0;
    else return false;
}
} // namespace detail

/// The share of correct predictions; NaN before the first prediction.
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
