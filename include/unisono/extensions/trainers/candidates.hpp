#pragma once

/// \file
/// Search without gradients: each candidate is judged on one rank, and all ranks get all
/// judgements. Not in the umbrella.
///
///     const std::vector<double> fitness = un::map_candidates(
///         world, population.size(), [&](std::size_t i) { return judge(population[i]); });

#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/evaluation.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Returns fitness(i) of all candidates i in [0, count), in order, on every rank. Rank i mod p
/// judges candidate i, so that ranks have about the same work even if costs vary along the order.
/// Collective; `count` is the same on all ranks. All ranks must know all candidates, so draw them
/// from one seed.
///
/// Cost: ceil(count / p) calls per rank, two all_gathers.
/// Determinism: the same on any number of ranks, if fitness(i) depends on i and the candidates
/// alone.
/// Absent: giving candidates to ranks as they become free, which would need a coordinator.
/// Errors: mismatch (counts differ). If fitness throws on one rank, every other rank's call throws
/// an error that names it.
template <class World, class Fitness>
    requires requires(Fitness& fitness, std::size_t index) {
        { fitness(index) } -> std::convertible_to<double>;
    }
std::vector<double> map_candidates(World& world, std::size_t count, Fitness&& fitness) {
    return detail::telling_all(world, "map_candidates", [&] {
        detail::agree_on(world, "map_candidates", std::array<std::string_view, 1>{"count"},
                         std::array<std::int64_t, 1>{static_cast<std::int64_t>(count)});
        const auto ranks = static_cast<std::size_t>(world.size());
        std::vector<double> mine;
        for (auto i = static_cast<std::size_t>(world.rank()); i < count; i += ranks)
            mine.push_back(static_cast<double>(fitness(i)));
        if (ranks == 1) return mine;
        std::vector<std::size_t> counts;
        const std::vector<double> all = detail::gather_all(world, mine, counts);
        std::vector<double> ordered(count);
        std::size_t from = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank)
            for (std::size_t i = rank; i < count; i += ranks) ordered[i] = all[from++];
        return ordered;
    });
}

UNISONO_NAMESPACE_END
