#pragma once

/// \file
/// The laws of optimizer/learning_rate.hpp for any policy, and a minimal policy.

#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/testing/testing.hpp"

#include <exception>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal learning rate: always the base rate.
struct ArchetypeRate {
    static constexpr std::string_view name = "archetype rate";
    static constexpr Family family = Family::learning_rate;
    friend bool operator==(const ArchetypeRate&, const ArchetypeRate&) = default;

    void check() const {}
    [[nodiscard]] double rate(double base, const RatePoint&) const { return base; }
};
static_assert(learning_rate_policy<ArchetypeRate>);

/// Rates are finite, not negative, and a pure function of base and point: also if asked for in
/// another order, at the end of the training, and after it. If the length of the training is
/// unknown, the same holds, or the policy refuses with bad_input.
template <learning_rate_policy Policy>
Violations learning_rate_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    try {
        policy.check();
    } catch (const std::exception& refusal) {
        found.add(concat({"check() refuses the policy that is tried: ", refusal.what()}));
        return found;
    }

    struct Asked {
        double base;
        RatePoint point;
        double rate;
    };
    std::vector<Asked> asked;
    const auto where = [](const Asked& a) {
        return concat({" at update ", a.point.update, " of ", a.point.updates_total, " with base rate ",
                       number_text(a.base), " and global batch ", a.point.global_batch});
    };
    for (const std::uint64_t total : {10u, 1u, 2u, 100000u, 0u}) {
        for (const std::uint64_t batch : {1u, 256u, 65536u}) {
            for (const double base : {0.0, 1e-8, 0.1, 10.0}) {
                for (const std::uint64_t update : {0u, 1u, 2u, 3u, 9u, 10u, 11u, 500u, 99999u, 100000u, 1000000u}) {
                    Asked now{base, {.update = update, .updates_total = total, .global_batch = batch}, 0};
                    try {
                        now.rate = policy.rate(base, now.point);
                    } catch (const error& refusal) {
                        if (total != 0 || refusal.code() != ErrorCode::bad_input)
                            found.add(concat({"refuses", where(now), ": ", refusal.what()}));
                        continue;
                    } catch (const std::exception& other) {
                        found.add(
                            concat({"throws something that is not a unisono::error", where(now), ": ", other.what()}));
                        continue;
                    }
                    if (!unisono::detail::is_finite(now.rate))
                        found.add(concat({"the rate is not finite", where(now)}));
                    else if (now.rate < 0) found.add(concat({"the rate is ", number_text(now.rate), where(now)}));
                    asked.push_back(now);
                }
            }
        }
    }
    const Policy copy = policy;
    for (std::size_t i = asked.size(); i-- > 0 && !found.full();) {
        const Asked& before = asked[i];
        if (!unisono::detail::is_finite(before.rate)) continue; // reported before
        if (policy.rate(before.base, before.point) != before.rate)
            found.add(concat({"asked again, in another order, the rate differs", where(before)}));
        else if (copy.rate(before.base, before.point) != before.rate)
            found.add(concat({"the rate of a copy differs", where(before)}));
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
