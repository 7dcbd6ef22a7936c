#pragma once

/// \file
/// The check of gradients and losses before an update may happen.
///
/// A guard inspects each rank's own gradients before they are summed: afterwards one rank's NaN is
/// in all sums, and its origin is lost. The guard's result travels with the update's weights in one
/// small all-reduce, so that all ranks reach the same verdict: the update happens on all ranks or
/// on none.
///
/// Laws: `first_offender` is a pure function of the values and does not allocate; the rank that
/// made a contribution inspects it.
///
/// Menu:
/// - `FiniteGuard` looks for NaN and infinity. It stops all ranks with an error that names rank and
///   parameter, or skips the update on all.
/// - `NoGuard` looks for nothing, and costs nothing.
///
/// Declared properties: `inspects` (false: all calls are elided), `needs_agreement` (its verdict
/// must hold on all ranks, so the update must be one in which all ranks agree), `only_finite` (it
/// looks only for NaN and infinity, which sums on a grid find as well). Deliberately absent: guards
/// that correct silently. clipping.hpp bounds gradients after they are summed.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The result of a guard that found nothing.
inline constexpr std::size_t no_offender = std::numeric_limits<std::size_t>::max();

/// The treatment of an update whose gradient or loss is not finite.
enum class OnOffence : std::uint8_t {
    stop, ///< every rank throws an error; parameters and optimizer state are unchanged
    skip, ///< every rank discards the update; training continues
};

constexpr std::string_view name_of(OnOffence what) { return what == OnOffence::stop ? "stop" : "skip"; }

/// Policies that look for gradients that no update may use. \see OnOffence
template <class G>
concept guard_policy = policy_of<G, Family::guard> &&
                       requires(const G& guard, std::span<const float> single, std::span<const double> twice) {
                           {
                               guard.first_offender(single)
                           } -> std::same_as<std::size_t>; ///< index in the span, or no_offender
                           { guard.first_offender(twice) } -> std::same_as<std::size_t>;
                           { guard.on_offence() } -> std::same_as<OnOffence>;
                           { G::inspects } -> detail::converts_to<bool>;
                           { G::needs_agreement } -> detail::converts_to<bool>;
                       };

/// All gradients go into the parameters, including NaN.
struct NoGuard {
    static constexpr std::string_view name = "none";
    static constexpr Family family = Family::guard;
    static constexpr bool inspects = false;
    static constexpr bool needs_agreement = false;
    friend bool operator==(const NoGuard&, const NoGuard&) = default;

    template <class T>
    [[nodiscard]] constexpr std::size_t first_offender(std::span<const T>) const {
        return no_offender;
    }
    [[nodiscard]] constexpr OnOffence on_offence() const { return OnOffence::stop; }
};
UNISONO_CERTIFY(guard_policy<NoGuard>);

/// Stops, or skips the update, if any rank's gradient or loss is NaN or infinite. Cost: one read of
/// the gradients.
struct FiniteGuard {
    OnOffence action = OnOffence::stop;

    static constexpr std::string_view name = "finite";
    static constexpr Family family = Family::guard;
    static constexpr bool inspects = true;
    static constexpr bool needs_agreement = true;
    static constexpr bool only_finite = true;
    friend bool operator==(const FiniteGuard&, const FiniteGuard&) = default;

    template <floating_element T>
    [[nodiscard]] std::size_t first_offender(std::span<const T> values) const {
        static_assert(npos == no_offender);
        return first_non_finite(values);
    }
    [[nodiscard]] OnOffence on_offence() const { return action; }
};
UNISONO_CERTIFY(guard_policy<FiniteGuard>);

UNISONO_NAMESPACE_END
