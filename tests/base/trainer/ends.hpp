// Shared by the tests of updates that ranks make on their own, and of their synchronisation.
#pragma once

#include "outcomes.hpp"
#include "served.hpp"

#include "unisono/trainer/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace unisono_test {

using Values = std::vector<double>;

/// Each rank's parameters before and after the last synchronisation.
struct Ends {
    std::vector<Values> before, after;
};

/// Each rank calls step(trainer, world), which makes its updates. Then all synchronise.
template <class Step, class... Policies>
Ends ends_of(int ranks, bool in_one_piece, Step step, const Policies&... policies) {
    struct Shared {
        std::array<std::array<double, served_count>, 5> before, after;
    };
    const test::Shared<Shared> ends;
    check_clean(outcomes(ranks, [&](auto& world) {
        Bowl<double> model(world, in_one_piece);
        un::Trainer trainer{world, model, policies...};
        step(trainer, world);
        const auto rank = static_cast<std::size_t>(world.rank());
        std::ranges::copy(model.values(), ends->before.at(rank).begin());
        trainer.synchronise();
        trainer.verify_replicas();
        std::ranges::copy(model.values(), ends->after[rank].begin());
    }));
    Ends all;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        all.before.emplace_back(ends->before[rank].begin(), ends->before[rank].end());
        all.after.emplace_back(ends->after[rank].begin(), ends->after[rank].end());
    }
    return all;
}

inline void check_near(const Values& found, const Values& expected, double bound = 1e-12) {
    BOOST_REQUIRE_EQUAL(found.size(), expected.size());
    BOOST_TEST(apart(found, expected) <= bound);
}

} // namespace unisono_test
