#pragma once

/// \file
/// All compatibility rules of a training, as tables: among the policies, with the group and the
/// model, and with a model on a device. A row has a name, a condition in terms of declared
/// properties (policies.hpp), and a sentence. docs/rules.md shows the same tables to users. A
/// user's own policy takes part through the properties that it declares. To add a rule, add a row
/// here and its name to the table. Rows about one use of a trainer have tables of their own:
/// `JoinRules`, `FullBatchRules` (extensions/trainers/full_batch.hpp), `CheckpointRules`
/// (extensions/checkpoint/checkpoints.hpp).

#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/core/rule.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {
namespace rule {

template <class P>
inline constexpr bool has_owners = may_give_owners<typename P::Sharding> || gives_owners<typename P::Reducer>;

UNISONO_RULE(one_sampler, "two samplers", "two samplers", "at most one", "a sample goes to a replica by one rule",
             P::template given<Family::sampler> <= 1);
UNISONO_RULE(one_accumulation, "two accumulation policies", "two accumulation policies", "at most one",
             "one rule says how many micro-batches make an update", P::template given<Family::accumulation> <= 1);
UNISONO_RULE(one_reducer, "two reducers", "two reducers", "at most one", "each gradient is summed once",
             P::template given<Family::reducer> <= 1);
UNISONO_RULE(one_guard, "two guards", "two guards", "at most one", "one verdict decides about an update",
             P::template given<Family::guard> <= 1);
UNISONO_RULE(one_update, "two update policies", "two update policies", "at most one",
             "one rule says when parameters change", P::template given<Family::update> <= 1);
UNISONO_RULE(one_sharding, "two sharding policies", "two sharding policies", "at most one", "a slice has one owner",
             P::template given<Family::sharding> <= 1);
UNISONO_RULE(one_optimizer, "two optimizers", "two optimizers", "at most one",
             "an update is applied to a parameter once", P::template given<Family::optimizer> <= 1);
UNISONO_RULE(one_learning_rate, "two learning-rate schedules", "two learning-rate schedules", "at most one",
             "an update has one learning rate", P::template given<Family::learning_rate> <= 1);
UNISONO_RULE(one_weighing, "two weighing policies", "two weighing policies", "at most one",
             "a micro-batch has one weight", P::template given<Family::weighing> <= 1);
UNISONO_RULE(one_observer, "two observers", "two observers", "at most one", "one of them writes to the terminal",
             P::template given<Family::observer> <= 1);
UNISONO_RULE(one_replicas, "two policies of replicas", "two policies of replicas", "at most one",
             "a global batch has one number of replicas", P::template given<Family::replicas> <= 1);
UNISONO_RULE(one_summation, "two policies of summation", "two policies of summation", "at most one",
             "gradients are added in one way", P::template given<Family::summation> <= 1);
UNISONO_RULE(one_clipping, "two clipping policies", "two clipping policies", "at most one",
             "which of them came first would change the result", P::template given<Family::clipping> <= 1);
UNISONO_RULE(one_loss_scaling, "two loss scalings", "two loss scalings", "at most one", "a pass has one scale",
             P::template given<Family::loss_scaling> <= 1);
UNISONO_RULE(one_compression, "two compression policies", "two compression policies", "at most one",
             "gradients travel in one form", P::template given<Family::compression> <= 1);
UNISONO_RULE(one_trace, "two traces", "two traces", "at most one", "one trace records every event",
             P::template given<Family::trace> <= 1);
UNISONO_RULE(one_snapshots, "two policies of snapshots", "two policies of snapshots", "at most one",
             "one rule says how often state is copied", P::template given<Family::snapshots> <= 1);

UNISONO_RULE(one_names_owners, "sharding and reducer both give owners",
             "a sharding and a reducer that both declare `gives_owners`", "at most one of them",
             "each slice of the parameters has one owner",
             !(may_give_owners<typename P::Sharding> && gives_owners<typename P::Reducer>));
UNISONO_RULE(sums_reach_owners, "the reducer does not reduce to owners",
             "a policy that declares `gives_owners`, with a reducer that does not declare `reduces_to_owners`",
             "a reducer that does", "the sum of the gradients must arrive at the rank that updates the slice",
             !has_owners<P> || reduces_to_owners<typename P::Reducer>);
UNISONO_RULE(whole_where_local, "each rank updates all parameters and owners would divide them",
             "an update that does not declare `agrees`, with a policy that declares `gives_owners`",
             "every rank owns everything, for instance Replicated with RingReducer",
             "between two synchronisations each rank updates all of its own copy",
             agrees<typename P::Update> || has_servers<typename P::Update> || !has_owners<P>);
UNISONO_RULE(servers_own, "the update has servers and another policy gives owners",
             "an update that has servers, with a policy that declares `gives_owners`", "Replicated, and no reducer",
             "the slices are owned by the servers that the update names, for instance Asynchronous{.servers = 2}",
             !has_servers<typename P::Update> || !has_owners<P>);
UNISONO_RULE(parameters_stay_whole, "the optimizer needs whole parameters and owners cut them",
             "an optimizer that declares `whole_parameters`, with a policy that declares `gives_owners` or has servers",
             "every rank owns everything, for instance Replicated with RingReducer",
             "owners' slices may cut a parameter, and the optimizer would see parts of it only",
             !whole_parameters<typename P::Optimizer> || !(has_owners<P> || has_servers<typename P::Update>));
UNISONO_RULE(grids_agree, "the sums are reproducible and the update does not agree",
             "a summation that declares `reproducible`, with an update that does not declare `agrees`",
             "an update that does, for instance Synchronous",
             "all ranks must decide together that a gradient does not fit its grid",
             !reproducible_sums<typename P::Summation> || agrees<typename P::Update>);
UNISONO_RULE(clipping_agrees, "clipping needs agreement and the update has servers",
             "a clipping policy that declares `needs_agreement`, with an update that has servers",
             "an update without servers, for instance Synchronous",
             "the norm is that of all ranks' gradient, so all ranks must compute it together",
             !needs_agreement<typename P::Clipping> || !has_servers<typename P::Update>);
UNISONO_RULE(
    compression_without_owners, "a compression forms the sum for all ranks, and each owner needs only its part",
    "a compression that declares `compresses` and not `sums_to_owners`, with a policy that declares `gives_owners`",
    "every rank owns everything, for instance Replicated with RingReducer, or a compression that declares "
    "`sums_to_owners`, for instance Bf16Wire",
    "such a compression forms the sum of all ranks' gradients for all ranks",
    !compresses<typename P::Compression> || sums_to_owners<typename P::Compression> || !has_owners<P>);
UNISONO_RULE(compression_without_grids, "a compression rounds, and the sums are reproducible",
             "a compression that declares `compresses`, with a summation that declares `reproducible`",
             "PlainSums, or no compression", "a compression rounds the sum that a grid keeps exact",
             !compresses<typename P::Compression> || !reproducible_sums<typename P::Summation>);
UNISONO_RULE(
    compression_of_buckets, "a compression sums whole buckets over all ranks, and the update does not",
    "a compression that declares `compresses`, with an update that declares neither `agrees` nor `sums_buckets`",
    "one that does, for instance Synchronous, LocalSteps or Diloco, or no compression",
    "a compression sums whole buckets over all ranks, and such an update sends to servers or neighbours, or sums "
    "fragments",
    !compresses<typename P::Compression> || sums_buckets<typename P::Update>);
UNISONO_RULE(compression_has_its_way, "the compression has an exchange of its own and would not use the reducer",
             "a reducer, with a compression that declares `own_exchange`", "no reducer",
             "what such a compression sends cannot be summed on the way, so the reducer would not be used",
             !own_exchange<typename P::Compression> || P::template given<Family::reducer> == 0);
UNISONO_RULE(asynchronous_without_reducer, "the update is asynchronous and would not use the reducer",
             "a reducer, with an update that declares `asynchronous`", "no reducer",
             "each gradient goes to servers, or into common parameters, by itself, so the reducer would not be used",
             !asynchronous<typename P::Update> || P::template given<Family::reducer> == 0);
UNISONO_RULE(asynchronous_counts_alone, "tokens are counted over all ranks, and the update is asynchronous",
             "an accumulation that declares `counts_tokens`, with an update that declares `asynchronous`",
             "one that counts micro-batches or samples, for instance Accumulate",
             "tokens are counted over all ranks, which would have to wait for each other",
             !asynchronous<typename P::Update> || !counts_tokens<typename P::Accumulation>);
UNISONO_RULE(scaling_is_told, "the loss is scaled and nothing looks for gradients that are not finite",
             "a loss scaling that declares `scales`, with a guard that does not declare `inspects`",
             "a guard that does, for instance FiniteGuard, or reproducible sums",
             "the scale is lowered where a gradient is not finite, which a guard must find",
             !scales_loss<typename P::Scaling> || inspects<typename P::Guard> ||
                 reproducible_sums<typename P::Summation>);
UNISONO_RULE(scaling_agrees, "the loss is scaled and the update does not agree",
             "a loss scaling that declares `scales`, with an update that does not declare `agrees`",
             "an update that does, for instance Synchronous", "all ranks must lower the scale together",
             !scales_loss<typename P::Scaling> || agrees<typename P::Update>);

UNISONO_RULE(joined_in_step, "a rank joins the others' updates, and the update does not agree",
             "join() with an update that does not declare `agrees`", "one that does, for instance Synchronous",
             "a rank that goes its own way does not hear of the others' updates", agrees<typename P::Update>);

} // namespace rule

