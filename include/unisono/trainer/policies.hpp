#pragma once

/// \file
/// From the policies given to a Trainer, in any order, to one policy for each family; and the rules that say which go
/// together.
///
/// Rules speak of what policies declare about themselves, never of their names, so that a user's own policies take part.
/// A property that a policy does not declare counts as false.
///
/// | declared property     | by                 | meaning                                                             |
/// |-----------------------|--------------------|---------------------------------------------------------------------|
/// | `gives_owners`        | sharding, reducer  | names exactly one owner for each slice                               |
/// | `may_give_owners`     | sharding           | does so, or names all ranks, as it turns out                         |
/// | `shards_gradients`    | sharding           | gradients are held by their owners alone, unit by unit               |
/// | `shards_parameters`   | sharding           | parameters, too                                                      |
/// | `reduces_to_owners`   | reducer            | can bring a sum to one rank only, and publish from there             |
/// | `needs_owner`         | update             | works only where each slice has exactly one owner                    |
/// | `agrees`              | update             | all ranks commit or leave out the same updates                       |
/// | `local`               | update             | each rank updates its own copy, until the ranks meet                 |
/// | `in_common`           | update             | local, and ranks update one set of parameters, in memory they share  |
/// | `gossips`             | update             | local, and between meetings ranks average with neighbours            |
/// | `streams`             | update             | local, and between meetings fragments of the parameters are synchronised |
/// | `served`              | update             | servers of its own apply each gradient as it comes                   |
/// | `needs_agreement`     | any                | what it decides must hold on all ranks                               |
/// | `whole_parameters`    | optimizer          | must see whole parameters at once (norms of layers)                  |
/// | `compresses`          | compression        | gradients do not travel as they are                                  |
/// | `own_exchange`        | compression        | uses no reducer                                                      |
/// | `sums_to_owners`      | compression        | its sums may reach the owners of slices only                         |
/// | `reproducible`        | summation          | sums do not depend on order and grouping                             |
/// | `logical`             | replicas           | their number does not depend on that of the ranks                    |
///
/// | rule                                                                     | because                                     |
/// |--------------------------------------------------------------------------|---------------------------------------------|
/// | each argument is a policy, each family is given at most once             | two of a family would contradict each other |
/// | sharding and reducer do not both give owners                             | a slice has one owner                       |
/// | where owners are given, the reducer reduces to owners                    | the sum must arrive where it is used        |
/// | an update that needs an owner is given owners                            | without lockstep two owners drift apart     |
/// | who needs agreement is given an update that agrees, or is local or served | else one rank skips what another applies   |
/// | sums that are reproducible are given an update that agrees               | a misfit must be found on all ranks alike    |
/// | clipping that needs agreement is given an update that agrees              | the norm is of all ranks' gradient           |
/// | what compresses is given no owners, unless it sums to them, plain sums and an update that agrees or is local | it forms the sum of all, of what it was given |
/// | what has an exchange of its own is given no reducer                       | it would not be used                         |
/// | loss scaling is given a guard that `inspects`, or sums that are reproducible | somebody must find what is not finite   |
/// | a local update is given no owners of slices                              | each rank updates all of its own copy       |
/// | a served update is given no reducer, no owners of slices, and no accumulation that counts tokens | its servers own the slices; nothing is summed over the workers |
/// | an update in common is given no reducer, no compression, no accumulation that counts tokens, and a group whose ranks share memory | nothing is sent; nothing is summed over the ranks |
/// | an optimizer that needs whole parameters is given no owners of slices    | slices may cut a parameter                  |
///
/// What they ask of the model: model_rules.hpp.

