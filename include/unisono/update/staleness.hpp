#pragma once

/// \file
/// Staleness of gradients that are applied as they arrive.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <array>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

/// Staleness of all workers' gradients that were applied as they arrived, by servers
/// (extensions/updates/served.hpp) or to common parameters (Hogwild).
struct Staleness {
    std::uint64_t gradients = 0;
    double mean = 0;
    std::uint64_t most = 0;
    std::uint64_t most_ahead = 0; ///< clocks by which a worker was ahead of the slowest when it was answered
    std::uint64_t late = 0;       ///< gradients dropped instead of applied (BackupWorkers); not in `gradients`

    friend bool operator==(const Staleness&, const Staleness&) = default;
};

namespace detail {

/// Counts one rank's gradients since the last synchronisation, and keeps the counts of all ranks up
/// to the last synchronisation.
class StalenessCount {
public:
    void applied(std::uint64_t staleness) {
        ++mine_.gradients;
        mine_.most = std::max(mine_.most, staleness);
        sum_ += static_cast<double>(staleness);
    }
    void ahead(std::uint64_t clocks) { mine_.most_ahead = std::max(mine_.most_ahead, clocks); }
    void dropped() { ++mine_.late; }
    /// Forgets the gradients since the last synchronisation, which have been undone.
    void forget() {
        mine_ = {};
        sum_ = 0;
    }

    /// Combines the counts of all ranks: `sum` and `most` reduce arrays of numbers over the ranks.
    /// Returns the maximum of `other` over the ranks.
    template <class Sum, class Most>
    double synchronise(double other, Sum sum, Most most) {
        std::array<double, 3> sums = {static_cast<double>(mine_.gradients), sum_, static_cast<double>(mine_.late)};
        std::array<double, 3> maxima = {static_cast<double>(mine_.most), static_cast<double>(mine_.most_ahead), other};
        sum(sums);
        most(maxima);
        last_ = {static_cast<std::uint64_t>(sums[0]), sums[0] > 0 ? sums[1] / sums[0] : 0,
                 static_cast<std::uint64_t>(maxima[0]), static_cast<std::uint64_t>(maxima[1]),
                 static_cast<std::uint64_t>(sums[2])};
        if (last_.gradients != 0) known_ = last_;
        forget();
        return maxima[2];
    }

    /// Counts between the last two synchronisations; the same on all ranks.
    [[nodiscard]] const Staleness& last() const { return last_; }
    /// Counts of the most recent interval between synchronisations in which a gradient was applied.
    [[nodiscard]] const Staleness& known() const { return known_; }

private:
    Staleness mine_, last_, known_;
    double sum_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
