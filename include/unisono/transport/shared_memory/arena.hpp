#pragma once

/// \file
/// The range of a shared segment from which one rank allocates. Peers read and write blocks in it,
/// but only its owner decides their positions, so the lists are in the owner's own memory.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/transport/shared_memory/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Best fit among returned blocks, else from the end. Blocks keep their pages for the next use, up
/// to `most_kept` bytes in total, since getting and clearing a page costs more than copying one.
/// Beyond that, large blocks give their pages back. Thread-safe: a buffer may be destroyed on any
/// thread.
class SharedArena {
public:
    static constexpr std::size_t line = 128;
    static constexpr std::size_t large = std::size_t{1} << 18; ///< from this size on, whole pages
    static constexpr std::size_t most_kept = std::size_t{1} << 28;

    /// Bytes [begin, begin + bytes) of the segment; `begin` is a multiple of the page size.
    SharedArena(const SharedSegment& segment, std::size_t begin, std::size_t bytes);

    /// Allocates; not cleared. Errors: refused if memory or the arena is exhausted.
    std::byte* allocate(std::size_t wanted);

    void release(const std::byte* address) noexcept;

    /// Takes the blocks out of the peers' reach: the same addresses and contents, but private
    /// pages. For the end of a world in which a peer is stopped in the middle of a write, since no
    /// rank can wait until that peer continues. Costs one copy.
    void withdraw();

    [[nodiscard]] std::size_t used() const {
        const Lock lock(mutex_);
        return used_;
    }
    /// The number of bytes that are allocated now.
    [[nodiscard]] std::size_t taken() const;

private:
    struct Block {
        std::size_t at = 0; ///< from the beginning of the arena
        std::size_t bytes = 0;
        bool backed = true; ///< has pages
    };
    using Blocks = List<Block>; ///< by beginning

    static std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

    /// The size of a block. Large blocks have an odd number of pages. So the distance of
    /// consecutive buffers is no large power of two, at which loads alias each other's stores.
    [[nodiscard]] std::size_t size_of(std::size_t wanted) const;

    static bool better(const Block& a, const Block& b) { return a.backed != b.backed ? a.backed : a.bytes < b.bytes; }

    /// The first block that begins at or after `at`.
    static std::size_t place_of(const Blocks& blocks, std::size_t at);
    static void insert(Blocks& blocks, const Block& block);

    /// Takes the beginning of a free block.
    std::byte* again(std::size_t found, std::size_t bytes);

    /// Adds a block to the free ones, merged with its neighbours if both have pages or both have
    /// none.
    void join(Block block);

