#pragma once

/// \file
/// Combines gradients: sums from all ranks to the owners of each slice, and the owners' results
/// back to all ranks.
///
/// A policy's `start(group)` makes its *run*, which has these functions. None of them waits:
/// - `sum(group, values)`: values = the sum of all ranks' values, on all ranks;
/// - `sum_to(group, values, owner)`: the same on the owner only; on other ranks the values are
///   undefined afterwards;
/// - `publish(group, values, owner)`: values = the owner's values, on all ranks;
/// - `sum_slices(group, values, counts)`: `values` holds the slices of all ranks, in rank order;
///   each rank gets the sum of its own slice. `counts` are equal on all ranks and live until the
///   operation starts.
/// The trainer calls `sum_to` and `publish` of reducers that declare `reduces_to_owners`, and `sum`
/// of those that give no owners. `sum_slices` is optional and for speed: without it each slice is
/// summed to its owner separately.
///
/// An algorithm of your own is a schedule (schedule/schedule.hpp). `start` then returns a
/// `ScheduledReduction`. Any other run returns the operations that `start_all_reduce(group, values,
/// Sum{}, family)` and similar functions start, for a family of schedules.
///
/// Laws
/// - All ranks call the same functions in the same order with the same slices (the trainer ensures
///   both).
/// - The sum has the same bits on all ranks (for floats they may depend on the schedule and the
///   number of ranks).
/// - A choice depends only on values that are equal on all ranks.
///
/// Menu:
/// - `NativeReducer`: the transport's best schedule. For ranks that map each other's memory, and a
///   good default.
/// - `RingReducer`: a ring, 2 (p-1)/p of the data per rank. For large gradients over a network.
/// - `HalvingDoublingReducer`: recursive halving and doubling, 2 log2 p rounds. For middle sizes
///   and many ranks.
/// - `TreeReducer`: a binomial tree, up and down. For small gradients and many ranks.
/// - `ParameterServerReducer`: servers that own slices, and the optimizer state with them.
/// - `AutomaticReducer`: the one of these that a cost model prefers. For sizes that differ much,
///   and unknown networks.
/// - `AnyReducer` (reducers.hpp): one that is named at run time. For programs with a command line.
///
/// Reducers whose functions also accept a `DeviceSpan` train models on a device (docs/device.md).
/// Declared properties: `gives_owners` (and then `owners(facts)`, as a sharding policy),
/// `reduces_to_owners`; of the run: `combines_at_once` (its functions are the native ones, which
/// over mapped memory combine all ranks' elements at once). With `Reproducible` the functions are
/// also called with std::int64_t, and with `NarrowReproducible` with std::int32_t. Deliberately
/// absent: averaging (the trainer divides by the sum of the weights, once, in the optimizer's
/// pass).

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// Reductions whose sums every rank gets.
template <class R, class World>
concept sums_to_all = requires(R& run, World& group, std::span<float> values, std::span<double> wide) {
    { run.sum(group, values) } -> std::same_as<Operation>;
    { run.sum(group, wide) } -> std::same_as<Operation>;
};

/// Reductions whose sums one rank gets, the owner of the values.
template <class R, class World>
concept sums_to_owners = requires(R& run, World& group, std::span<float> values, std::span<double> wide, int owner) {
    { run.sum_to(group, values, owner) } -> std::same_as<Operation>;
    { run.publish(group, values, owner) } -> std::same_as<Operation>;
    { run.sum_to(group, wide, owner) } -> std::same_as<Operation>;
    { run.publish(group, wide, owner) } -> std::same_as<Operation>;
};

/// Reductions of which each rank gets the sums of its slice.
template <class R, class World>
concept sums_slices = requires(R& run, World& group, std::span<float> values, std::span<double> wide,
                               std::span<const std::size_t> counts) {
    { run.sum_slices(group, values, counts) } -> std::same_as<Operation>;
    { run.sum_slices(group, wide, counts) } -> std::same_as<Operation>;
};

namespace detail {
/// True if one operation sums all slices: the run has `sum_slices`, and, if it chooses among
/// several (`has_sum_slices`), the chosen one has it.
template <class World, class Run>
[[nodiscard]] bool sums_slices_at_once(const Run& run) {
    if constexpr (!sums_slices<Run, World>) return false;
    else if constexpr (requires { run.template has_sum_slices<World>(); }) return run.template has_sum_slices<World>();
    else return true;
}
} // namespace detail

/// Policies that sum gradients over the ranks.
template <class R, class World>
concept reducer_policy = policy_of<R, Family::reducer> && requires(const R& policy, World& group) {
    policy.start(group);
    { R::gives_owners } -> detail::converts_to<bool>;
    { R::reduces_to_owners } -> detail::converts_to<bool>;
    requires R::gives_owners || sums_to_all<decltype(policy.start(group)), World>;
    requires !R::reduces_to_owners || sums_to_owners<decltype(policy.start(group)), World>;
};

namespace detail {
template <class Schedules>
concept scatters_sums =
    std::same_as<Schedules, NativeSchedule> || schedule::offers<Schedules, Collective::reduce_scatter>;
} // namespace detail

/// The run of a reducer that uses one family of schedules for sums over all ranks, and one for sums
/// to an owner. A reducer with a schedule of your own returns it from `start`, with TreeSchedule as
/// the second family unless the first offers reduce and broadcast.
template <class ToAll, class ToOwner = ToAll>
struct ScheduledReduction {
    ToAll to_all;
    ToOwner to_owner;
    /// Over mapped memory one rank combines all ranks' elements at once: no intermediate sum is
    /// rounded.
    static constexpr bool combines_at_once =
        std::same_as<ToAll, NativeSchedule> && std::same_as<ToOwner, NativeSchedule>;

    // `Values`: a std::span, or a DeviceSpan.
    template <transport Transport, class Values>
    Operation sum(Group<Transport>& group, Values values) const {
        return unisono::start_all_reduce(group, values, Sum{}, to_all);
    }
    template <transport Transport, class Values>
    Operation sum_to(Group<Transport>& group, Values values, int owner) const {
        return unisono::start_reduce(group, values, values, owner, Sum{}, to_owner);
    }
    template <transport Transport, class Values>
    Operation publish(Group<Transport>& group, Values values, int owner) const {
        return unisono::start_broadcast(group, values, owner, to_owner);
    }
    template <transport Transport, class Values>
        requires detail::scatters_sums<ToAll>
    Operation sum_slices(Group<Transport>& group, Values values, std::span<const std::size_t> counts) const {
        const auto me = static_cast<std::size_t>(group.rank());
        std::size_t first = 0;
        for (std::size_t rank = 0; rank < me; ++rank) first += counts[rank];
        return unisono::start_reduce_scatter(group, values, values.subspan(first, counts[me]), Sum{}, counts, to_all);
    }
};

UNISONO_NAMESPACE_END
