#pragma once

/// \file
/// What is checked before an update may happen.
///
/// A guard looks at each rank's own gradients before they are summed: afterwards one rank's NaN is everyone's, and nobody
/// can say whose it was. What it finds travels with the update's weights in one small all-reduce, so that all ranks
/// come to the same verdict: the update happens everywhere or nowhere.
///
/// Laws: `first_offender` is a pure function of the values; it does not allocate; an offender in any contribution is
/// found by the rank that made it.
///
/// | policy        | looks for                     | then                                                             |
/// |---------------|-------------------------------|------------------------------------------------------------------|
/// | `FiniteGuard` | NaN and infinity              | stops all ranks with an error that names rank and parameter, or skips the update on all |
/// | `NoGuard`     | nothing                       | costs nothing                                                    |
///
/// Declared properties: `inspects` (false: all calls are elided), `needs_agreement` (its verdict must hold on all ranks,
/// so the update must be one in which all ranks agree), `only_finite` (it looks for nothing but NaN and infinity, which sums
/// on a grid find by themselves).
/// Deliberately absent: guards that correct silently. What bounds gradients that are summed: clipping.hpp.

#include "unisono/core/element.hpp"
#include "unisono/core/policy.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// What a guard returns where all is well.
inline constexpr std::size_t no_offender = std::numeric_limits<std::size_t>::max();

/// What becomes of an update whose gradient or loss is not finite.
enum class OnOffence : std::uint8_t {
    stop, ///< every rank gets an error; parameters and optimizer state stay as they were
    skip, ///< the update is left out on every rank; training goes on
};

constexpr std::string_view name_of(OnOffence what) { return what == OnOffence::stop ? "stop" : "skip"; }

template <class G>
concept guard_policy = policy_of<G, Family::guard> &&
                       requires(const G& guard, std::span<const float> single, std::span<const double> twice) {
                           {
                               guard.first_offender(single)
                           } -> std::same_as<std::size_t>; ///< index in the span, or no_offender
                           { guard.first_offender(twice) } -> std::same_as<std::size_t>;
                           { guard.on_offence() } -> std::same_as<OnOffence>;
                           { G::inspects } -> std::convertible_to<bool>;
                           { G::needs_agreement } -> std::convertible_to<bool>;
                       };

UNISONO_NAMESPACE_END
