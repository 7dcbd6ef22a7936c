#pragma once

/// \file
/// The models and transports that work with the policies: a table of rules, as in policy_rules.hpp.

#include "unisono/core/rule.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// True if ranks of the group map each other's memory. Simulated ranks do, as threads of one
/// process.
template <class World>
inline constexpr bool ranks_share_memory =
    World::transport_type::maps_peers || has_virtual_time<typename World::transport_type>;

/// True for a model in units whose parameters have a narrower type than that in which they are
/// trained (MasterWeights).
template <class Model>
inline constexpr bool trains_wider = [] {
    if constexpr (unit_model<Model>) return !std::same_as<typename Model::Element, pass_element_t<Model>>;
    else return false;
}();

/// The type of a pass for a model in units; for other models an empty type.
template <class Model, class Element>
struct PassGivenTo {
    using type = UnitPass<Element>;
};
template <unit_model Model, class Element>
struct PassGivenTo<Model, Element> {
    using type = unit_pass_t<Model>;
};

/// The arguments of the rules: the chosen policies with a group and a model.
template <class WorldT, class ModelT, class Chosen>
struct ChosenTraining : Chosen {
    using World = WorldT;
    using Model = ModelT;
};

namespace rule {

UNISONO_RULE(units_where_sharded, "gradients are sharded and the model holds them",
             "a sharding that declares `shards_gradients`, with a model that holds its gradients",
             "a model in units (unisono/sharded.hpp), or StateSharding",
             "whatever a trainer does, such a model has all parameters and gradients on every rank",
             !shards_gradients<typename P::Sharding> || unit_model<typename P::Model>);
UNISONO_RULE(gradients_with_parameters, "parameters are sharded and gradients are not",
             "a sharding that declares `shards_parameters` and not `shards_gradients`", "both",
             "a rank without a parameter has no use for its gradient",
             !shards_parameters<typename P::Sharding> || shards_gradients<typename P::Sharding>);
UNISONO_RULE(sharded_where_units, "the model is in units and no sharding holds its gradients",
             "a model in units, with a sharding that does not declare `shards_gradients`",
             "GradientSharding or ParameterSharding, or the model as ResidentUnits",
             "such a model holds no parameters and gradients, so a sharding must hold them",
             shards_gradients<typename P::Sharding> || !unit_model<typename P::Model>);
UNISONO_RULE(
    parts_agree, "each rank has a part of the model, and the sums are on grids or servers update",
    "a model of which each rank has a part (it has `sum_over_parts`), with Reproducible or an update that servers make "
    "or that ranks make in common",
    "PlainSums, and an update of the workers",
    "grids are widened, and servers answer, group by group, but an update happens on all parts of a model or on none",
    !model_part<typename P::Model> || !(reproducible_sums<typename P::Summation> || asynchronous<typename P::Update>));
UNISONO_RULE(memory_in_common, "ranks update common parameters, and the transport shares no memory",
             "an update that declares `shares_memory`, over a transport whose ranks do not see each other's memory",
             "InProcess, SharedMemory, AnyTransport or Simulated; or servers, for instance Asynchronous",
             "ranks update the parameters where they lie, by loads and stores",
             !updates_shared_memory<typename P::Update> || ranks_share_memory<typename P::World>);

} // namespace rule

using ModelRules = RuleTable<rule::units_where_sharded, rule::gradients_with_parameters, rule::sharded_where_units,
                             rule::parts_agree, rule::memory_in_common>;

} // namespace detail
UNISONO_NAMESPACE_END
