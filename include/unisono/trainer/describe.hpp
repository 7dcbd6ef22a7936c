#pragma once

/// \file
/// The plan as text: the ranks, the policies, the composition of a batch, and the memory.

#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/observe/table.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/plan.hpp"
#include "unisono/trainer/policy_fields.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/transport/transport.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

std::string plan_text(const TrainingPlan& plan);

/// How well the sizes of matrices suit devices, whose matrix units work on tiles: "of 3, 1 in
/// multiples of 128, 0 of 16, 1 of 8, 1 of none: parameter 4 (out.weight), 84 x 10". The first
/// dimension gives the rows, the product of all others the columns. Empty for models without
/// shapes.
template <class M>
std::string matrix_sizes_text(M& model, const Layout& layout) {
    std::size_t suited[] = {0, 0, 0, 0}; // numbers of matrices that fit tiles of 128, 16, 8, or none
    std::size_t matrices = 0;
    std::string odd;
    if constexpr (requires { std::begin(*std::begin(model.parameter_shapes())); }) {
        const List<ParameterMatrix> all = parameter_matrices(model, layout);
        for (std::size_t p = 0; p < all.size(); ++p) {
            const std::size_t columns = all[p].columns;
            if (columns == 0 || columns == all[p].slice.count) continue; // not a matrix
            const std::size_t rows = all[p].slice.count / columns, both = rows | columns;
            ++matrices;
            ++suited[both % 128 == 0 ? 0 : both % 16 == 0 ? 1 : both % 8 == 0 ? 2 : 3];
            if (both % 8 != 0 && odd.empty())
                odd = concat({": ", parameter_label(model, p), ", ", rows, " x ", columns});
        }
    }
    if (matrices == 0) return {};
    return concat({"of ", matrices, ", ", suited[0], " in multiples of 128, ", suited[1], " of 16, ", suited[2],
                   " of 8, ", suited[3], " of none", (suited[3] > 1 ? ", first" : ""), odd});
}

template <class Training, class Run, class Model, class Policies>
std::string trainer_text(Training& training, Run& run, Model& model, const Policies& policies) {
    const auto& world = training.world();
    using T = typename Training::Element;
    std::size_t owned = 0;
    for (const Slice& slice : training.owned()) owned += slice.count;
    const std::size_t model_bytes = training.flat().count() * sizeof(T);
    std::size_t parameter_bytes = model_bytes, gradient_bytes = model_bytes;
    if constexpr (requires { training.parameter_bytes(); }) { // the trainer holds the parameters
        parameter_bytes = training.parameter_bytes();
        gradient_bytes = training.gradient_bytes();
    }
    Table table;
    table.row(
        {"ranks", concat({world.size(), ", this is rank ", world.rank(), ", over ", world.endpoint().facts().name})});
    for (const PolicyFacts& one : policies.facts()) {
        const bool of_sums = one.family == name_of(Family::reducer) || one.family == name_of(Family::sharding);
        if (!of_sums || run.reduces()) table.row({std::string(one.family), one.text()});
    }
    if (const LossScale& state = training.loss_scale().state(); state != LossScale{})
        table.row({"loss scale", concat({state.scale, ", after ", state.good_updates, " good updates with it"})});
    table.row(
        {"this rank updates", concat({count_text(owned), " of ", count_text(training.flat().count()), " elements"})});
    if (std::string sizes = matrix_sizes_text(model, training.flat().layout()); !sizes.empty())
        table.row({"matrices", std::move(sizes)});
    run.describe([&](std::string name, std::string text) { table.row({std::move(name), std::move(text)}); });
    table.row({"memory", concat({"parameters ", bytes_text(parameter_bytes), ", gradients ", bytes_text(gradient_bytes),
                                 ", optimizer ", bytes_text(training.state().bytes()), ", other ",
                                 bytes_text(training.memory_bytes() + run.bytes())})});
    return concat({"trainer\n", table.text(2), "  ", training.flat().layout().describe()});
}

/// How `fit` would make up its batches of a data set.
template <class Training, class Policies>
std::string fit_text(const Training& training, const Policies& policies, std::size_t data_size,
                     const FitOptions& options) {
    const int workers = training.workers();
    const SamplerShape shape = shape_of_fit(policies, options, data_size, workers, training.worker());
    const EpochRounds epoch = rounds_of(policies.sampler.stream(shape, Epoch{0}));
    return plan_text(plan_training(epoch, policies, shape, options, workers));
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string plan_text(const TrainingPlan& plan) {
    Table table;
    const auto text = [](std::int64_t value) { return count_text(static_cast<std::size_t>(value)); };
    const bool even = plan.shape.hosted * plan.world == plan.shape.replicas;
    table.row({"replicas", concat({text(plan.shape.replicas), " per round, ", text(plan.shape.hosted),
                                   (even ? " hosted by each rank" : " hosted by this rank")})});
    if (plan.rounds_per_update != 0) {
        table.row(
            {"update", concat({text(even ? plan.world : plan.shape.replicas), (even ? " ranks x " : " replicas x "),
                               text(even ? plan.hosted() : plan.rounds_per_update), " micro-batches x ",
                               text(plan.samples_per_update / plan.micro_batches()),
                               " samples = ", text(plan.samples_per_update), " samples"})});
        table.row(
            {"epoch", concat({text(plan.shape.data_size), " samples, ", text(plan.updates_per_epoch), " updates"})});
    } else {
        table.row({"update", "micro-batches until their tokens suffice"});
        table.row({"epoch", concat({text(plan.shape.data_size), " samples"})});
    }
    return table.text(2);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