#include "unisono/core/policy.hpp"
#include "unisono/layout/layout.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class P>
inline constexpr bool gives_owners = requires { requires P::gives_owners; };
template <class P>
inline constexpr bool may_give_owners = gives_owners<P> || requires { requires P::may_give_owners; };
template <class P>
inline constexpr bool shards_gradients = requires { requires P::shards_gradients; };
template <class P>
inline constexpr bool shards_parameters = requires { requires P::shards_parameters; };
template <class P>
inline constexpr bool reduces_to_owners = requires { requires P::reduces_to_owners; };
template <class P>
inline constexpr bool needs_owner = requires { requires P::needs_owner; };
template <class P>
inline constexpr bool agrees = requires { requires P::agrees; };
template <class P>
inline constexpr bool local_update = requires { requires P::local; };
template <class P>
inline constexpr bool in_common = requires { requires P::in_common; };
template <class P>
inline constexpr bool gossips = requires { requires P::gossips; };
template <class P>
inline constexpr bool streams_fragments = requires { requires P::streams; };
template <class P>
inline constexpr bool served_update = requires { requires P::served; };
template <class P>
inline constexpr bool needs_agreement = requires { requires P::needs_agreement; };
template <class P>
inline constexpr bool whole_parameters = requires { requires P::whole_parameters; };

template <class P>
consteval int family_index() {
    if constexpr (policy<P>) return static_cast<int>(P::family);
    else return -1;
}

template <Family Which, class... Given>
inline constexpr int given_of = ((family_index<Given>() == static_cast<int>(Which) ? 1 : 0) + ... + 0);

/// The first of the given policies that is of the family, or the default.
template <Family Which, class Default, class... Given>
struct PolicyOf {
    using type = Default;
};
template <Family Which, class Default, class First, class... Rest>
struct PolicyOf<Which, Default, First, Rest...> {
    using type = typename std::conditional_t<family_index<First>() == static_cast<int>(Which),
                                             std::type_identity<First>, PolicyOf<Which, Default, Rest...>>::type;
};

/// Names the offending type in the compiler's diagnostic.
template <class Found>
struct TrainerArgument {
    static constexpr bool good = policy<Found> || std::is_same_v<Found, Buckets>;
    static_assert(
        good,
        "unisono::Trainer: found an argument that is no policy (its type is the argument of TrainerArgument<...>). "
        "Required: after the group and the model only policies, that is copyable and comparable values with "
        "`static constexpr std::string_view name` and `static constexpr unisono::Family family`. "
        "Why: each argument fills the place of its family, so the trainer must know which that is.");
};

/// Two policies of one family.
template <class... Given>
struct TrainerArguments {
    static constexpr bool known = (TrainerArgument<Given>::good && ... && true);

    static_assert(
        given_of<Family::sampler, Given...> <= 1,
        "unisono::Trainer: found two samplers. Required: at most one. Why: a sample goes to a replica by one rule.");
    static_assert(given_of<Family::accumulation, Given...> <= 1,
                  "unisono::Trainer: found two accumulation policies. Required: at most one. "
                  "Why: one rule says how many micro-batches make an update.");
    static_assert(given_of<Family::reducer, Given...> <= 1,
                  "unisono::Trainer: found two reducers. Required: at most one. Why: each gradient is summed once.");
    static_assert(
        given_of<Family::guard, Given...> <= 1,
        "unisono::Trainer: found two guards. Required: at most one. Why: one verdict decides about an update.");
    static_assert(given_of<Family::update, Given...> <= 1,
                  "unisono::Trainer: found two update policies. Required: at most one. "
                  "Why: one rule says when parameters change.");
    static_assert(given_of<Family::sharding, Given...> <= 1,
                  "unisono::Trainer: found two sharding policies. Required: at most one. Why: a slice has one owner.");
    static_assert(given_of<Family::optimizer, Given...> <= 1,
                  "unisono::Trainer: found two optimizers. Required: at most one. "
                  "Why: an update is applied to a parameter once.");
    static_assert(given_of<Family::learning_rate, Given...> <= 1,
                  "unisono::Trainer: found two learning-rate schedules. Required: at most one. "
                  "Why: an update has one learning rate.");
    static_assert(given_of<Family::weighing, Given...> <= 1,
                  "unisono::Trainer: found two weighing policies. Required: at most one. "
                  "Why: a micro-batch has one weight.");
    static_assert(
        given_of<Family::observer, Given...> <= 1,
        "unisono::Trainer: found two observers. Required: at most one. Why: one of them writes to the terminal.");
    static_assert(given_of<Family::replicas, Given...> <= 1,
                  "unisono::Trainer: found two policies of replicas. Required: at most one. "
                  "Why: a global batch has one number of replicas.");
    static_assert(given_of<Family::summation, Given...> <= 1,
                  "unisono::Trainer: found two policies of summation. Required: at most one. "
                  "Why: gradients are added in one way.");
    static_assert(given_of<Family::clipping, Given...> <= 1,
                  "unisono::Trainer: found two clipping policies. Required: at most one. "
                  "Why: which of them came first would change the result.");
    static_assert(given_of<Family::loss_scaling, Given...> <= 1,
                  "unisono::Trainer: found two loss scalings. Required: at most one. Why: a pass has one scale.");
    static_assert(given_of<Family::compression, Given...> <= 1,
                  "unisono::Trainer: found two compression policies. Required: at most one. "
                  "Why: gradients travel in one form.");
    static_assert(given_of<Family::trace, Given...> <= 1,
                  "unisono::Trainer: found two traces. Required: at most one. Why: it has all that there is.");