using PolicyRules = RuleTable<
    rule::one_sampler, rule::one_accumulation, rule::one_reducer, rule::one_guard, rule::one_update, rule::one_sharding,
    rule::one_optimizer, rule::one_learning_rate, rule::one_weighing, rule::one_observer, rule::one_replicas,
    rule::one_summation, rule::one_clipping, rule::one_loss_scaling, rule::one_compression, rule::one_trace,
    rule::one_snapshots, rule::one_names_owners, rule::sums_reach_owners, rule::whole_where_local, rule::servers_own,
    rule::parameters_stay_whole, rule::grids_agree, rule::clipping_agrees, rule::compression_without_owners,
    rule::compression_without_grids, rule::compression_of_buckets, rule::compression_has_its_way,
    rule::asynchronous_without_reducer, rule::asynchronous_counts_alone, rule::scaling_is_told, rule::scaling_agrees>;

/// The rule of Trainer::join.
using JoinRules = RuleTable<rule::joined_in_step>;

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

template <class World, class Model>
concept enqueues_for = requires(World& world, Model& model) {
    { model.stream() } -> detail::converts_to<decltype(world.endpoint().stream())>;
};
template <class World>
concept computes_on_device =
    has_stream_arithmetic<std::remove_cvref_t<decltype(std::declval<World&>().endpoint().stream())>> &&
    requires { sizeof(DeviceKernels<float, World>); };
