#pragma once

/// \file
/// The laws of sharding/sharding.hpp for any policy, and a minimal policy.

#include "unisono/core/text.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/testing/testing.hpp"

#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal sharding that gives owners: the last rank owns everything.
struct ArchetypeSharding {
    static constexpr std::string_view name = "archetype sharding";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const ArchetypeSharding&, const ArchetypeSharding&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const {
        return Owners::chosen(facts.count, {facts.world - 1}, facts.world);
    }
};
static_assert(sharding_policy<ArchetypeSharding>);

namespace detail {

/// True if each element belongs to one slice and no slice extends beyond the end.
inline bool covers_once(const Owners& owners) {
    std::vector<int> times(owners.count());
    for (int rank = 0; rank < owners.world(); ++rank) {
        const Slice slice = owners.slice(rank);
        if (slice.end() > owners.count()) return false;
        for (std::size_t i = slice.first; i < slice.end(); ++i) ++times[i];
    }
    for (const int n : times)
        if (n != 1) return false;
    return true;
}

/// True if each rank has a slice, in rank order.
inline bool every_rank_in_order(const Owners& owners) {
    if (owners.ranks().size() != static_cast<std::size_t>(owners.world())) return false;
    for (int rank = 0; rank < owners.world(); ++rank)
        if (owners.ranks()[static_cast<std::size_t>(rank)] != rank) return false;
    return true;
}

} // namespace detail

/// Owners are a pure function of the facts, for a bucket of that size and a world of that number of
/// ranks. The policy gives owners, or all ranks, as it declares. A policy that shards gradients has
/// a slice for every rank, in rank order. A policy that shards parameters also shards gradients.
template <sharding_policy Policy>
Violations sharding_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    constexpr bool may_give_owners = [] {
        if constexpr (requires { Policy::may_give_owners; }) return bool{Policy::may_give_owners};
        else return false;
    }();
    constexpr bool shards_gradients = requires { requires Policy::shards_gradients; };
    if (requires { requires Policy::shards_parameters; } && !shards_gradients)
        found.add("declares shards_parameters and not shards_gradients");
    const Policy copy = policy;
    for (const int world : {1, 2, 3, 4, 7, 8, 64}) {
        for (const std::size_t count : {0u, 1u, 15u, 16u, 63u, 1000u, 4097u}) {
            for (const std::size_t element_bytes : {2u, 4u, 8u}) {
                for (const std::size_t index : {0u, 1u, 5u}) {
                    const BucketFacts facts{index, count, element_bytes, world};
                    const std::string of = concat({"the owners of bucket ", index, " of ", count, " elements of ",
                                                   element_bytes, " bytes on ", world, " ranks "});
                    const Owners owners = policy.owners(facts);
                    if (owners.count() != count) found.add(concat({of, "are those of ", owners.count(), " elements"}));
                    if (owners.world() != world) found.add(concat({of, "are those of ", owners.world(), " ranks"}));
                    if (!(owners == policy.owners(facts))) found.add(of + "differ from call to call");
                    if (!(owners == copy.owners(facts))) found.add(of + "differ from a copy's");
                    if (owners.replicated() && Policy::gives_owners)
                        found.add(of + "are all ranks, although `gives_owners` is true");
                    if (!owners.replicated() && !Policy::gives_owners && !may_give_owners)
                        found.add(of + "are single ranks, although `gives_owners` is false");
                    if (!owners.replicated() && owners.count() == count && owners.world() == world &&
                        !detail::covers_once(owners))
                        found.add(of + "do not cover each element once");
                    if (shards_gradients && !detail::every_rank_in_order(owners))
                        found.add(of + "are not all ranks in order, although `shards_gradients` is true");
                    if (found.full()) return found;
                }
            }
        }
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
