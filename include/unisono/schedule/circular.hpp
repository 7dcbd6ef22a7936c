#pragma once

/// \file
/// Ranks and blocks on a circle, as most schedules see them.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/schedule/schedule.hpp"

#include <bit>
#include <string>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// Refuses shapes for which no schedule is defined. Functions that take a rank or a root from the
/// user call it. \throws error bad_input
void refuse_bad_shape(const Shape& shape);

namespace detail {

constexpr std::uint32_t world_of(const Shape& shape) { return static_cast<std::uint32_t>(shape.world); }
constexpr std::uint32_t rank_of(const Shape& shape) { return static_cast<std::uint32_t>(shape.rank); }

/// The rank at `distance` from this one around the circle; the distance has either sign and is less
/// than a world.
constexpr int rank_at(const Shape& shape, int distance) {
    const int there = shape.rank + distance;
    return there < 0 ? there + shape.world : there >= shape.world ? there - shape.world : there;
}

/// As `rank_at`, as a block's number.
constexpr std::uint32_t block_at(const Shape& shape, int distance) {
    return static_cast<std::uint32_t>(rank_at(shape, distance));
}

/// Calls visit(peer) for all other ranks, beginning with the next one around the circle, so that
/// not all ranks start with the same peer.
template <class Visit>
constexpr void for_each_peer(const Shape& shape, Visit&& visit) {
    for (int distance = 1; distance < shape.world; ++distance) visit(rank_at(shape, distance));
}

/// Distance from the root to this rank, going up: 0 at the root.
constexpr std::uint32_t from_root(const Shape& shape) {
    return static_cast<std::uint32_t>(shape.rank < shape.root ? shape.rank - shape.root + shape.world
                                                              : shape.rank - shape.root);
}

/// Rounds that p ranks need until each has heard of all others.
constexpr std::uint32_t ceil_log2(std::uint32_t count) {
    return 32 - static_cast<std::uint32_t>(std::countl_zero(count - 1));
}

/// Cuts `count` blocks that begin at `first` on the circle into the one or two ranges that do not
/// wrap around. Calls visit(first, count, part) with parts 0 and 1. Sender and receiver get the
/// same parts.
template <class Visit>
constexpr void for_each_range(std::uint32_t first, std::uint32_t count, std::uint32_t world, Visit&& visit) {
    const std::uint32_t unwrapped = first + count <= world ? count : world - first;
    if (unwrapped != 0) visit(first, unwrapped, std::uint8_t{0});
    if (unwrapped != count) visit(std::uint32_t{0}, count - unwrapped, std::uint8_t{1});
}

constexpr std::uint32_t count_ranges(std::uint32_t first, std::uint32_t count, std::uint32_t world) {
    return count == 0 ? 0 : first + count <= world ? 1 : 2;
}

/// A range in scratch. Its packed run starts with block `start` in slot 0 and goes around the
/// circle: block 0 follows block `world - 1`.
constexpr Blocks in_run(std::uint32_t first, std::uint32_t count, std::uint32_t start, std::uint32_t world) {
    return first >= start ? scratch_blocks(first, count, 0, first - start)
                          : scratch_blocks(first, count, world - start, first);
}

/// The step of a world of one, for every collective that has an input.
template <class Visit>
constexpr void copy_through(std::uint32_t first, Visit&& visit) {
    visit(copy_blocks(input_blocks(first), output_blocks(first)));
}

} // namespace detail
} // namespace schedule

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace schedule {

UNISONO_DEFINITION void refuse_bad_shape(const Shape& shape) {
    const std::string ranks = concat({", expected 0 to ", shape.world - 1});
    if (shape.world < 1) refuse_input({"world is ", shape.world, ", expected at least 1 rank"});
    if (shape.rank < 0 || shape.rank >= shape.world) refuse_input({"rank is ", shape.rank, ranks});
    if (shape.root < 0 || shape.root >= shape.world) refuse_input({"root is ", shape.root, ranks});
}

} // namespace schedule
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
