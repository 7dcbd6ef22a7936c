#pragma once

/// \file
/// The laws of guard/guard.hpp for any guard, and a minimal guard.

#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal guard that inspects: stops at the first NaN.
struct ArchetypeGuard {
    static constexpr std::string_view name = "archetype guard";
    static constexpr Family family = Family::guard;
    static constexpr bool inspects = true;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const ArchetypeGuard&, const ArchetypeGuard&) = default;

    template <class T>
    [[nodiscard]] std::size_t first_offender(std::span<const T> values) const {
        for (std::size_t i = 0; i < values.size(); ++i)
            if (values[i] != values[i]) return i;
        return no_offender;
    }
    [[nodiscard]] OnOffence on_offence() const { return OnOffence::stop; }
};
static_assert(guard_policy<ArchetypeGuard>);

/// The values that a guard must find, and those that it must not find; by default those of
/// FiniteGuard. Each must be the same kind of value in float and in double.
struct GuardTrial {
    std::vector<double> offenders = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity()};
    std::vector<double> good = {0.0, 1.0, -1.0, -0.0, 0x1p-149, 0x1p127, -0x1p127, 1e-3};
};

namespace detail {

template <class T, guard_policy Guard>
void guard_laws_of(const Guard& guard, const GuardTrial& trial, Violations& found) {
    const auto first = [&](const std::vector<T>& values, std::size_t count) {
        return guard.first_offender(std::span<const T>(values.data(), count));
    };
    const std::string kind = sizeof(T) == 4 ? "float" : "double";
    // The last count is longer than a guard may inspect in one step; it is tried at some positions
    // only.
    for (const std::size_t count : {0u, 1u, 2u, 7u, 16u, 33u, 70u, 9001u}) {
        std::vector<T> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(trial.good[i % trial.good.size()]);
        const auto after = [&](std::size_t i) { // the last position is one of them
            return count < 100 || i + 1 == count ? i + 1 : std::min(i + 97, count - 1);
        };
        const std::string among = concat({" among ", count, " values of ", kind});
        if (const std::size_t at = first(values, count); at != no_offender)
            found.add(concat({"found an offender at ", at, among, " that are good"}));
        for (const double offender : trial.offenders) {
            for (std::size_t i = 0; i < count && !found.full(); i = after(i)) {
                std::vector<T> with = values;
                with[i] = static_cast<T>(offender);
                const std::string what = concat({number_text(offender), " at ", i, among});
                const std::size_t at = first(with, count);
                if (at != first(with, count)) found.add(concat({"two looks at the same values differ: ", what}));
                if (!Guard::inspects) {
                    if (at != no_offender) found.add(concat({"found ", what, ", although `inspects` is false"}));
                    continue;
                }
                if (at == no_offender) found.add(concat({"missed ", what}));
                else if (at != i) found.add(concat({"found ", what, " at ", at, " instead"}));
                if (first(with, i) != no_offender) found.add(concat({"looked beyond the end: ", what}));
                with[count - 1] = static_cast<T>(offender); // a second one, behind it
                if (at == i && first(with, count) != i) found.add(concat({"did not name the first of two: ", what}));
            }
        }
    }
}

} // namespace detail

/// `first_offender` is a pure function that finds each offender in every position, and nothing
/// else. A guard that does not inspect finds nothing.
template <guard_policy Guard>
Violations guard_laws(const Guard& guard, const GuardTrial& trial = {}) {
    Violations found{std::string(Guard::name)};
    detail::guard_laws_of<float>(guard, trial, found);
    detail::guard_laws_of<double>(guard, trial, found);
    const OnOffence action = guard.on_offence();
    if (action != Guard(guard).on_offence()) found.add("a copy does otherwise on an offence");
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
