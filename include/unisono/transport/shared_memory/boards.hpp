#pragma once

/// \file
/// The free boards of a shared-memory world. Each rank has boards that only it gives away. So no
/// board is given twice, and ranks only need to agree on whose board to take.

#include "unisono/core/list.hpp"
#include "unisono/transport/shared_memory/world.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The boards of one rank. A board that was given to a group is free again when all its ranks have
/// dropped it.
class SharedBoards {
public:
    static constexpr int none = -1;

    SharedBoards() = default;
    /// The boards `rank`, `rank + ranks`, ...; number 1 is the world's own.
    SharedBoards(int rank, int ranks) : next_(static_cast<std::size_t>(rank)), step_(static_cast<std::size_t>(ranks)) {}

    /// A cleared board, the same one until it is given away; `none` if all are in use.
    int offer(const SharedMemoryWorld& world) {
        if (offered_ == none) offered_ = find(world);
        return offered_;
    }
    /// The offered board now belongs to a group of `ranks` ranks.
    void give(int ranks) {
        given_.push_back({static_cast<std::uint32_t>(offered_), static_cast<std::uint32_t>(ranks)});
        offered_ = none;
    }

private:
    struct Given {
        std::uint32_t board = 0;
        std::uint32_t ranks = 0;
    };
    static constexpr std::size_t few = 64; ///< boards to check before a new one is taken

    int find(const SharedMemoryWorld& world) {
        const int back = find_back(world, few);
        if (back != none) return back;
        if (next_ == 1) next_ += step_;
        if (next_ >= SharedLayout::most_groups) return find_back(world, given_.size());
        const std::size_t fresh = next_;
        next_ += step_;
        return static_cast<int>(fresh);
    }

    /// A dropped board among the next `most` of those that were given.
    int find_back(const SharedMemoryWorld& world, std::size_t most) {
        for (std::size_t i = 0; i < most && i < given_.size(); ++i) {
            cursor_ = cursor_ + 1 < given_.size() ? cursor_ + 1 : 0;
            const Given one = given_[cursor_];
            if (world.dropped(one.board) != one.ranks) continue;
            given_[cursor_] = given_.back();
            given_.pop_back();
            world.clear_board(one.board);
            return static_cast<int>(one.board);
        }
        return none;
    }

    std::size_t next_ = 0; ///< of those that were never given
    std::size_t step_ = 1;
    std::size_t cursor_ = 0;
    int offered_ = none;
    List<Given> given_;
};

} // namespace detail
UNISONO_NAMESPACE_END
