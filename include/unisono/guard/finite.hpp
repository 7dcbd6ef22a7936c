#pragma once

/// \file
/// Finds NaN and infinity in gradients.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/guard/guard.hpp"

UNISONO_NAMESPACE_BEGIN

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
