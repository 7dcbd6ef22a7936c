#pragma once

/// \file
/// The facts of a bucket from which policies determine owners (sharding, parameter servers).

#include "unisono/layout/owners.hpp"

#include <concepts>
#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// One bucket, for a policy that gives owners.
struct BucketFacts {
    std::size_t index = 0;
    std::size_t count = 0; ///< elements
    std::size_t element_bytes = 4;
    int world = 1;
};

/// `owners(facts)`: a pure function, so that all ranks agree without communication. Positions are
/// those of the bucket in flat order.
template <class P>
concept names_owners = requires(const P& policy, const BucketFacts& facts) {
    { policy.owners(facts) } -> std::same_as<Owners>;
};

UNISONO_NAMESPACE_END
