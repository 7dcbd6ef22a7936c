#pragma once

/// \file
/// Starts the sums of one bucket, or of one unit, over the ranks: on all ranks, or each slice on
/// its owner.

#include "unisono/group/operation.hpp"
#include "unisono/reducer/reducer.hpp"
#include "unisono/trainer/exchange/owned_slices.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Starts to sum bucket b over the ranks. `Owned`: slices may have owners. `values`, a std::span or
/// DeviceSpan, are the bucket's elements; the first one has index `first` in the flat order.
template <bool Owned, class Run, class World, class Values>
void start_bucket_sums(Run& run, World& world, const OwnedSlices& slices, std::size_t b, std::size_t first,
                       Values values, std::vector<Operation>& operations) {
    if constexpr (Owned && sums_slices<Run, World>) {
        const std::span<const std::size_t> counts = slices.slice_counts(b);
        if (!counts.empty() && sums_slices_at_once<World>(run)) {
            keep(operations, run.sum_slices(world, values, counts));
            return;
        }
    }
    for (const OwnedSlice& owned : slices.of_bucket(b)) {
        const Values slice = values.subspan(owned.slice.first - first, owned.slice.count);
        if constexpr (!Owned) {
            keep(operations, run.sum(world, slice));
        } else {
            if constexpr (sums_to_all<Run, World>) {
                if (owned.owner == every_rank) {
                    keep(operations, run.sum(world, slice));
                    continue;
                }
            }
            keep(operations, run.sum_to(world, slice, owned.owner));
        }
    }
}

/// The reducer that a compression uses for one bucket. It sums to the same ranks as without
/// compression.
template <bool Owned, class Run>
struct BucketReduction {
    Run& run;
    const OwnedSlices& slices;
    std::size_t bucket;
    std::size_t first;                  ///< index of the bucket's first element in the flat order
    std::vector<Operation>& operations; ///< the operations of all slices but the last
    template <class World, class Values>
    Operation sum(World& world, Values wire) {
        start_bucket_sums<Owned>(run, world, slices, bucket, first, wire, operations);
        Operation last = std::move(operations.back());
        operations.pop_back();
        return last;
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
