#pragma once

/// \file
/// Blocks at any positions in a buffer, given by counts and displacements as in MPI's v-variants,
/// and a collective on them in flight. Blocks without gaps between them cost no more than counts
/// alone; other blocks cost a copy of the buffer and the memory for it, on the rank that has them.
/// Ranks may have different displacements.

#include "unisono/group/group_core.hpp"
#include "unisono/group/sizes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
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
    PackedBlocks() = default;
    /// `which`: "input" or "output".
    PackedBlocks(const GroupContext& group, Collective what, const char* which, const Blocks& blocks,
                 std::size_t element_bytes, const void* data)
        : each_(element_bytes), data_(static_cast<std::byte*>(const_cast<void*>(data))) { // an input is only read
        const std::size_t all = total(group, what, blocks.counts);
        if (blocks.displacements.empty()) return;
        check_count(group, what, "the list of displacements", blocks.displacements.size(), blocks.counts.size());
        std::size_t end = 0;
        bool gaps = false;
        for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
            if (blocks.counts[r] != 0 && blocks.displacements[r] != end) gaps = true;
            end += blocks.counts[r];
            std::size_t behind = 0;
            if (blocks.counts[r] != 0 && (__builtin_add_overflow(blocks.displacements[r], blocks.counts[r], &behind) ||
                                          __builtin_mul_overflow(behind, each_, &behind) || behind > PTRDIFF_MAX))
                refuse_input({name_of(what), " on rank ", group.world_rank(group.rank), ": the block of rank ", r,
                              " has ", blocks.counts[r], " elements of ", each_, " bytes and begins at element ",
                              blocks.displacements[r], "; expected its end within what memory can hold"});
        }
        if (!gaps) return;
        const bool reads = *which == 'i';
        if (!reads) check_apart(blocks, what, group.world_rank(group.rank));
        packed_.resize(bytes_of(group, name_of(what), all, each_));
        check_memory(group, name_of(what), which, data, packed_.size());
        for (std::size_t r = 0; r < blocks.counts.size(); ++r)
            if (blocks.counts[r] != 0) places_.push_back({blocks.displacements[r] * each_, blocks.counts[r] * each_});
        if (reads) for_each([&](std::byte* at, std::byte* place, std::size_t bytes) { std::memcpy(at, place, bytes); });
    }

    /// The memory to send, or to receive into; `put` then moves the blocks to their positions.
    [[nodiscard]] void* memory() { return places_.empty() ? data_ : packed_.data(); }
    void put() {
        for_each([&](std::byte* at, std::byte* place, std::size_t bytes) { std::memcpy(place, at, bytes); });
    }

private:
    struct Place {
        std::size_t begin;
        std::size_t bytes;
    };

    static void check_apart(const Blocks& blocks, Collective what, int rank) {
        std::vector<std::size_t> order;
        for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
            if (blocks.counts[r] != 0) order.push_back(r);
        }
        const auto& begin = blocks.displacements;
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return begin[a] < begin[b]; });
        for (std::size_t i = 1; i < order.size(); ++i) {
            if (begin[order[i]] - begin[order[i - 1]] < blocks.counts[order[i - 1]]) {
                refuse_input({name_of(what), " on rank ", rank, ": the blocks of ranks ", order[i - 1], " and ",
                              order[i], " overlap in the output"});
            }
        }
    }

    template <class Visit>
    void for_each(Visit visit) {
        std::byte* at = packed_.data();
        for (const Place& place : places_) {
            visit(at, data_ + place.begin, place.bytes);
            at += place.bytes;
        }
    }

    std::size_t each_ = 1;
    std::byte* data_ = nullptr;
    std::vector<Place> places_; ///< of blocks with gaps
    std::vector<std::byte> packed_;
};

} // namespace detail

/// A collective on blocks, in flight. As `Operation`: move-only; its group and memory must outlive
/// it, and dropping it unfinished aborts the world. Counts and displacements may change once it has
/// started.
class BlockOperation {
public:
    BlockOperation() = default;
    BlockOperation(Operation operation) : operation_(std::move(operation)) {}

    /// As `Operation::poll`.
    bool poll() {
        if (!operation_.poll()) return false;
        put();
        return true;
    }
    /// As `Operation::give_up`.
    void give_up(std::chrono::nanoseconds waited) { operation_.give_up(waited); }
    /// As `Operation::wait`.
    void wait() {
        operation_.wait();
        put();
    }

private:
    friend class AnyGroup;

    void put() { std::exchange(output_, {}).put(); }

    detail::PackedBlocks input_;
    detail::PackedBlocks output_;
    Operation operation_; ///< ends before its memory
};

UNISONO_NAMESPACE_END
