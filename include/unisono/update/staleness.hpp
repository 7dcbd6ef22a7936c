#pragma once

/// \file
/// How stale gradients were that are applied as they come.

#include "unisono/core/config.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

/// Of gradients that were applied as they came, by servers (update/served.hpp) or to common parameters (Hogwild), of all workers.
struct Staleness {
    std::uint64_t gradients = 0;
    double mean = 0;
    std::uint64_t most = 0;
    std::uint64_t most_ahead = 0; ///< clocks by which a worker was ahead of the slowest when it was answered
    std::uint64_t late = 0;       ///< gradients that were dropped instead (BackupWorkers), and are not among these

    friend bool operator==(const Staleness&, const Staleness&) = default;
};

namespace detail {

/// One rank's gradients since the ranks last met, and what all ranks found then.
class StalenessCount {
public:
    void applied(std::uint64_t staleness) {
        ++mine_.gradients;
        mine_.most = std::max(mine_.most, staleness);
        sum_ += static_cast<double>(staleness);
    }
    void ahead(std::uint64_t clocks) { mine_.most_ahead = std::max(mine_.most_ahead, clocks); }
    void dropped() { ++mine_.late; }

    /// Brings together what all ranks counted: `sum` and `most` reduce arrays of numbers over the ranks. `other`: the most of it is returned.
    template <class Sum, class Most>
    double meet(double other, Sum sum, Most most) {
        std::array<double, 3> sums = {static_cast<double>(mine_.gradients), sum_, static_cast<double>(mine_.late)};
        std::array<double, 3> maxima = {static_cast<double>(mine_.most), static_cast<double>(mine_.most_ahead), other};
        sum(sums);
        most(maxima);
        met_ = {static_cast<std::uint64_t>(sums[0]), sums[0] > 0 ? sums[1] / sums[0] : 0,
                static_cast<std::uint64_t>(maxima[0]), static_cast<std::uint64_t>(maxima[1]),
                static_cast<std::uint64_t>(sums[2])};
        if (met_.gradients != 0) known_ = met_;
        mine_ = {};
        sum_ = 0;
        return maxima[2];
    }

    /// Between the last two meetings; the same on all ranks.
    [[nodiscard]] const Staleness& last() const { return met_; }
    /// The same, of the last two meetings between which there were any.
    [[nodiscard]] const Staleness& known() const { return known_; }

private:
    Staleness mine_, met_, known_;
    double sum_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
