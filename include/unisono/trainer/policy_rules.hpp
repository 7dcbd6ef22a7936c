#pragma once

/// \file
/// Which policies work together, as a table of rules. A row has a name, a condition in terms of
/// declared properties (policies.hpp), and a sentence. docs/rules.md shows the same table to users.
/// A user's own policy takes part through the properties that it declares. To add a rule, add a row
/// here and its name to `PolicyRules`. Rows about one use of a trainer have tables of their own:
/// `JoinRules`, `FullBatchRules` (extensions/trainers/full_batch.hpp), `CheckpointRules`
/// (extensions/checkpoint/checkpoints.hpp).

#include "unisono/core/rule.hpp"
#include "unisono/trainer/policies.hpp"

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
             "an update that does, for instance Synchronous",
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

} // namespace detail
UNISONO_NAMESPACE_END
