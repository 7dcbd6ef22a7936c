// The families that are not crossed in full: every pair of their policies occurs in some
// combination.
#pragma once

#include "matrix.hpp"
#include "pairs.hpp"

#include <unisono/updates.hpp>

#include <array>
#include <tuple>
#include <utility>

namespace unisono_matrix {

inline const auto& choices() {
    static const auto all =
        std::tuple{std::tuple{un::DistributedSampler{.seed = 6}, un::InterleavedSampler{.replicas = 2, .seed = 7},
                              un::SequentialSampler{}, un::ScatterSampler{.seed = 8}},
                   std::tuple{un::Sgd{.learning_rate = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
                              un::Adam{.learning_rate = 0.02}, un::AdamW{.learning_rate = 0.02},
                              un::Adagrad{.learning_rate = 0.05}, un::RmsProp{.learning_rate = 0.01, .momentum = 0.5}},
                   std::tuple{un::ReplicasAlike{}, un::BySamples{}, un::ByTokens{}},
                   std::tuple{un::FiniteGuard{}, un::NoGuard{}},
                   std::tuple{un::ConstantRate{}, un::WarmupRate{.updates = 3, .start_factor = 0.1},
                              un::CosineRate{.final_factor = 0.1}, un::StepDecayRate{.every = 4, .factor = 0.5}},
                   std::tuple{un::NativeReducer{}, un::ParameterServerReducer{.servers = 2}, un::TreeReducer{}},
                   std::tuple{un::NoAccumulation{}, un::Accumulate{.steps = 2, .short_window = un::ShortWindow::drop}},
                   std::tuple{un::NoClipping{}, un::ClipByNorm{.max_norm = 0.3}, un::ClipByValue{.limit = 0.1}},
                   std::tuple{un::Synchronous{}, un::LocalSteps{.steps = 3}, un::Diloco<>{.steps = 4, .warm_up = 2},
                              un::Gossip{.graph = un::GossipGraph::ring, .warm_up = 1}}};
    return all;
}
inline constexpr std::array<std::size_t, 9> sizes = {4, 5, 3, 2, 4, 3, 2, 3, 4};
inline constexpr std::size_t reducers_at = 5, updates_at = 8;

/// One combination per row: an index into each of the lists above.
inline constexpr std::array<std::array<std::size_t, 9>, 27> rows = {{
    {0, 0, 0, 1, 3, 0, 1, 2, 1}, {0, 1, 1, 0, 2, 1, 1, 0, 0}, {0, 2, 1, 1, 1, 2, 0, 2, 2}, {0, 3, 2, 1, 2, 0, 0, 1, 0},
    {0, 4, 1, 0, 0, 2, 1, 1, 0}, {1, 0, 1, 1, 2, 2, 0, 1, 2}, {1, 1, 1, 1, 3, 2, 0, 1, 1}, {1, 1, 2, 0, 1, 0, 0, 2, 2},
    {1, 2, 0, 0, 0, 0, 1, 0, 1}, {1, 3, 0, 0, 0, 1, 0, 0, 0}, {1, 4, 2, 0, 3, 2, 0, 0, 2}, {2, 0, 2, 1, 0, 2, 0, 0, 2},
    {2, 1, 2, 0, 3, 0, 0, 0, 2}, {2, 2, 2, 1, 3, 1, 0, 0, 0}, {2, 3, 2, 0, 1, 0, 1, 1, 1}, {2, 4, 0, 1, 1, 1, 0, 2, 0},
    {2, 4, 1, 0, 2, 0, 1, 2, 1}, {3, 0, 2, 0, 1, 1, 1, 1, 0}, {3, 1, 0, 1, 0, 1, 1, 2, 0}, {3, 2, 0, 1, 2, 2, 0, 1, 2},
    {3, 3, 1, 0, 3, 2, 1, 2, 2}, {3, 4, 2, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 3}, {1, 1, 1, 1, 1, 2, 1, 1, 3},
    {2, 2, 2, 0, 2, 0, 0, 2, 3}, {3, 3, 0, 1, 3, 2, 1, 0, 3}, {0, 4, 1, 0, 0, 0, 0, 1, 3},
}};

/// A reducer with owners of slices may not be combined with an update of each rank's own.
constexpr bool is_refused(std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
    return a == reducers_at && b == updates_at && x == 1 && y != 0;
}

static_assert(missing_pairs(sizes, rows, is_refused) == 0, "a pair of policies occurs in no combination: add a row");

template <std::size_t Row>
void check_row() {
    const auto& [samplers, optimizers, weighings, guards, rates, reducers, accumulations, clippings, updates] =
        choices();
    constexpr auto row = rows[Row];
    check(std::get<row[5]>(reducers), std::get<row[8]>(updates), un::Replicated{}, std::get<row[3]>(guards),
          std::get<row[1]>(optimizers), std::get<row[0]>(samplers), std::get<row[6]>(accumulations),
          std::get<row[2]>(weighings), std::get<row[4]>(rates), un::PlainSums{}, std::get<row[7]>(clippings));
}

template <std::size_t First, std::size_t... I>
void check_rows(std::index_sequence<I...>) {
    (check_row<First + I>(), ...);
}

} // namespace unisono_matrix
