#pragma once

/// \file
/// The laws of update/update.hpp, of update/served.hpp, and the least policy.

#include "unisono/core/text.hpp"
#include "unisono/testing/testing.hpp"
#include "unisono/update/served.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The least update: one verb after another.
struct ArchetypeUpdate {
    static constexpr std::string_view name = "archetype update";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = true;
    static constexpr bool needs_owner = false;
    friend bool operator==(const ArchetypeUpdate&, const ArchetypeUpdate&) = default;

    template <update_exchange Exchange>
    Verdict run(Exchange& exchange) const {
        const Verdict verdict = exchange.agree();
        exchange.start();
        exchange.finish();
        if (verdict != Verdict::commit) {
            exchange.discard();
            return verdict;
        }
        const Verdict last_word = exchange.apply();
        exchange.publish();
        return last_word;
    }
};
static_assert(update_policy<ArchetypeUpdate>);

/// An exchange that notes what is asked of it, and gives the verdicts that it is told.
class RecordingExchange {
public:
    RecordingExchange(Verdict agreed, Verdict applied) : agreed_(agreed), applied_(applied) {}

    void start() { note("start"); }
    Verdict agree() {
        note("agree");
        return agreed_;
    }
    void finish() { note("finish"); }
    Verdict apply() {
        note("apply");
        return applied_;
    }
    void publish() { note("publish"); }
    void discard() { note("discard"); }

    /// "start agree finish apply publish"
    [[nodiscard]] const std::string& verbs() const { return verbs_; }
    [[nodiscard]] std::size_t count(std::string_view verb) const {
        std::size_t n = 0;
        for (std::size_t at = verbs_.find(verb); at != std::string::npos; at = verbs_.find(verb, at + 1)) ++n;
        return n;
    }
    /// Both were called, `first` before `second`.
    [[nodiscard]] bool in_order(std::string_view first, std::string_view second) const {
        const std::size_t a = verbs_.find(first);
        const std::size_t b = verbs_.find(second);
        return a != std::string::npos && b != std::string::npos && a < b;
    }

private:
    void note(std::string_view verb) {
        if (!verbs_.empty()) verbs_ += ' ';
        verbs_ += verb;
    }

    Verdict agreed_;
    Verdict applied_;
    std::string verbs_;
};
static_assert(update_exchange<RecordingExchange>);

/// Every update: starts and finishes its sums, asks once for the verdict, applies and publishes exactly if it says commit, after the
/// sums have arrived, and returns the last word: that of `apply`, else the verdict; the same verbs each time.
template <update_policy Policy>
    requires(Policy::agrees || served_update_policy<Policy>)
Violations update_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    struct Case {
        Verdict agreed, applied, last_word;
        std::string_view name;
    };
    constexpr std::array<Case, 4> cases = {{
        {Verdict::commit, Verdict::commit, Verdict::commit, "commit"},
        {Verdict::commit, Verdict::skip, Verdict::skip, "commit, then skip"},
        {Verdict::skip, Verdict::commit, Verdict::skip, "skip"},
        {Verdict::empty, Verdict::commit, Verdict::empty, "empty"},
    }};
    for (const Case& one : cases) {
        RecordingExchange exchange(one.agreed, one.applied);
        const Verdict returned = policy.run(exchange);
        const std::string at = concat({"at the verdict \"", one.name, "\" it calls \"", exchange.verbs(), "\": "});
        const bool commits = one.agreed == Verdict::commit;
        const auto once = [&](std::string_view verb, bool wanted) {
            const std::size_t n = exchange.count(verb);
            if (n != (wanted ? 1u : 0u))
                found.add(concat({at, verb, " ", n, " times; expected ", wanted ? "once" : "never"}));
        };
        if (returned != one.last_word) found.add(at + "it returns another verdict than was agreed on");
        once("agree", true);
        once("start", true);
        once("finish", true);
        once("apply", commits);
        once("publish", commits);
        once("discard", !commits);
        if (!exchange.in_order("start", "finish")) found.add(at + "sums must be started before they are finished");
        if (commits && !exchange.in_order("finish", "apply"))
            found.add(at + "sums must arrive before they are applied");
        if (commits && !exchange.in_order("agree", "apply"))
            found.add(at + "nothing may be applied before the verdict");
        if (commits && !exchange.in_order("apply", "publish"))
            found.add(at + "parameters must be updated before they are published");
        RecordingExchange again(one.agreed, one.applied);
        static_cast<void>(policy.run(again));
        if (again.verbs() != exchange.verbs())
            found.add(concat({at, "and at the next time \"", again.verbs(), "\"; ranks would part"}));
    }
    return found;
}

namespace detail {

/// No delay, no compensation; and the same for the same.
template <class Policy>
void compensation_laws(const Policy& policy, Violations& found) {
    constexpr std::array<double, 4> gradients = {1.5, -2, 0, 0.25}, now = {1, 2, 3, -4}, read = {0, 4, 3.5, -4};
    const auto carried = [&](const std::array<double, 4>& from) {
        std::array<double, 4> values = gradients;
        policy.compensate(std::span<double>(values), 0.5, std::span<const double>(now), std::span<const double>(from));
        return values;
    };
    const auto fresh = carried(now);
    for (std::size_t i = 0; i < fresh.size(); ++i)
        if (std::abs(fresh[i] - 0.5 * gradients[i]) > 1e-15)
            found.add(concat({"it makes ", fresh[i], " of a gradient of ", gradients[i], " x 0.5 that is not stale"}));
    if (carried(read) != carried(read)) found.add("it makes something else of the same gradient the next time");
}

} // namespace detail

/// A policy that servers follow: one of them at least, the slowest worker goes on, who may go on may so at a lesser clock, or if the
/// slowest has come further, and waiting for all ends; what is not stale needs no compensation.
template <served_update_policy Policy>
Violations served_update_laws(const Policy& policy) {
    Violations found = update_laws(policy);
    if (policy.servers < 1) found.add(concat({"it has ", policy.servers, " servers; expected at least 1"}));
    for (std::uint64_t clock = 0; clock < 12; ++clock)
        for (std::uint64_t slowest = 0; slowest <= clock; ++slowest) {
            const bool goes = policy.goes_on(clock, slowest);
            const std::string at = concat({"at clock ", clock, ", the slowest at ", slowest, ": "});
            if (clock == slowest && !goes) found.add(at + "the slowest itself does not go on: all would wait");
            if (goes != policy.goes_on(clock, slowest)) found.add(at + "it says something else the next time");
            if (goes && clock > slowest && !policy.goes_on(clock - 1, slowest))
                found.add(at + "it goes on, and would not at a lesser clock");
            if (goes && slowest < clock && !policy.goes_on(clock, slowest + 1))
                found.add(at + "it goes on, and would not if the slowest had come further");
        }
    if constexpr (requires { requires Policy::compensates; }) detail::compensation_laws(policy, found);
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
