#pragma once

#include <unisono/sharding/sharding.hpp>

/// Each bucket belongs to one rank, in turns, which holds its optimizer state and updates it. So an
/// owner has whole parameters, as an optimizer of matrices needs them. Ranks own equally much only
/// if there are many buckets of one size (StateSharding cuts every bucket into equal slices).
struct WholeBuckets {
    static constexpr std::string_view name = "whole buckets";
    static constexpr unisono::Family family = unisono::Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const WholeBuckets&, const WholeBuckets&) = default;

    [[nodiscard]] unisono::Owners owners(const unisono::BucketFacts& facts) const {
        const auto turn = static_cast<int>(facts.index % static_cast<std::size_t>(facts.world));
        return unisono::Owners::chosen(facts.count, {turn}, facts.world);
    }
};
static_assert(unisono::sharding_policy<WholeBuckets>);
