#pragma once

/// \file
/// The laws of accumulation/accumulation.hpp for any policy, and a minimal policy.

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/testing/testing.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal accumulation: every round with data is an update.
struct ArchetypeAccumulation {
    struct Window {
        Totals sum = {};
        void add(const Totals& round) { sum = sum + round; }
        void reset() { sum = {}; }
        [[nodiscard]] bool would_close(const Totals& next) const { return (sum + next).micro_batches > 0; }
        [[nodiscard]] bool closed() const { return sum.micro_batches > 0; }
        [[nodiscard]] bool due_at_end() const { return sum.samples > 0; }
        [[nodiscard]] const Totals& totals() const { return sum; }
    };

    static constexpr std::string_view name = "archetype accumulation";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const ArchetypeAccumulation&, const ArchetypeAccumulation&) = default;

    [[nodiscard]] Window window(std::int64_t) const { return {}; }
};
static_assert(accumulation_policy<ArchetypeAccumulation>);

/// The parameters of the trial.
struct AccumulationTrial {
    std::int64_t hosted = 1;          ///< number of replicas that a rank hosts
    std::int64_t most_rounds = 65536; ///< number of rounds within which a window must close
};

namespace detail {

/// A round as a sampler might give it, sometimes without data.
inline Totals some_round(CounterRandom& random, std::int64_t hosted) {
    if (random() % 8 == 0) return {hosted, 0, 0};
    const auto samples = static_cast<std::int64_t>(random() % 12 + 1);
    return {hosted, samples, samples * static_cast<std::int64_t>(random() % 40 + 1)};
}

} // namespace detail

/// Windows predict when they close, stay closed, treat equal rounds equally, and are new after
/// `reset()`.
template <accumulation_policy Policy>
Violations accumulation_laws(const Policy& policy, const AccumulationTrial& trial = {}) {
    Violations found{std::string(Policy::name)};
    auto window = policy.window(trial.hosted);
    auto twin = policy.window(trial.hosted);  // gets the same rounds
    auto blind = policy.window(trial.hosted); // gets the same rounds without tokens
    if (window.closed()) found.add("a new window is closed before it saw a round");
    if (window.due_at_end()) found.add("a new window is due at the epoch's end, with nothing to update from");

    CounterRandom random{1};
    for (int repetition = 0; repetition < 20 && !found.full(); ++repetition) {
        const std::string where = repetition == 0 ? "a new window " : "a window after reset() ";
        if (!(Totals(window.totals()) == Totals{})) found.add(concat({where, "has totals that are not zero"}));
        if (window.closed()) found.add(concat({where, "is closed"}));
        Totals sum;
        bool closed = false;
        std::int64_t rounds = 0;
        for (int more = 0; more < 3 && rounds < trial.most_rounds; ++rounds) {
            const Totals round = detail::some_round(random, trial.hosted);
            const bool foretold = window.would_close(round);
            window.add(round);
            twin.add(round);
            blind.add({round.micro_batches, round.samples, 0});
            sum = sum + round;
            const std::string at = concat({where, "at round ", rounds, " "});
            if (foretold != window.closed())
                found.add(at + (foretold ? "would close, it said, and did not" : "closed, which would_close() denied"));
            if (closed && !window.closed()) found.add(concat({at, "opened again although more was added"}));
            if (!(Totals(window.totals()) == sum))
                found.add(concat({at, "has totals that are not the sum of its rounds"}));
            if (window.closed() != twin.closed() || window.due_at_end() != twin.due_at_end())
                found.add(concat({at, "answers otherwise than another window with equal rounds"}));
            if (!Policy::counts_tokens && window.closed() != blind.closed())
                found.add(concat({at, "heeds tokens, which counts_tokens denies: the trainer would not count them"}));
            if (window.closed() && sum.samples > 0 && !window.due_at_end())
                found.add(concat({at, "is closed but not due at the epoch's end"}));
            if (found.full()) return found;
            closed = window.closed();
            if (closed) ++more; // continues for a few rounds after the end
        }
        if (!closed) {
            found.add(concat({where, "did not close within ", rounds, " rounds"}));
            return found;
        }
        const auto kept = window;
        window.reset();
        twin.reset();
        blind.reset();
        if (!kept.closed()) found.add("a copy was reset together with its original");
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