template <class Guard>
inline constexpr bool looks_for_finite = requires { requires Guard::only_finite; };
template <class Run, class World>
concept sums_on_device = requires(Run& run, World& group, DeviceSpan<float> values) { run.sum(group, values); } ||
                         requires(Run& run, World& group, DeviceSpan<float> values) { run.sum_to(group, values, 0); };
template <class Reducer, class World>
concept reduces_on_device =
    sums_on_device<decltype(std::declval<const Reducer&>().start(std::declval<World&>())), World>;

namespace rule {

UNISONO_RULE(device_has_streams, "the model is on a device and the transport has no streams",
             "a model on a device (its spans are DeviceSpan), with a group whose transport has no streams",
             "Group<Nccl> or Group<Cuda<...>>, or the model as DeviceModel", "its gradients are summed where they are",
             streaming_transport<typename P::World::transport_type>);
UNISONO_RULE(device_model_has_stream, "the model on a device has no stream", "a model on a device without stream()",
             "the stream on which it enqueues, of the transport's type",
             "the trainer's kernels and sums come after the model's",
             enqueues_for<typename P::World, typename P::Model>);
UNISONO_RULE(
    device_has_kernels, "the source cannot compute on a device",
    "a model on a device, in a source that cannot compute there",
    "unisono/nccl.hpp or unisono/cuda.hpp, linked to the CMake target unisono::devices or in a source that nvcc "
    "compiles; or the model as DeviceModel",
    "nvcc compiles the trainer's kernels, for that library or with the source", computes_on_device<typename P::World>);
UNISONO_RULE(device_reducer, "the reducer's verbs do not take memory of a device",
             "a model on a device, with a reducer whose verbs do not take DeviceSpan",
             "any of the library's, or verbs that are templates of Values", "gradients are summed where they are",
             reduces_on_device<typename P::Reducer, typename P::World>);
UNISONO_RULE(device_meets_all, "the update computes on the host",
             "a model on a device, with an update that declares neither `agrees` nor `on_device`",
             "one in lockstep, as Synchronous, or that synchronises all ranks, as LocalSteps and Diloco; or the model "
             "as DeviceModel",
             "servers and neighbours compute on the host", updates_on_device<typename P::Update>);
UNISONO_RULE(device_guard, "the guard looks at elements, on the host",
             "a model on a device, with a guard that does not declare `only_finite`", "FiniteGuard or NoGuard",
             "any other looks at elements, on the host",
             !inspects<typename P::Guard> || looks_for_finite<typename P::Guard>);

} // namespace rule

/// Applies only to models on a device.
using DeviceRules = RuleTable<rule::device_has_streams, rule::device_model_has_stream, rule::device_has_kernels,
                              rule::device_reducer, rule::device_meets_all, rule::device_guard>;

} // namespace detail

UNISONO_NAMESPACE_END
