#pragma once

/// \file
/// Compatibility rules as rows of a table. A row states its condition and its texts once: the
/// static assertion, the answer to a program that asks (the policy matrix of the tests does) and
/// the table of the documentation are derived from it.

#include "unisono/core/config.hpp"

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The texts of a rule.
struct RuleText {
    std::string_view name;     ///< an identifier, also the row's
    std::string_view summary;  ///< the offence in one clause, by which refusals are counted
    std::string_view found;    ///< the offence in full: the configuration that was found,
    std::string_view required; ///< the one that is required instead,
    std::string_view why;      ///< and the reason
};

/// Defines a row: a type with the rule's `text()`, and with `holds<P>` for a bundle P of types. The
/// condition comes last, in terms of P. `Asserted<P>` is instantiated for the first row of a table
/// that does not hold, so that a compiler prints one message, which begins with the name of `user`,
/// the class that asks. A row is a macro because static assertions accept only literals.
#define UNISONO_RULE_OF(user, rule, summary, found, required, why, ...)                                           \
    struct rule {                                                                                                 \
        static constexpr ::unisono::detail::RuleText text() { return {#rule, summary, found, required, why}; }    \
        template <class P>                                                                                        \
        static constexpr bool holds = (__VA_ARGS__);                                                              \
        template <class P>                                                                                        \
        struct Asserted {                                                                                         \
            static_assert(holds<P>, "unisono::" user ": found " found ". Required: " required ". Why: " why "."); \
        };                                                                                                        \
    }
/// A row about the types of a trainer.
#define UNISONO_RULE(rule, ...) UNISONO_RULE_OF("Trainer", rule, __VA_ARGS__)

template <class... Rows>
class RuleTable {
    /// A row is checked only if all rows before it hold: its condition may rely on them.
    template <class P, class First, class... Rest>
    static consteval std::size_t holding() {
        if constexpr (!First::template holds<P>) return 0;
        else if constexpr (sizeof...(Rest) == 0) return 1;
        else return 1 + holding<P, Rest...>();
    }

    template <class P, std::size_t First>
    struct Assertion : std::tuple_element_t<First, std::tuple<Rows...>>::template Asserted<P> {
        static constexpr bool value = false;
    };
    template <class P>
    struct Assertion<P, sizeof...(Rows)> {
        static constexpr bool value = true;
    };

public:
    static constexpr std::array<RuleText, sizeof...(Rows)> texts = {Rows::text()...};
    /// The index of the first row that does not hold; sizeof...(Rows) if all hold.
    template <class P>
    static constexpr std::size_t first_broken = holding<P, Rows...>();
    template <class P>
    static constexpr bool good = first_broken<P> == sizeof...(Rows);
    /// The summary of the first broken rule; empty if none is broken.
    template <class P>
    static constexpr std::string_view refusal = [] {
        if constexpr (good<P>) return std::string_view();
        else return texts[first_broken<P>].summary;
    }();
    /// As `good`, with a static assertion that has the texts of the first broken rule.
    template <class P>
    static constexpr bool asserted = Assertion<P, first_broken<P>>::value;
};

} // namespace detail
UNISONO_NAMESPACE_END
