#pragma once

/// \file
/// The properties that policies declare, and how a family's policy is found among the given ones.
///
/// Compatibility rules refer to these properties, never to names, so that a user's own policies
/// take part. A property that a policy does not declare counts as false.
/// - `gives_owners` (sharding, reducer): names exactly one owner for each slice.
/// - `may_give_owners` (sharding): names owners or all ranks, as its values say at run time.
/// - `shards_gradients` (sharding): only owners hold gradients, unit by unit.
/// - `shards_parameters` (sharding): the same for parameters.
/// - `reduces_to_owners` (reducer): can bring a sum to one rank only, and publish from there.
/// - `agrees`, and others (update): update/update.hpp.
/// - `needs_agreement` (any): all ranks must take the same decision.
/// - `whole_parameters` (optimizer): must see whole parameters at once (norms of layers).
/// - `counts_tokens` (accumulation): counts tokens over all ranks.
/// - `inspects` (guard): looks for gradients that are not finite.
/// - `scales` (loss scaling): passes compute gradients that are multiplied by a scale.
/// - `compresses` (compression): gradients do not travel unchanged.
/// - `own_exchange` (compression): takes no reducer, and at most the default one in a warm-up.
/// - `sums_to_owners` (compression): its sums may go to the owners of slices only.
/// - `reproducible` (summation): sums do not depend on order and grouping.
/// - `logical` (replicas): the number of replicas does not depend on the number of ranks.
///
/// rules.hpp has the rules in terms of these properties.

#include "unisono/core/policy.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/update/update.hpp"

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
/// True if slices may have owners.
template <class Policies, class Sharding>
inline constexpr bool may_have_owners = gives_owners<typename Policies::Reducer> || may_give_owners<Sharding>;
template <class P>
inline constexpr bool shards_gradients = requires { requires P::shards_gradients; };
template <class P>
inline constexpr bool shards_parameters = requires { requires P::shards_parameters; };
template <class P>
inline constexpr bool fixes_hosting = requires { requires P::fixes_hosting; };
template <class P>
inline constexpr bool reduces_to_owners = requires { requires P::reduces_to_owners; };
template <class P>
inline constexpr bool needs_agreement = requires { requires P::needs_agreement; };
template <class P>
inline constexpr bool whole_parameters = requires { requires P::whole_parameters; };
template <class P>
inline constexpr bool counts_tokens = requires { requires P::counts_tokens; };
template <class P>
inline constexpr bool inspects = requires { requires P::inspects; };
template <class P>
inline constexpr bool scales_loss = requires { requires P::scales; };
template <class P>
inline constexpr bool compresses = requires { requires P::compresses; };
template <class P>
inline constexpr bool own_exchange = requires { requires P::own_exchange; };
template <class P>
inline constexpr bool sums_to_owners = requires { requires P::sums_to_owners; };
template <class P>
inline constexpr bool reproducible_sums = requires { requires P::reproducible; };

template <class P>
consteval int family_index() {
    if constexpr (policy<P>) return static_cast<int>(P::family);
    else return -1;
}

template <Family Which, class... Given>
inline constexpr int given_of = ((family_index<Given>() == static_cast<int>(Which) ? 1 : 0) + ... + 0);

/// The first given policy of the family, or the default.
template <Family Which, class Default, class... Given>
struct PolicyOf {
    using type = Default;
};
template <Family Which, class Default, class First, class... Rest>
struct PolicyOf<Which, Default, First, Rest...> {
    using type = typename std::conditional_t<family_index<First>() == static_cast<int>(Which),
                                             std::type_identity<First>, PolicyOf<Which, Default, Rest...>>::type;
};

/// The index of a type among the given ones; -1: none. If a policy is given twice, which is refused
/// elsewhere, the index of the first.
template <class Wanted, class... Given>
consteval int position_of() {
    int at = 0, found = -1;
    ((std::is_same_v<Wanted, Given>&& found < 0 ? found = at++ : at++), ...);
    return found;
}

/// The given policy at that index, or a default one if it is below 0.
template <class Wanted, int Index>
Wanted take([[maybe_unused]] void* const* given) {
    if constexpr (Index >= 0) return std::move(*static_cast<Wanted*>(given[Index]));
    else return {};
}

} // namespace detail
UNISONO_NAMESPACE_END
