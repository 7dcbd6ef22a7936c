#pragma once

/// \file
/// The grids on which gradients are summed, and the rule by which they follow the gradients.
///
/// Each parameter has a grid of its own, so a parameter with small gradients loses no precision to
/// one with large gradients, and buckets do not matter. The grid follows the range of the
/// parameter's gradients. The rule uses only a number that is the same on all ranks: the greatest
/// exponent that any micro-batch needed, which does not depend on the hosts.

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/layout/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The grids of all parameters.
class GridRange {
public:
    static constexpr std::int32_t unknown = Grid::nothing; ///< no gradient other than zero has been seen

    GridRange(const Layout& layout, std::int32_t headroom, std::int32_t least) : headroom_(headroom), least_(least) {
        for (std::size_t p = 0; p < layout.parameters(); ++p) {
            stretches_.push_back({layout.start_of(p) + layout.shapes()[p].count, least});
            exponents_.push_back(unknown);
            needed_.push_back(Grid::nothing);
        }
    }

    void begin() {
        std::fill(needed_.begin(), needed_.end(), Grid::nothing);
        misfit_ = no_offender;
    }
    void need(std::size_t parameter, std::int32_t exponent) {
        needed_[parameter] = std::max(needed_[parameter], exponent);
    }
    [[nodiscard]] std::size_t first_not_finite() const {
        for (std::size_t p = 0; p < needed_.size(); ++p)
            if (needed_[p] == Grid::not_finite) return p;
        return no_offender;
    }

    /// Takes the maximum of all ranks' needs. A grid's exponent must exceed it by `more` bits for
    /// all addends to fit (`headroom_of`). Returns false if a parameter's grid is too fine.
    bool agree(GroupCore& world, std::int32_t more) {
        if (world.size() > 1) all_reduce_native(world, needed_, Max{});
        more_ = more;
        misfit_ = no_offender;
        only_new_ = true;
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing || needed_[p] + more_ <= stretches_[p].exponent) continue;
            if (misfit_ == no_offender) misfit_ = p;
            if (exponents_[p] != unknown) only_new_ = false;
        }
        return misfit_ == no_offender;
    }

    /// Moves the grids after an update to `headroom` bits above what was needed, but by at most one
    /// bit towards finer steps. Keeps a grid if all gradients of its parameter were zero.
    void adapt() {
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing) continue;
            const std::int32_t wanted = needed_[p] + more_ + headroom_;
            set(p, exponents_[p] == unknown ? wanted : std::max(wanted, exponents_[p] - 1));
        }
    }
    /// After a misfit: gives grids that were too fine their headroom, and keeps the others.
    void widen() {
        if (misfit_ == no_offender) return;
        for (std::size_t p = 0; p < needed_.size(); ++p) {
            if (needed_[p] == Grid::nothing || needed_[p] + more_ <= stretches_[p].exponent) continue;
            set(p, needed_[p] + more_ + headroom_);
        }
    }

    /// Returns E such that every element of the sum of `micro_batches` micro-batches is below 2^E.
    /// After `agree` it is the same on all ranks.
    [[nodiscard]] std::int32_t above_sums(std::int64_t micro_batches) const {
        std::int32_t most = Grid::nothing;
        for (const std::int32_t needed : needed_) most = std::max(most, needed);
        return most + static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(micro_batches)));
    }

    [[nodiscard]] std::size_t misfit() const { return misfit_; } ///< the first parameter whose grid was too fine
    /// No grid was known yet for any parameter whose grid was too fine.
    [[nodiscard]] bool only_new() const { return only_new_; }

    [[nodiscard]] std::span<const GridStretch> stretches() const { return stretches_; }
    /// Part of the run's state: one exponent per parameter, `unknown` at first.
    [[nodiscard]] std::span<const std::int32_t> exponents() const { return exponents_; }
    /// Empty: no grid is known, as at first.
    void restore(std::span<const std::int32_t> saved) {
        if (saved.empty()) {
            std::fill(exponents_.begin(), exponents_.end(), unknown);
            for (GridStretch& one : stretches_) one.exponent = least_;
            return;
        }
        if (saved.size() != exponents_.size())
            refuse_input({"the grids of ", saved.size(), " parameters were given; expected ", exponents_.size()});
        for (std::size_t p = 0; p < saved.size(); ++p)
            if (saved[p] != unknown && (saved[p] < least_ || saved[p] > Grid::greatest))
                refuse_input({"the grid of parameter ", p, " has exponent ", saved[p], "; expected ", least_, " to ",
                              Grid::greatest});
        for (std::size_t p = 0; p < saved.size(); ++p) {
            exponents_[p] = saved[p];
            stretches_[p].exponent = saved[p] == unknown ? least_ : saved[p];
        }
    }

private:
    void set(std::size_t p, std::int32_t exponent) {
        exponents_[p] = std::clamp(exponent, least_, Grid::greatest);
        stretches_[p].exponent = exponents_[p];
    }

    std::int32_t headroom_;
    std::int32_t least_;
    std::int32_t more_ = 0;
    List<GridStretch> stretches_;
    List<std::int32_t> exponents_;
    List<std::int32_t> needed_;
    std::size_t misfit_ = no_offender;
    bool only_new_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