    static constexpr bool good =
        known && given_of<Family::sampler, Given...> <= 1 && given_of<Family::accumulation, Given...> <= 1 &&
        given_of<Family::reducer, Given...> <= 1 && given_of<Family::guard, Given...> <= 1 &&
        given_of<Family::update, Given...> <= 1 && given_of<Family::sharding, Given...> <= 1 &&
        given_of<Family::optimizer, Given...> <= 1 && given_of<Family::learning_rate, Given...> <= 1 &&
        given_of<Family::weighing, Given...> <= 1 && given_of<Family::observer, Given...> <= 1 &&
        given_of<Family::replicas, Given...> <= 1 && given_of<Family::summation, Given...> <= 1 &&
        given_of<Family::clipping, Given...> <= 1 && given_of<Family::loss_scaling, Given...> <= 1 &&
        given_of<Family::compression, Given...> <= 1 && given_of<Family::trace, Given...> <= 1;
};

/// The rules as values, for those who want to ask (the policy matrix of the tests does).
template <class Reducer, class Update, class Sharding, class Guard, class Optimizer>
struct Compatibility {
    static constexpr bool one_names_owners = !(may_give_owners<Sharding> && gives_owners<Reducer>);
    static constexpr bool owned = may_give_owners<Sharding> || gives_owners<Reducer>;
    static constexpr bool sums_reach_owners = !owned || reduces_to_owners<Reducer>;
    static constexpr bool owner_where_needed = !needs_owner<Update> || gives_owners<Sharding> || gives_owners<Reducer>;
    static constexpr bool agreement_where_needed =
        agrees<Update> || local_update<Update> || served_update<Update> ||
        !(needs_agreement<Guard> || needs_agreement<Reducer> || needs_agreement<Sharding>);
    static constexpr bool whole_where_local = !local_update<Update> || !owned;
    static constexpr bool servers_own = !served_update<Update> || !owned;
    static constexpr bool parameters_stay_whole = !whole_parameters<Optimizer> || !(owned || served_update<Update>);
    static constexpr bool good = one_names_owners && sums_reach_owners && owner_where_needed &&
                                 agreement_where_needed && whole_where_local && servers_own && parameters_stay_whole;

    /// The first rule that is broken; empty if none is.
    static constexpr std::string_view refusal = [] {
        if (!one_names_owners) return std::string_view("sharding and reducer both give owners");
        if (!sums_reach_owners) return std::string_view("the reducer does not reduce to owners");
        if (!owner_where_needed) return std::string_view("the update needs an owner and nobody gives one");
        if (!agreement_where_needed) return std::string_view("agreement is needed and the update does not agree");
        if (!whole_where_local) return std::string_view("the update is each rank's own and owners share it out");
        if (!servers_own) return std::string_view("the update has servers and others give owners");
        if (!parameters_stay_whole) return std::string_view("the optimizer needs whole parameters and owners cut them");
        return std::string_view();
    }();
};

