#pragma once

/// \file
/// The laws of model/weighing.hpp for any policy, and a minimal policy.

#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/testing/testing.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal weighing: each micro-batch has the same weight.
struct ArchetypeWeighing {
    static constexpr std::string_view name = "archetype weighing";
    static constexpr Family family = Family::weighing;
    static constexpr bool needs_samples = false;
    static constexpr bool needs_tokens = false;
    friend bool operator==(const ArchetypeWeighing&, const ArchetypeWeighing&) = default;

    [[nodiscard]] Share share(const MicroBatchFacts&) const { return {}; }
};
static_assert(weighing<ArchetypeWeighing>);

namespace detail {

inline std::string facts_text(const MicroBatchFacts& facts) {
    return concat({"of ", number_text(facts.samples), " samples and ", number_text(facts.tokens),
                   " tokens whose gradient is a ", facts.kind == GradientKind::sum ? "sum" : "mean"});
}

inline bool same_share(const Share& a, const Share& b) {
    return a.multiplier == b.multiplier && a.divisor == b.divisor;
}

inline bool is_weight(double value) { return unisono::detail::is_finite(value) && value >= 0; }

} // namespace detail

/// Shares are finite, not negative, and a pure function of the facts. They do not depend on facts
/// that the policy declares as not needed.
template <weighing Policy>
Violations weighing_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    const Policy copy = policy;
    for (const GradientKind kind : {GradientKind::mean, GradientKind::sum}) {
        for (const double samples : {1.0, 3.0, 32.0, 1e6}) {
            for (const double tokens : {0.0, 1.0, 57.0, 1e9}) {
                const MicroBatchFacts facts{samples, tokens, kind};
                const std::string of = "the share of a micro-batch " + detail::facts_text(facts);
                const Share share = policy.share(facts);
                if (!detail::is_weight(share.multiplier) || !detail::is_weight(share.divisor))
                    found.add(concat({of, " is ", number_text(share.multiplier), " / ", number_text(share.divisor),
                                      "; both must be finite and not negative"}));
                if (!detail::same_share(share, policy.share(facts))) found.add(of + " differs from call to call");
                if (!detail::same_share(share, copy.share(facts))) found.add(of + " differs from a copy's");
                if (!Policy::needs_samples && !detail::same_share(share, policy.share({1, tokens, kind})))
                    found.add(
                        of + " depends on its samples, although `needs_samples` is false: a batch need not count them");
                if (!Policy::needs_tokens && !detail::same_share(share, policy.share({samples, 0, kind})))
                    found.add(of +
                              " depends on its tokens, although `needs_tokens` is false: a model need not count them");
                if (found.full()) return found;
            }
        }
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
