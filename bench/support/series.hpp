#pragma once

// Measured times and their summary: the median, the best quarter (the median of the fastest
// quarter: the time in a quiet moment) and the spread (distance of the quartiles, relative to the
// median).

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

inline double quantile(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = part * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

struct Series {
    std::string name;
    std::vector<double> seconds;

    void add(double value) { seconds.push_back(value); }
    [[nodiscard]] double median() const { return quantile(seconds, 0.5); }
    [[nodiscard]] double best_quarter() const { return quantile(seconds, 0.125); }
    [[nodiscard]] double spread() const { return (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median(); }

    [[nodiscard]] nlohmann::json json() const {
        return {{"name", name},
                {"repetitions", seconds.size()},
                {"median_us", median() * 1e6},
                {"best_quarter_us", best_quarter() * 1e6},
                {"spread", spread()}};
    }
};

/// The median of the ratios within each round, in which both took their turns in succession. A
/// change of the machine's regime between rounds affects both.
inline double paired_ratio(const Series& a, const Series& b) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(a.seconds.size(), b.seconds.size()); ++i)
        ratios.push_back(a.seconds[i] / b.seconds[i]);
    return quantile(std::move(ratios), 0.5);
}

} // namespace bench
