#pragma once

/// \file
/// Which models go with which policies: as values for those who want to ask (the policy matrix of the tests does), and as
/// what a Trainer refuses.
///
/// | rule                                                                     | because                                     |
/// |--------------------------------------------------------------------------|---------------------------------------------|
/// | gradients are sharded exactly where the model is in units                | else the model holds them all, or nobody does |
/// | who shards parameters shards gradients, too                              | a rank without a parameter needs no gradient |
/// | a model of which each rank has a part is given plain sums, and an update of the workers | grids and servers decide for one group of ranks alone |

#include "unisono/model/model.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/policies.hpp"

#include <concepts>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A model in units that is given its parameters in a narrower type than they are trained in (MasterWeights).
template <class Model>
inline constexpr bool trains_wider = [] {
    if constexpr (unit_model<Model>) return !std::same_as<typename Model::Element, pass_element_t<Model>>;
    else return false;
}();

/// The passes that a model in units is given; of others nothing that is called.
template <class Model, class Element>
struct PassGivenTo {
    using type = UnitPass<Element>;
};
template <unit_model Model, class Element>
struct PassGivenTo<Model, Element> {
    using type = unit_pass_t<Model>;
};

template <class Model, class Sharding, class Update, class Summation>
struct ModelRules {
    static constexpr bool units_where_sharded = !shards_gradients<Sharding> || unit_model<Model>;
    static constexpr bool gradients_with_parameters = !shards_parameters<Sharding> || shards_gradients<Sharding>;
    static constexpr bool sharded_where_units = shards_gradients<Sharding> || !unit_model<Model>;
    static constexpr bool parts_agree =
        !model_part<Model> || !(Summation::reproducible || served_update<Update> || in_common<Update>);
    static constexpr bool good = units_where_sharded && gradients_with_parameters && sharded_where_units && parts_agree;

    /// The first rule that is broken; empty if none is.
    static constexpr std::string_view refusal =
        !units_where_sharded         ? "gradients are sharded and the model holds them"
        : !gradients_with_parameters ? "parameters are sharded and gradients are not"
        : !sharded_where_units       ? "the model is in units and nobody holds its gradients"
        : !parts_agree               ? "each rank has a part of the model, and the sums are on grids or servers update"
                                     : "";
};

template <class Model, class Sharding, class Update, class Summation>
struct ModelOfPolicies {
    using Rules = ModelRules<Model, Sharding, Update, Summation>;
    static_assert(
        Rules::units_where_sharded,
        "unisono::Trainer: found a sharding that declares `shards_gradients`, with a model that holds its gradients. "
        "Required: a model in units (model/unit_pass.hpp), or StateSharding. "
        "Why: whatever a trainer does, such a model has all parameters and gradients on every rank.");
    static_assert(
        Rules::gradients_with_parameters,
        "unisono::Trainer: found a sharding that declares `shards_parameters` and not `shards_gradients`. Required: "
        "both. Why: a rank without a parameter has no use for its gradient.");
    static_assert(
        Rules::sharded_where_units,
        "unisono::Trainer: found a model in units, with a sharding that does not declare `shards_gradients`. Required: "
        "GradientSharding or ParameterSharding, or the model as ResidentUnits. "
        "Why: somebody must hold the model's parameters and gradients.");
    static_assert(
        Rules::parts_agree,
        "unisono::Trainer: found a model of which each rank has a part (it has `sum_over_parts`), with Reproducible or "
        "an update that servers make or ranks in common. Required: PlainSums, and an update of the workers. Why: grids "
        "are widened, and "
        "servers answer, group by group, but an update happens on all parts of a model or on none.");
    static constexpr bool good = Rules::good;
};

} // namespace detail
UNISONO_NAMESPACE_END