template <class Reducer, class Update, class Sharding, class Guard, class Optimizer>
struct CompatiblePolicies {
    using Rules = Compatibility<Reducer, Update, Sharding, Guard, Optimizer>;
    static_assert(Rules::one_names_owners,
                  "unisono::Trainer: found a sharding and a reducer that both declare `gives_owners`. "
                  "Required: at most one of them. Why: each slice of the parameters has one owner.");
    static_assert(Rules::sums_reach_owners,
                  "unisono::Trainer: found a policy that declares `gives_owners`, with a reducer that does not declare "
                  "`reduces_to_owners`. Required: a reducer that does. "
                  "Why: the sum of the gradients must arrive at the rank that updates the slice.");
    static_assert(
        Rules::owner_where_needed,
        "unisono::Trainer: found an update that declares `needs_owner`, but neither the reducer nor the sharding "
        "declares `gives_owners`. Required: one that does, for instance ParameterServerReducer. "
        "Why: without lockstep, ranks that all update the same slice would drift apart.");
    static_assert(
        Rules::agreement_where_needed,
        "unisono::Trainer: found a policy that declares `needs_agreement`, with an update that does not declare "
        "`agrees`. Required: an update that does, for instance Synchronous. "
        "Why: otherwise one rank would leave out an update that another applies.");
    static_assert(
        Rules::whole_where_local,
        "unisono::Trainer: found an update that declares `local`, with a policy that declares `gives_owners`. "
        "Required: every rank owns everything, for instance Replicated with RingReducer. "
        "Why: between two meetings each rank updates all of its own copy.");
    static_assert(
        Rules::servers_own,
        "unisono::Trainer: found an update that declares `served`, with a policy that declares `gives_owners`. "
        "Required: Replicated, and no reducer. "
        "Why: the slices are owned by the servers that the update names, for instance Asynchronous{.servers = 2}.");
    static_assert(
        Rules::parameters_stay_whole,
        "unisono::Trainer: found an optimizer that declares `whole_parameters`, with a policy that declares "
        "`gives_owners` or `served`. Required: every rank owns everything, for instance Replicated with "
        "RingReducer. Why: owners' slices may cut a parameter, and the optimizer would see parts of it only.");
    static constexpr bool good = Rules::good;
};

/// What a compression asks of the others; `ReducerGiven`: by the user, and not by default.
template <class Compression, class Reducer, bool ReducerGiven, class Update, class Sharding, class Summation>
struct CompressionRules {
    static constexpr bool compresses = Compression::compresses;
    static constexpr bool to_owners = requires { requires Compression::sums_to_owners; };
    static constexpr bool nobody_owns =
        !compresses || to_owners || !(gives_owners<Reducer> || may_give_owners<Sharding>);
    static constexpr bool sums_are_plain = !compresses || !Summation::reproducible;
    static constexpr bool update_agrees = !compresses || agrees<Update> || local_update<Update>;
    static constexpr bool something_travels = !compresses || !in_common<Update>;
    static constexpr bool sums_what_travels = !compresses || !(gossips<Update> || streams_fragments<Update>);
    static constexpr bool sums_all =
        sums_what_travels && nobody_owns && sums_are_plain && update_agrees && something_travels;
    static constexpr bool has_its_way = !Compression::own_exchange || !ReducerGiven;
    static constexpr bool good = sums_all && has_its_way;

    /// The first rule that is broken; empty if none is.
    static constexpr std::string_view refusal =
        !nobody_owns         ? "a compression forms the sum for all ranks, and owners share it out"
        : !sums_are_plain    ? "a compression rounds, and the sums are reproducible"
        : !update_agrees     ? "a compression sums what all ranks have, and the update has servers or does not agree"
        : !something_travels ? "a compression shortens what is sent, and the update sends nothing"
        : !sums_what_travels
            ? "a compression sums whole buckets over all ranks, and the update sends fragments, or to neighbours"
        : !has_its_way ? "the compression has an exchange of its own and would not use the reducer"
                       : "";
};

/// Which of the given types that is; -1: none. Where a policy was given twice (refused above) the first one.
template <class Wanted, class... Given>
consteval int position_of() {
    int at = 0, found = -1;
    ((std::is_same_v<Wanted, Given>&& found < 0 ? found = at++ : at++), ...);
    return found;
}

/// What lies there, or a default one.
template <class Wanted, bool Given>
Wanted take([[maybe_unused]] void* const* all, [[maybe_unused]] int at) {
    if constexpr (Given) return std::move(*static_cast<Wanted*>(all[at]));
    else return {};
}

} // namespace detail
UNISONO_NAMESPACE_END
