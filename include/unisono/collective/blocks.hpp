#pragma once

/// \file
/// Collectives on blocks at any positions in a buffer, given by counts and displacements as in
/// MPI's v-variants. Element types are run-time types, see untyped.hpp. Not part of collective.hpp:
/// include this header to use it.
///
///     const un::Blocks places = {counts, displacements};
///     un::untyped::all_gather(world, numbers, mine, all, places);
///
/// These functions wait. Blocks without gaps between them cost no more than counts alone; other
/// blocks cost a copy of the buffer and the memory for it, on the rank that has them. Ranks may
/// have different displacements.

#include "unisono/collective/untyped.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// One block per rank: `counts[r]` elements that begin at element `displacements[r]` of a buffer.
/// Without displacements the blocks are contiguous, in rank order.
struct Blocks {
    std::span<const std::size_t> counts;
    std::span<const std::size_t> displacements = {};
};

namespace detail {

/// The blocks of an input or an output, one after another: the buffer itself, or a copy if there
/// are gaps. Errors: bad_input; also for blocks of an output that overlap.
class PackedBlocks {
public:
    /// `which`: "input" or "output".
    PackedBlocks(const GroupContext& group, Collective what, const char* which, const Blocks& blocks,
                 std::size_t element_bytes, const void* data)
        : blocks_(blocks), each_(element_bytes),
          data_(static_cast<std::byte*>(const_cast<void*>(data))) { // an input is only read
        const std::size_t all = total(group, what, blocks.counts);
        if (blocks.displacements.empty()) return;
        check_count(group, what, "the list of displacements", blocks.displacements.size(), blocks.counts.size());
        std::size_t end = 0;
        for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
            if (blocks.counts[r] != 0 && blocks.displacements[r] != end) gaps_ = true;
            end += blocks.counts[r];
            std::size_t behind = 0;
            if (blocks.counts[r] != 0 && (__builtin_add_overflow(blocks.displacements[r], blocks.counts[r], &behind) ||
                                          __builtin_mul_overflow(behind, each_, &behind) || behind > PTRDIFF_MAX))
                refuse_input({name_of(what), " on rank ", group.world_rank(group.rank), ": the block of rank ", r,
                              " has ", blocks.counts[r], " elements of ", each_, " bytes and begins at element ",
                              blocks.displacements[r], "; expected its end within what memory can hold"});
        }
        if (!gaps_) return;
        const bool reads = *which == 'i';
        if (!reads) check_apart(what, group.world_rank(group.rank));
        packed_.resize(bytes_of(group, name_of(what), all, each_));
        check_memory(group, name_of(what), which, data, packed_.size());
        if (reads) for_each([&](std::byte* at, std::byte* place, std::size_t bytes) { std::memcpy(at, place, bytes); });
    }

    /// The memory to send, or to receive into; `put` then moves the blocks to their positions.
    [[nodiscard]] void* memory() { return gaps_ ? packed_.data() : data_; }
    void put() {
        if (gaps_) for_each([&](std::byte* at, std::byte* place, std::size_t bytes) { std::memcpy(place, at, bytes); });
    }

private:
    void check_apart(Collective what, int rank) const {
        std::vector<std::size_t> order;
        for (std::size_t r = 0; r < blocks_.counts.size(); ++r) {
            if (blocks_.counts[r] != 0) order.push_back(r);
        }
        const auto& begin = blocks_.displacements;
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return begin[a] < begin[b]; });
        for (std::size_t i = 1; i < order.size(); ++i) {
            if (begin[order[i]] - begin[order[i - 1]] < blocks_.counts[order[i - 1]]) {
                refuse_input({name_of(what), " on rank ", rank, ": the blocks of ranks ", order[i - 1], " and ",
                              order[i], " overlap in the output"});
            }
        }
    }

    template <class Visit>
    void for_each(Visit visit) {
        std::byte* at = packed_.data();
        for (std::size_t r = 0; r < blocks_.counts.size(); ++r) {
            const std::size_t bytes = blocks_.counts[r] * each_;
            if (bytes != 0) visit(at, data_ + blocks_.displacements[r] * each_, bytes);
            at += bytes;
        }
    }

    Blocks blocks_;
    std::size_t each_;
    std::byte* data_;
    bool gaps_ = false;
    std::vector<std::byte> packed_;
};

