#pragma once

/// \file
/// What updates have in common for which each rank goes its own way for a while (see update.hpp).
///
/// A policy of the kind declares `local`, and says two things besides what an update policy says, both functions of what all
/// ranks know alike:
///  - `alone(updates)`: after so many updates of the training, whether the next one is each rank's own: its gradients are not
///    summed, its verdict and report are its own, and its optimizer works on its own copy of everything;
///  - `meets_after(own)`: whether the ranks meet after so many updates of their own (those that were skipped count).
/// A meeting makes the parameters of all ranks their mean; with a member `outer`, an optimizer policy, that takes a step instead: from
/// the parameters of the last meeting, by the mean of how far the ranks have gone from there, the other way round (the pseudo-gradient
/// of federated averaging). After a meeting the parameters are equal on all ranks, to the bit.
///
/// With a compression the ranks say how far they have come from the parameters that they last had in common, and that is compressed.
/// The inner optimizer's state stays with its rank. A NaN that a guard finds stops, or skips, that rank's own update.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/update/synchronous.hpp"

#include <concepts>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

template <class U>
concept local_update_policy = update_policy<U> && requires(const U& update, std::uint64_t updates) {
    requires U::local;
    { update.alone(updates) } -> std::same_as<bool>;
    { update.meets_after(updates) } -> std::same_as<bool>;
    update.check();
};

namespace detail {

inline void check_steps(std::string_view name, std::uint64_t steps) {
    if (steps == 0) refuse_input({name, ".steps is 0; expected at least one update between two meetings"});
}

} // namespace detail
UNISONO_NAMESPACE_END
