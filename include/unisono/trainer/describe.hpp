#pragma once

/// \file
/// The plan in words: who takes part, which policies, how the batch is made up, where the bytes are.

#include "unisono/core/text.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/observe/table.hpp"
#include "unisono/trainer/plan.hpp"

#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A policy's name, with its parameters where it can describe them.
template <class P>
std::string policy_text(const P& policy) {
    if constexpr (requires { std::string(policy.describe()); })
        return std::string(P::name) + ", " + std::string(policy.describe());
    else return std::string(P::name);
}

inline std::string plan_text(const TrainingPlan& plan) {
    Table table;
    const auto text = [](std::int64_t value) { return count_text(static_cast<std::size_t>(value)); };
    table.row(
        {"replicas", text(plan.shape.replicas) + " a round, " + text(plan.shape.hosted) + " hosted by each rank"});
    if (plan.rounds_per_update != 0) {
        table.row({"update", text(plan.world) + " ranks x " + text(plan.hosted()) + " micro-batches x " +
                                 text(plan.samples_per_update / plan.world / plan.hosted()) +
                                 " samples = " + text(plan.samples_per_update) + " samples"});
        table.row({"epoch", text(plan.shape.data_size) + " samples, " + text(plan.updates_per_epoch) + " updates"});
    } else {
        table.row({"update", "as many micro-batches as the tokens ask for"});
        table.row({"epoch", text(plan.shape.data_size) + " samples"});
    }
    return table.text(2);
}

template <class Session>
std::string session_text(const Session& session) {
    const auto& world = session.world();
    const auto& exchange = session.exchange();
    const auto& policies = session.policies();
    using T = typename Session::T;
    std::size_t owned = 0;
    for (const Slice& slice : exchange.owned()) owned += slice.count;
    const std::size_t model_bytes = exchange.flat().count() * sizeof(T);
    Table table;
    table.row({"ranks", std::to_string(world.size()) + ", this is rank " + std::to_string(world.rank()) + ", over " +
                            std::string(std::remove_cvref_t<decltype(world)>::transport_type::name)});
    table.row({"sampler", policy_text(policies.sampler)});
    table.row({"accumulation", policy_text(policies.accumulation)});
    table.row({"weighing", policy_text(policies.weighing_policy)});
    table.row({"guard", policy_text(policies.guard)});
    table.row({"reducer", policy_text(policies.reducer)});
    table.row({"update", policy_text(policies.update)});
    table.row({"sharding", policy_text(policies.sharding)});
    table.row({"optimizer", policy_text(policies.optimizer) + ", learning rate " +
                                std::to_string(policies.optimizer.learning_rate) + ", " +
                                policy_text(policies.learning_rate)});
    table.row({"this rank updates", count_text(owned) + " of " + count_text(exchange.flat().count()) + " elements"});
    table.row({"memory", "parameters " + bytes_text(model_bytes) + ", gradients " + bytes_text(model_bytes) +
                             ", optimizer " + bytes_text(exchange.state().bytes()) + ", images " +
                             bytes_text(exchange.image_bytes())});
    return "trainer\n" + table.text(2) + "  " + exchange.flat().layout().describe();
}

} // namespace detail
UNISONO_NAMESPACE_END