/// The number of elements of this rank's own block; `counts` have been checked.
inline std::size_t own_count(const GroupCore& group, const Blocks& blocks) {
    return blocks.counts[static_cast<std::size_t>(group.rank())];
}

} // namespace detail

namespace untyped {

/// Every rank's `all` = the ranks' `mine`, rank r's in block r. `counts` are equal on all ranks.
/// `mine` may be this rank's own block.
/// Errors: as `all_gather`; bad_input if blocks overlap.
template <transport Transport>
void all_gather(Group<Transport>& group, const Elements& elements, const void* mine, void* all, const Blocks& blocks) {
    detail::check_member(group);
    detail::PackedBlocks output(group.context(), Collective::all_gather, "output", blocks, elements.bytes, all);
    all_gather(group, elements, mine, detail::own_count(group, blocks), output.memory(), blocks.counts).wait();
    output.put();
}

/// Rank r's `mine` = the reduction of all ranks' block r. `counts` are equal on all ranks.
/// Errors: as `reduce_scatter`.
template <transport Transport>
void reduce_scatter(Group<Transport>& group, const Elements& elements, const void* all, void* mine,
                    const Blocks& blocks, const Reduction& reduction) {
    detail::check_member(group);
    detail::PackedBlocks input(group.context(), Collective::reduce_scatter, "input", blocks, elements.bytes, all);
    reduce_scatter(group, elements, input.memory(), mine, detail::own_count(group, blocks), reduction, blocks.counts)
        .wait();
}

/// The root's `all` = the ranks' `mine`. `counts` are equal on all ranks; displacements are used at
/// the root only.
/// Errors: as `gather`; bad_input if the root's blocks overlap.
template <transport Transport>
void gather(Group<Transport>& group, const Elements& elements, const void* mine, void* all, const Blocks& blocks,
            int root) {
    detail::check_root(group.context(), root, "gather", "'s root");
    const bool is_root = group.rank() == root;
    detail::PackedBlocks output(group.context(), Collective::gather, "output", is_root ? blocks : Blocks{blocks.counts},
                                elements.bytes, all);
    gather(group, elements, mine, detail::own_count(group, blocks), output.memory(), root, blocks.counts).wait();
    output.put();
}

/// Each rank's `mine` = its block of the root's `all`. `counts` are equal on all ranks;
/// displacements are used at the root only. Errors: as `scatter`.
template <transport Transport>
void scatter(Group<Transport>& group, const Elements& elements, const void* all, void* mine, const Blocks& blocks,
             int root) {
    detail::check_root(group.context(), root, "scatter", "'s root");
    const bool is_root = group.rank() == root;
    detail::PackedBlocks input(group.context(), Collective::scatter, "input", is_root ? blocks : Blocks{blocks.counts},
                               elements.bytes, all);
    scatter(group, elements, input.memory(), mine, detail::own_count(group, blocks), root, blocks.counts).wait();
}

/// Block j of rank i's `in` becomes block i of rank j's `out`: `sends.counts[j]` elements go to
/// rank j, `receives.counts[i]` come from rank i. `in` and `out` must not overlap. Errors: as
/// `all_to_all`; bad_input if blocks of `out` overlap.
template <transport Transport>
void all_to_all(Group<Transport>& group, const Elements& elements, const void* in, const Blocks& sends, void* out,
                const Blocks& receives) {
    detail::check_member(group);
    detail::PackedBlocks input(group.context(), Collective::all_to_all, "input", sends, elements.bytes, in);
    detail::PackedBlocks output(group.context(), Collective::all_to_all, "output", receives, elements.bytes, out);
    all_to_all(group, elements, input.memory(), output.memory(), sends.counts, receives.counts).wait();
    output.put();
}

} // namespace untyped
UNISONO_NAMESPACE_END
