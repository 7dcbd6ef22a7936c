#pragma once

/// \file
/// The owner of each slice of a bucket (or of any range of elements).

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// Positions [first, first + count).
struct Slice {
    std::size_t first = 0;
    std::size_t count = 0;
    [[nodiscard]] constexpr std::size_t end() const { return first + count; }
    friend bool operator==(const Slice&, const Slice&) = default;
};

/// A pure function of (count, owners): the rank that owns each slice. Slices are contiguous, do not
/// overlap, cover all positions and follow the order of the owners. Trailing owners of a short
/// range may own less or nothing. With `everyone` each rank owns all positions: all hold replicas.
class Owners {
public:
    /// Every rank of the world owns all positions.
    static Owners everyone(std::size_t count, int world) {
        check_world(world);
        return Owners(count, {}, world, count, true);
    }

    /// ZeRO's slices (Rajbhandari et al., SC'20): ceil(count / world) elements each, rounded up to
    /// a multiple of `granularity` (the elements of a cache line avoid false sharing). Padding
    /// beyond `count` belongs to no slice.
    static Owners equal(std::size_t count, int world, std::size_t granularity = 1);

    /// Equal slices for these ranks, in this order; other ranks own nothing. One rank: a master.
    /// Several: servers.
    static Owners chosen(std::size_t count, std::span<const int> ranks, int world, std::size_t granularity = 1);
    static Owners chosen(std::size_t count, std::initializer_list<int> ranks, int world, std::size_t granularity = 1) {
        return chosen(count, std::span<const int>(ranks.begin(), ranks.size()), world, granularity);
    }

    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] int world() const { return world_; }
    [[nodiscard]] bool replicated() const { return replicated_; }
    /// The owners in the order of their slices; empty when replicated.
    [[nodiscard]] std::span<const int> ranks() const { return {ranks_.data(), ranks_.size()}; }
    /// Elements of a full slice, padding included; 0 for an empty range.
    [[nodiscard]] std::size_t slice_count() const { return slice_count_; }
    /// Elements of all slices, padding included.
    [[nodiscard]] std::size_t padded_count() const { return replicated_ ? count_ : slice_count_ * ranks_.size(); }

    /// The slice of a rank; {0, 0} for a rank that owns nothing.
    [[nodiscard]] Slice slice(int rank) const;

    /// The owner of a position; -1, the calling rank itself, if replicated.
    [[nodiscard]] int owner_of(std::size_t position) const;

    friend bool operator==(const Owners&, const Owners&) = default;

private:
    Owners(std::size_t count, std::span<const int> ranks, int world, std::size_t slice_count, bool replicated);

    static void check_world(int world) {
        if (world < 1) refuse_input({"the world has ", world, " ranks; expected at least 1"});
    }

    std::size_t count_;
    detail::List<int> ranks_;
    int world_;
    std::size_t slice_count_;
    bool replicated_;
};

/// One bucket, for a policy that gives owners.
struct BucketFacts {
    std::size_t index = 0; ///< number of the bucket; the last parameters are in bucket 0
    std::size_t count = 0; ///< elements
    std::size_t element_bytes = 4;
    int world = 1; ///< ranks
};

/// `owners(facts)`: a pure function, so that all ranks agree without communication. Positions are
/// those of the bucket in flat order.
template <class P>
concept names_owners = requires(const P& policy, const BucketFacts& facts) {
    { policy.owners(facts) } -> std::same_as<Owners>;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Owners Owners::equal(std::size_t count, int world, std::size_t granularity) {
    check_world(world);
    detail::List<int> ranks(static_cast<std::size_t>(world));
    for (int r = 0; r < world; ++r) ranks[static_cast<std::size_t>(r)] = r;
    return chosen(count, ranks, world, granularity);
}

UNISONO_DEFINITION Owners Owners::chosen(std::size_t count, std::span<const int> ranks, int world,
                                         std::size_t granularity) {
    check_world(world);
    if (ranks.empty()) refuse_input("no owners were chosen; expected at least one rank");
    if (granularity == 0) refuse_input("the granularity of slices is 0; expected at least 1 element");
    detail::List<bool> seen(static_cast<std::size_t>(world));
    for (const int rank : ranks) {
        if (rank < 0 || rank >= world) {
            refuse_input({"owner ", rank, " is not a rank of a world of ", world});
        }
        if (seen[static_cast<std::size_t>(rank)]) refuse_input({"owner ", rank, " was chosen twice"});
        seen[static_cast<std::size_t>(rank)] = true;
    }
    const std::size_t even = count / ranks.size() + (count % ranks.size() != 0 ? 1 : 0);
    const std::size_t excess = even % granularity;
    const std::size_t added = excess == 0 ? 0 : granularity - excess;
    if (even > (std::numeric_limits<std::size_t>::max() - added) / ranks.size() - added) {
        refuse_input({"slices of ", count, " elements for ", ranks.size(), " owners overflow"});
    }
    return Owners(count, ranks, world, even + added, false);
}

UNISONO_DEFINITION Slice Owners::slice(int rank) const {
    if (replicated_) return {0, count_};
    std::size_t index = 0;
    while (index < ranks_.size() && ranks_[index] != rank) ++index;
    if (index == ranks_.size()) return {};
    const std::size_t first = std::min(count_, index * slice_count_);
    const std::size_t owned = std::min(slice_count_, count_ - first);
    return owned == 0 ? Slice{} : Slice{first, owned};
}

UNISONO_DEFINITION int Owners::owner_of(std::size_t position) const {
    if (position >= count_) {
        refuse_input({"position ", position, " is outside of ", count_, " elements"});
    }
    return replicated_ ? -1 : ranks_[position / slice_count_];
}

UNISONO_DEFINITION Owners::Owners(std::size_t count, std::span<const int> ranks, int world, std::size_t slice_count,
                                  bool replicated)
    : count_(count), ranks_(ranks), world_(world), slice_count_(slice_count), replicated_(replicated) {}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
