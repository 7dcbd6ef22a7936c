#pragma once

/// \file
/// Laws by which you certify a policy of your own. A compiler checks concepts. Each room's header
/// also states laws that a compiler cannot check; these functions test them. They need no test
/// framework: each returns its findings as sentences, and an empty list means that the policy is
/// lawful.
///
///     const auto found = un::testing::optimizer_laws(MyOptimizer{.learning_rate = 0.1});
///     if (!found.lawful()) std::puts(found.text().c_str());
///
/// | header | call | archetype |
/// | --- | --- | --- |
/// | sampler_laws.hpp | `sampler_laws(policy, coverage)` | `ArchetypeSampler` |
/// | accumulation_laws.hpp | `accumulation_laws(policy)` | `ArchetypeAccumulation` |
/// | reducer_laws.hpp | `reducer_laws(policy)` | `ArchetypeReducer` |
/// | guard_laws.hpp | `guard_laws(policy)` | `ArchetypeGuard` |
/// | clipping_laws.hpp | `clipping_laws(policy)` | `ArchetypeClipping` |
/// | loss_scaling_laws.hpp | `loss_scaling_laws(policy)` | `ArchetypeLossScaling` |
/// | optimizer_laws.hpp | `optimizer_laws(policy)` | `ArchetypeOptimizer` |
/// | learning_rate_laws.hpp | `learning_rate_laws(policy)` | `ArchetypeRate` |
/// | weighing_laws.hpp | `weighing_laws(policy)` | `ArchetypeWeighing` |
/// | compression_laws.hpp | `compression_laws(policy, trial)` | `ArchetypeCompression` |
/// | sharding_laws.hpp | `sharding_laws(policy)` | `ArchetypeSharding` |
/// | update_laws.hpp | `update_laws(policy)` | `ArchetypeUpdate` |
/// | metric_laws.hpp | `metric_laws(fresh, samples, feed)` | `ArchetypeMetric` |
/// | model_laws.hpp | `model_laws(model, batch)` | `ArchetypeModel` |
/// | transport_laws.hpp | `transport_laws<Transport>()` | (a `thread_transport`) |
/// | schedule_laws.hpp | `schedule_laws(family)` | `ArchetypeSchedule` |
///
/// An **archetype** is a minimal type that satisfies a concept: it has what you must write, and
/// nothing else. Copy it to begin. The library's own generic code is tested with the archetypes, so
/// it requires no more than the concepts do.
///
/// Laws are tested on examples, which are seeded and the same on every machine. A reported
/// violation is real; an empty report proves nothing. Deliberately absent: laws about time, and
/// about allocation, which a header cannot count.

#include "unisono/core/config.hpp"
#include "unisono/core/text.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// A number as violations show it.
inline std::string number_text(double value) { return detail::number_text(value, std::chars_format::general, 9); }
/// A number with all its digits, for numbers that may differ only in the last bit.
inline std::string exact_text(double value) { return detail::number_text(value, std::chars_format::general, 17); }

/// The violations of laws, one sentence each. Keeps the first few, since one fault often causes
/// many.
class Violations {
public:
    static constexpr std::size_t most = 16;

    Violations() = default;
    explicit Violations(std::string subject) : subject_(std::move(subject)) {}

    [[nodiscard]] bool lawful() const { return texts_.empty(); }
    [[nodiscard]] bool full() const { return texts_.size() >= most; }
    [[nodiscard]] std::size_t size() const { return texts_.size(); }
    [[nodiscard]] auto begin() const { return texts_.begin(); }
    [[nodiscard]] auto end() const { return texts_.end(); }

    /// All violations, one line each; "lawful" if there are none.
    [[nodiscard]] std::string text() const {
        if (lawful()) return subject_.empty() ? "lawful" : concat({subject_, ": lawful"});
        std::string all;
        for (const std::string& one : texts_) all += (all.empty() ? "" : "\n") + one;
        return all;
    }

    void add(const std::string& what) {
        if (!full()) texts_.push_back(subject_.empty() ? what : concat({subject_, ": ", what}));
    }
    void add(const Violations& others) {
        for (const std::string& one : others) add(one);
    }

private:
    std::string subject_;
    std::vector<std::string> texts_;
};

} // namespace testing
UNISONO_NAMESPACE_END
