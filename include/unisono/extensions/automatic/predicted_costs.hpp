#pragma once

/// \file
/// The time of a sum with each schedule, as a function of its bytes, from a model of the cluster:
/// for AutomaticReducer, without measurements on all ranks.
///
///     auto costs = un::predicted_reducer_costs(un::ClusterModel::load(text), world.size());
///     un::Trainer trainer{world, model, un::AutomaticReducer{.costs = costs}};

#include "unisono/extensions/automatic/cost_model.hpp"
#include "unisono/extensions/laboratory/cluster_model.hpp"
#include "unisono/extensions/laboratory/timing.hpp"
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN

/// `native` has the cost of the native schedule over messages on five ranks and more: the ring if a
/// rank's share of the data is large, else halving and doubling.
/// Cost: simulates the rounds of all ranks for six sizes and two schedules; for the ring those of
/// one host, if all hosts are full. 0.1 s for 1,000 ranks.
/// \throws error bad_input: a model without times, or a world without ranks
inline ReducerCosts predicted_reducer_costs(const ClusterModel& model, int world) {
    model.check();
    if (world < 1) refuse_input({"predicted_reducer_costs: a world of ", world, " ranks, expected at least 1"});
    ReducerCosts costs;
    costs.world = world;
    const int host = world % model.ranks_per_host == 0 ? model.ranks_per_host : 0; // stands for all
    for (std::size_t i = 0; i < ReducerCosts::exponents.size(); ++i) {
        const std::uint64_t bytes = std::uint64_t{1} << ReducerCosts::exponents[i];
        const auto seconds = [&](const auto& family, std::uint64_t of, int stand_for_all) {
            const auto make = [&](const schedule::Shape& shape) {
                return schedule::schedule_of<Collective::all_reduce>(family, shape);
            };
            return std::max(1e-12, schedule::predict(make, world, of, model, stand_for_all).seconds);
        };
        const auto p = static_cast<std::uint64_t>(world);
        const std::array<double, reducer_choices> all = {0, seconds(RingSchedule{}, (bytes + p - 1) / p * p, host),
                                                         seconds(HalvingDoublingSchedule{}, bytes, 0),
                                                         seconds(TreeSchedule{}, bytes, 0)};
        for (std::size_t c = 0; c < reducer_choices; ++c) costs.seconds[c][i] = all[c];
        costs.seconds[0][i] = all[bytes / p >= NativeSchedule{}.ring_bytes ? 1 : 2];
    }
    return costs;
}

UNISONO_NAMESPACE_END