    const SharedSegment* segment_;
    std::size_t begin_;
    std::size_t bytes_;
    std::size_t page_;
    mutable Mutex mutex_;
    std::size_t used_ = 0;   ///< from the beginning; blocks beyond were never taken
    std::size_t backed_ = 0; ///< from the beginning, except blocks that gave their pages back
    std::size_t kept_ = 0;   ///< bytes of free blocks that have pages
    bool withdrawn_ = false;
    Blocks taken_; ///< by beginning
    Blocks free_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION SharedArena::SharedArena(const SharedSegment& segment, std::size_t begin, std::size_t bytes)
    : segment_(&segment), begin_(begin), bytes_(bytes), page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {}

UNISONO_DEFINITION std::byte* SharedArena::allocate(std::size_t wanted) {
    const std::size_t bytes = size_of(wanted);
    const Lock lock(mutex_);
    if (withdrawn_) refuse_shared_memory("the world has failed, and its memory was withdrawn", 0);
    std::size_t found = free_.size();
    for (std::size_t i = 0; i < free_.size(); ++i) {
        if (free_[i].bytes >= bytes && (found == free_.size() || better(free_[i], free_[found]))) found = i;
    }
    if (found != free_.size()) return again(found, bytes);
    if (bytes > bytes_ - used_)
        refuse_shared_memory(concat({"a rank's arena of ", bytes_text(bytes_), " has ", bytes_text(bytes_ - used_),
                                     " left, wanted ", bytes_text(bytes)}),
                             0);
    if (used_ + bytes > backed_) { // small blocks share the range that is backed at a time
        const std::size_t until = std::min(bytes_, round_up(used_ + bytes, bytes < large ? large : page_));
        segment_->back(begin_ + backed_, until - backed_);
        backed_ = until;
    }
    insert(taken_, Block{used_, bytes, true});
    used_ += bytes;
    return segment_->base() + begin_ + used_ - bytes;
}

UNISONO_DEFINITION void SharedArena::release(const std::byte* address) noexcept {
    const Lock lock(mutex_);
    if (withdrawn_) return; // nothing is allocated here any more
    const std::size_t at = static_cast<std::size_t>(address - segment_->base()) - begin_;
    const std::size_t place = place_of(taken_, at);
    if (place == taken_.size() || taken_[place].at != at) return;
    Block block = taken_[place];
    taken_.erase(place);
    if (block.bytes >= large && kept_ + block.bytes > most_kept) {
        const std::size_t first = round_up(at, page_); // at its ends it may share pages with neighbours
        const std::size_t last = (at + block.bytes) / page_ * page_;
        if (first < last) segment_->give_back(begin_ + first, last - first);
        block.backed = false;
    } else {
        kept_ += block.bytes;
    }
    join(block);
}

UNISONO_DEFINITION void SharedArena::withdraw() {
    const Lock lock(mutex_);
    for (const Block& one : taken_) {
        const std::size_t first = (begin_ + one.at) / page_ * page_;
        const std::size_t bytes = round_up(begin_ + one.at + one.bytes, page_) - first;
        std::byte* const place = segment_->base() + first;
        void* const copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) continue; // NOLINT: the block stays shared
        std::memcpy(copy, place, bytes);
        if (::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) // NOLINT
            ::munmap(copy, bytes);
    }
    withdrawn_ = true;
}

UNISONO_DEFINITION std::size_t SharedArena::taken() const {
    const Lock lock(mutex_);
    std::size_t sum = 0;
    for (const Block& one : taken_) sum += one.bytes;
    return sum;
}

UNISONO_DEFINITION std::size_t SharedArena::size_of(std::size_t wanted) const {
    if (wanted > bytes_)
        refuse_shared_memory(concat({"an arena has ", bytes_text(bytes_), ", wanted ", bytes_text(wanted)}), 0);
    if (wanted < large) return round_up(std::max<std::size_t>(wanted, 1), line);
    return (round_up(wanted, page_) / page_ | 1) * page_;
}

UNISONO_DEFINITION std::size_t SharedArena::place_of(const Blocks& blocks, std::size_t at) {
    std::size_t low = 0, high = blocks.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (blocks[middle].at < at) low = middle + 1;
        else high = middle;
    }
    return low;
}

UNISONO_DEFINITION void SharedArena::insert(Blocks& blocks, const Block& block) {
    const std::size_t place = place_of(blocks, block.at);
    blocks.push_back(block);
    for (std::size_t i = blocks.size() - 1; i > place; --i) blocks[i] = blocks[i - 1];
    blocks[place] = block;
}

UNISONO_DEFINITION std::byte* SharedArena::again(std::size_t found, std::size_t bytes) {
    const Block block = free_[found];
    if (!block.backed) segment_->back(begin_ + block.at, bytes);
    else kept_ -= bytes;
    if (block.bytes == bytes) free_.erase(found);
    else free_[found] = {block.at + bytes, block.bytes - bytes, block.backed};
    insert(taken_, {block.at, bytes, true});
    return segment_->base() + begin_ + block.at;
}

UNISONO_DEFINITION void SharedArena::join(Block block) {
    std::size_t place = place_of(free_, block.at);
    if (place != free_.size() && block.at + block.bytes == free_[place].at && free_[place].backed == block.backed) {
        block.bytes += free_[place].bytes;
        free_.erase(place);
    }
    if (place != 0) {
        Block& before = free_[place - 1];
        if (before.at + before.bytes == block.at && before.backed == block.backed) {
            before.bytes += block.bytes;
            return;
        }
    }
    insert(free_, block);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
