#pragma once

/// \file
/// A sharding that is chosen at run time: a program's own policy that declares `may_give_owners`.

#include <unisono/sharding/sharding.hpp>

#include <string_view>

namespace test {

/// StateSharding or Replicated.
struct OwnersOrAll {
    bool sharded = false;

    static constexpr std::string_view name = "owners or all";
    static constexpr unisono::Family family = unisono::Family::sharding;
    static constexpr bool gives_owners = false; ///< not always
    static constexpr bool may_give_owners = true;
    friend bool operator==(const OwnersOrAll&, const OwnersOrAll&) = default;

    [[nodiscard]] unisono::Owners owners(const unisono::BucketFacts& facts) const {
        if (sharded) return unisono::StateSharding{}.owners(facts);
        return unisono::Owners::everyone(facts.count, facts.world);
    }
};
static_assert(unisono::sharding_policy<OwnersOrAll>);

} // namespace test
