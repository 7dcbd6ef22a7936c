#pragma once

/// \file
/// Collectives of a group whose transport the compiler does not know, on host memory.

#include "unisono/collective/shell.hpp"
#include "unisono/schedule/families.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A call with the schedule that `keep_native` has left with the group, on elements of type T.
template <Collective What, class T, class Op = NoOperation>
[[nodiscard]] Call native_call(const Op& op = {}, int root = 0) {
    Call made{.what = What, .root = root};
    if constexpr (!std::same_as<Op, NoOperation>) made.op = make_reduction<Op, T>(op);
    return made;
}

/// Copies the bytes of rank `root` to all ranks, by the native schedule that the group keeps.
inline void broadcast_bytes(GroupCore& world, std::span<std::byte> data, int root) {
    world.run_once(native_call<Collective::broadcast, std::byte>(NoOperation{}, root), buffer_of(data),
                   buffer_of(data));
}

/// In place, by the native schedule that the group keeps.
template <class Op, class Data>
void all_reduce_native(GroupCore& world, Data& data, const Op& op) {
    const CallBuffer all = buffer_of(data);
    world.run(native_call<Collective::all_reduce, buffer_element<Data>>(op), all, all);
}

/// Gathers the words of every rank, in rank order, by messages in ceil(log2 p) rounds, also on a
/// group that keeps nothing. `caller`: the user's call, which ranks compare.
void gather_words(GroupCore& world, std::span<const std::uint64_t> mine, std::span<std::uint64_t> all,
                  Caller caller = Caller::none);

/// HalvingDoublingSchedule, whichever ranks share a host, also on a group that keeps nothing. A
/// template, so that only programs that call it compile the schedule.
template <Collective What>
[[nodiscard]] ScheduleChoice by_halving_doubling() {
    static constexpr int own_plan = 0; // so that the call has no native plan
    return {.plan =
                [](GroupCore& group, const Call&, OperationRequest& request) {
                    request.plan = &group.plan(schedule::schedule_of<What>(HalvingDoublingSchedule{}, group.shape()));
                },
            .family = &own_plan};
}

/// A sum in that order.
template <class T>
[[nodiscard]] Call halving_doubling_sum() {
    Call call = native_call<Collective::all_reduce, T>(Few<Sum>{});
    call.by = by_halving_doubling<Collective::all_reduce>();
    return call;
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void gather_words(GroupCore& world, std::span<const std::uint64_t> mine,
                                     std::span<std::uint64_t> all, Caller caller) {
    world.run_once(
        {.what = Collective::all_gather, .caller = caller, .by = by_halving_doubling<Collective::all_gather>()},
        buffer_of(mine), buffer_of(all));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
