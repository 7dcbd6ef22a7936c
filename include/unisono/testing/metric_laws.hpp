#pragma once

/// \file
/// The laws of observe/metric.hpp for any metric, and a minimal metric.

#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/observe/metric.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal metric: the number of samples. It is trivially copyable, so it is sent as it is.
struct ArchetypeMetric {
    std::uint64_t seen = 0;
    void merge(const ArchetypeMetric& other) { seen += other.seen; }
    [[nodiscard]] double value() const { return static_cast<double>(seen); }
};
static_assert(mergeable_metric<ArchetypeMetric>);

/// The parameters of the trial.
struct MetricTrial {
    double tolerance = 0; ///< relative tolerance between merged and whole; 0: equal bits, and all NaNs are equal
};

/// Merging over any split of `samples` samples, directly and through bytes, gives the value of one
/// rank with all samples. A new metric is neutral. `fresh` is a new metric; `feed(metric, i)` adds
/// sample i of 0 to samples - 1.
template <mergeable_metric Metric, class Feed>
Violations metric_laws(const Metric& fresh, std::size_t samples, Feed feed, const MetricTrial& trial = {}) {
    Violations found;
    const auto same = [&](double a, double b) {
        if (unisono::detail::is_nan(a) && unisono::detail::is_nan(b)) return true;
        if (trial.tolerance == 0) return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
        if (!unisono::detail::is_finite(a) || !unisono::detail::is_finite(b))
            return a == b; // any fraction of infinity is infinite
        return std::abs(a - b) <= trial.tolerance * std::max(std::abs(a), std::abs(b));
    };
    const auto compare = [&](double merged, double whole, const std::string& how) {
        if (!same(merged, whole))
            found.add(concat({how, ": ", number_text(merged), " instead of ", number_text(whole), " (they differ by ",
                              number_text(merged - whole), ")"}));
    };
    const auto try_it = [&](const std::string& how, auto&& body) {
        try {
            body();
        } catch (const std::exception& thrown) {
            found.add(concat({how, ": threw ", thrown.what()}));
        }
    };

    Metric whole = fresh;
    for (std::size_t i = 0; i < samples; ++i) feed(whole, i);
    const double value = whole.value();

    try_it("a new metric merged in", [&] {
        Metric merged = whole;
        merged.merge(fresh);
        compare(merged.value(), value, "a new metric merged in");
        Metric late = fresh;
        late.merge(whole);
        compare(late.value(), value, "merged into a new metric");
    });
    for (const std::size_t ranks : {1u, 2u, 3u, 5u, 8u}) {
        // In blocks of nearly equal size, in turn, and all on the last rank, so that the others
        // have no samples.
        const char* const names[] = {" in blocks", " in turn", " with all of the samples"};
        for (int way = 0; way < 3; ++way) {
            std::vector<Metric> parts(ranks, fresh);
            for (std::size_t i = 0; i < samples; ++i)
                feed(parts[way == 0 ? i * ranks / samples : way == 1 ? i % ranks : ranks - 1], i);
            const std::string how = concat({"merged from ", ranks, " ranks,", names[way]});
            try_it(how, [&] {
                Metric merged = parts[0];
                for (std::size_t r = 1; r < ranks; ++r) {
                    const double before = parts[r].value();
                    merged.merge(parts[r]);
                    if (!same(parts[r].value(), before)) found.add(concat({how, ": merge() changed the other metric"}));
                }
                compare(merged.value(), value, how);
            });
            try_it(concat({how, " as bytes"}), [&] {
                Metric merged = fresh;
                for (const Metric& part : parts) merge_bytes(merged, metric_bytes(part));
                compare(merged.value(), value, concat({how, " as bytes"}));
            });
        }
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
