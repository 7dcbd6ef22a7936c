#pragma once

/// \file
/// The slices into which owners cut the buckets, and the rank that updates each slice.

#include "unisono/core/list.hpp"
#include "unisono/layout/owners.hpp"

#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// As the value of an owner: all ranks own the slice.
inline constexpr int every_rank = -1;

/// A slice of a bucket and its owner.
struct OwnedSlice {
    Slice slice = {};
    int owner = every_rank;
};

/// The slices of all buckets, computed once. Add buckets in their order.
class OwnedSlices {
public:
    OwnedSlices(int rank, int world) : rank_(rank), world_(world) { begin_.push_back(0); }

    void add(const Slice& bucket, const Owners& owners);

    /// Call it after the last bucket.
    void close();

    [[nodiscard]] const List<OwnedSlice>& all() const { return all_; }
    [[nodiscard]] Part<const OwnedSlice> of_bucket(std::size_t b) const {
        return {all_.data() + begin_[b], begin_[b + 1] - begin_[b]};
    }
    [[nodiscard]] std::size_t buckets() const { return begin_.size() - 1; }
    /// The number of a bucket's first slice among all.
    [[nodiscard]] std::size_t first_of_bucket(std::size_t b) const { return begin_[b]; }
    /// True if some elements have an owner.
    [[nodiscard]] bool cut() const { return cut_; }
    /// True if every element has one owner.
    [[nodiscard]] bool all_cut() const {
        for (const OwnedSlice& one : all_)
            if (one.owner == every_rank) return false;
        return !all_.empty();
    }
    /// True if this rank updates the slice.
    [[nodiscard]] bool is_mine(const OwnedSlice& one) const { return one.owner == every_rank || one.owner == rank_; }
    /// True if this rank adds the slice to a sum over the ranks. An element with one owner must be
    /// counted once.
    [[nodiscard]] bool counts_here(const OwnedSlice& one) const {
        return one.owner == rank_ || (one.owner == every_rank && (!cut_ || rank_ == 0));
    }
    /// The elements that this rank updates, in flat order. The optimizer's state has the same
    /// order.
    [[nodiscard]] const List<Slice>& owned() const { return owned_; }
    [[nodiscard]] std::size_t owned_count() const {
        std::size_t count = 0;
        for (const Slice& slice : owned_) count += slice.count;
        return count;
    }
    /// The number of elements of each rank's slice of a bucket, in rank order, if every rank owns a
    /// slice: then one operation can sum the bucket. Else empty.
    [[nodiscard]] std::span<const std::size_t> slice_counts(std::size_t b) const;

private:
    int rank_;
    int world_;
    List<OwnedSlice> all_;
    List<std::size_t> begin_; ///< index of each bucket's first slice; one more entry for the end
    bool cut_ = false;
    List<Slice> owned_;
    List<std::size_t> slice_counts_;
    List<std::size_t> slices_end_; ///< end of each bucket in `slice_counts_`
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void OwnedSlices::add(const Slice& bucket, const Owners& owners) {
    if (owners.replicated()) {
        all_.push_back({bucket, every_rank});
    } else {
        for (const int rank : owners.ranks()) {
            const Slice slice = owners.slice(rank);
            if (slice.count != 0) all_.push_back({{bucket.first + slice.first, slice.count}, rank});
        }
    }
    begin_.push_back(all_.size());
    const auto ranks = static_cast<std::size_t>(owners.replicated() ? 0 : world_);
    bool all = ranks != 0 && owners.ranks().size() == ranks;
    for (std::size_t r = 0; all && r < ranks; ++r) all = owners.ranks()[r] == static_cast<int>(r);
    for (std::size_t r = 0; all && r < ranks; ++r) slice_counts_.push_back(owners.slice(static_cast<int>(r)).count);
    slices_end_.push_back(slice_counts_.size());
}

[[gnu::cold]] UNISONO_DEFINITION void OwnedSlices::close() {
    for (const OwnedSlice& one : all_) {
        cut_ = cut_ || (one.owner != every_rank && world_ > 1);
        if (is_mine(one)) owned_.push_back(one.slice);
    }
    insertion_sort(owned_, [](const Slice& a, const Slice& b) { return a.first < b.first; }); // one per bucket
    std::size_t kept = 0;
    for (std::size_t i = 1; i < owned_.size(); ++i) { // joins those that are contiguous
        if (owned_[kept].end() == owned_[i].first) owned_[kept].count += owned_[i].count;
        else owned_[++kept] = owned_[i];
    }
    if (!owned_.empty()) owned_.resize(kept + 1);
}

UNISONO_DEFINITION std::span<const std::size_t> OwnedSlices::slice_counts(std::size_t b) const {
    const std::size_t begin = b == 0 ? 0 : slices_end_[b - 1];
    return {slice_counts_.data() + begin, slices_end_[b] - begin};
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
