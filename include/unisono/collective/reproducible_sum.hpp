#pragma once

/// \file
/// A sum over ranks whose bits depend only on the addends: not on their order, the ranks that have
/// them, schedule, transport or number of ranks. Not part of collective.hpp: include this header to
/// use it.
///
///     un::reproducible_sum(world, gradient);                 // one addend per rank
///
/// Several addends on a rank are first added on the grid, so grouping does not matter either:
///
///     // needed: the greatest of needed_exponent; 8 bytes per element, any schedule
///     un::Grid grid = un::agree_on_grid<float>(world, needed, addends);
///     for (auto& x : mine)
///         un::add_to_grid(std::span(image), std::span<const float>(x), weight, grid);
///     un::all_reduce(world, image, un::GridSum{}, un::RingSchedule{});
///     un::from_grid(std::span<float>(sum), std::span<const std::int64_t>(image), grid);

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/list.hpp"

#include <array>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// data = the sum of all ranks' data on a grid, directly from their memory. `What` is an
/// all_reduce, or a reduce that leaves the data of ranks other than the root unchanged. The map
/// refers to ranges that must live as long as the operation, and are equal on all ranks. For more
/// than one rank.
template <Collective What, transport Transport, floating_element T>
    requires(Transport::maps_peers)
Operation start_sum_on_grid(Group<Transport>& group, std::span<T> data, const GridMap& map, int root = 0) {
    static constexpr NativeSchedule native;
    Call call = call_on<What, std::span<T>>(group, native, NoOperation{}, root);
    call.op = grid_reduction<T>(map);
    return group.start(call, buffer_of(data), buffer_of(data));
}

/// The needs of all ranks: the exponent, whether all have the same weight, and a rank whose data
/// are not finite.
struct GridNeeds {
    std::int32_t exponent = Grid::nothing;
    bool equal_weights = true;
    int not_finite = -1; ///< the lowest such rank
};

template <transport Transport>
GridNeeds agree_on_needs(Group<Transport>& group, std::int32_t needed, double weight) {
    const std::array<std::uint64_t, 2> mine = {static_cast<std::uint32_t>(needed),
                                               std::bit_cast<std::uint64_t>(weight)};
    List<std::uint64_t> all(2 * static_cast<std::size_t>(group.size()));
    all_gather(group, mine, all);
    GridNeeds found;
    for (int rank = 0; rank < group.size(); ++rank) {
        const std::size_t at = 2 * static_cast<std::size_t>(rank);
        const auto his = static_cast<std::int32_t>(static_cast<std::uint32_t>(all[at]));
        found.exponent = his > found.exponent ? his : found.exponent;
        found.equal_weights = found.equal_weights && all[at + 1] == all[1];
        if (his == Grid::not_finite && found.not_finite < 0) found.not_finite = rank;
    }
    return found;
}

[[noreturn, gnu::cold]] inline void throw_not_summable(const GroupCore& group, int rank) {
    throw error(
        group.blame(ErrorCode::not_finite, rank, "reproducible_sum",
                    {"has a number that is NaN, infinite or more than 2^960; nothing was changed on any rank"}));
}

} // namespace detail

/// One grid for addends of all ranks: the finest on which `addends` of them fit (the total per
/// element; the same number on all ranks). Each rank passes the exponent that its own addends need.
/// Collective; one all_gather of 16 bytes. \throws error not_finite, on all ranks, which names the
/// rank; the group remains usable
template <floating_element T, transport Transport>
Grid agree_on_grid(Group<Transport>& group, std::int32_t needed, std::int64_t addends) {
    detail::check_member(group);
    if (addends < 1) refuse_input({"agree_on_grid: found ", addends, " addends; expected at least 1"});
    const detail::GridNeeds all = detail::agree_on_needs(group, needed, 1.0);
    if (all.not_finite >= 0) detail::throw_not_summable(group, all.not_finite);
    return Grid::above<T>(all.exponent, addends);
}

/// data = the sum of weight * data over all ranks, on every rank, with any family of schedules.
/// Each rank has a weight of its own. The error is at most p * 2^(E - 52) plus half an ulp, where
/// 2^(E - 1) <= max |weight * data| < 2^E over all ranks and elements.
///
/// Cost: one read and an all_gather of 16 bytes to find E. Then, over mapped memory with equal
/// weights, an all_reduce of the data themselves (1 to 2.5 times the time of `Sum`); else an
/// all_reduce of integers on the grid, 8 bytes per element, with memory for them.
/// Errors: as all_reduce; and not_finite on all ranks, which leaves the data unchanged and the
/// group usable.
/// Determinism: a function of the set of (weight, data) only.
template <transport Transport, writable_buffer Data, class Family = NativeSchedule>
    requires floating_element<buffer_element<Data>>
void reproducible_sum(Group<Transport>& group, Data&& data, double weight = 1.0, const Family& family = {}) {
    detail::check_member(group);
    using T = buffer_element<Data>;
    const std::span<T> values = detail::span_of(data);
    detail::check_grid_weight("reproducible_sum", weight);
    const detail::GridNeeds all = detail::agree_on_needs(group, needed_exponent(values, weight), weight);
    if (all.not_finite >= 0) detail::throw_not_summable(group, all.not_finite);
    const Grid grid = Grid::above<T>(all.exponent, group.size());
    if (group.size() == 1) return static_cast<void>(round_to_grid(values, weight, grid));
    if constexpr (Transport::maps_peers && std::same_as<Family, NativeSchedule>) {
        if (all.equal_weights) {
            const detail::GridStretch stretch = {values.size(), grid.exponent};
            const detail::GridMap map{&stretch, 0, weight};
            return group.finish(detail::start_sum_on_grid<Collective::all_reduce>(group, values, map));
        }
    }
    Memory<std::int64_t> image = group.template allocate<std::int64_t>(values.size());
    const std::span<std::int64_t> images(image.data(), values.size());
    to_grid(images, values, weight, grid);
    all_reduce(group, images, Sum{}, family); // all fit, so none is marked
    from_grid(values, std::span<const std::int64_t>(images), grid);
}

UNISONO_NAMESPACE_END
