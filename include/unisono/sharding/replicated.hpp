#pragma once

/// \file
/// Every rank holds all parameters.

#include "unisono/sharding/sharding.hpp"

UNISONO_NAMESPACE_BEGIN

/// Each rank holds all parameters, and all ranks make the same updates of all of them, unless a
/// reducer gives owners (a parameter server). Memory per rank: parameters, gradients, and the
/// optimizer state of the slices that the rank updates.
struct Replicated {
    static constexpr std::string_view name = "replicated";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = false;
    friend bool operator==(const Replicated&, const Replicated&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const { return Owners::everyone(facts.count, facts.world); }
};
UNISONO_CERTIFY(sharding_policy<Replicated>);

UNISONO_NAMESPACE_END
