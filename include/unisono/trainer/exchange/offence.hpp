#pragma once

/// \file
/// The finding of a guard, and how all ranks learn of it.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/trainer/agreement.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first offender on the lowest rank that has one, or the first offender among the sums over
/// all ranks. The same on all ranks.
struct Offence {
    int rank = -1;
    std::size_t parameter = 0;
    bool loss = false;      ///< the loss, not a parameter
    bool elsewhere = false; ///< in another part of the model, on ranks of another group
    bool sum = false;       ///< each rank's gradient is finite, but their sum is not: no rank is to blame

    [[nodiscard]] bool any() const { return rank >= 0 || sum; }

    /// If a rank has several offences, the first parameter counts; the loss counts last.
    void note(const Offence& found) {
        if (rank < 0 || (!found.loss && (loss || found.parameter < parameter))) *this = found;
    }
};

/// Replaces each rank's offence (rank below 0: none) by that of the lowest rank that has one.
/// Collective.
void agree_on_offence(GroupCore& world, Offence& offence);

/// Each rank has looked at other sums. Returns the first parameter with a sum that is not finite on
/// any rank, or no_offender. Collective.
std::size_t agree_on_sums(GroupCore& world, std::size_t parameter);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void agree_on_offence(GroupCore& world, Offence& offence) {
    constexpr std::uint64_t loss_code = (std::uint64_t{1} << 32) - 1;
    constexpr std::uint64_t nothing = std::numeric_limits<std::uint64_t>::max();
    std::array<std::uint64_t, 1> mine = {nothing};
    if (offence.rank >= 0)
        mine[0] = offence.loss ? loss_code : std::min<std::uint64_t>(offence.parameter, loss_code - 1);
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, mine, all);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] == nothing) continue;
        offence = {static_cast<int>(rank), all[rank], all[rank] == loss_code, false, false};
        return;
    }
}

UNISONO_DEFINITION std::size_t agree_on_sums(GroupCore& world, std::size_t parameter) {
    const std::array<std::uint64_t, 1> mine = {parameter};
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, mine, all);
    for (const std::uint64_t one : all) parameter = std::min<std::size_t>(parameter, one);
    return parameter;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
