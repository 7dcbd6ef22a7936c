#pragma once

/// \file
/// No guard: gradients are used as they are.

#include "unisono/guard/guard.hpp"

UNISONO_NAMESPACE_BEGIN

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

UNISONO_NAMESPACE_END
