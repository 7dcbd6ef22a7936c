#pragma once

/// \file
/// all_gather, reduce_scatter and all_to_all, in which every rank gives and gets blocks; and
/// barrier.

#include "unisono/collective/shell.hpp"

UNISONO_NAMESPACE_BEGIN

/// Every rank's `all` = the ranks' `mine`, in rank order. `counts`: the number of elements of each
/// rank, the same list on every rank; without it all ranks give the same number. `mine` may be this
/// rank's own block of `all`; any other overlap is bad_input. Cost per rank: p - 1 blocks.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void all_gather(Group<Transport>& group, const In& mine, Out&& all, std::span<const std::size_t> counts = {},
                const Family& family = {}) {
    group.run(detail::call_on<Collective::all_gather, In>(group, family, detail::NoOperation{}, 0, counts, counts),
              detail::buffer_of(mine), detail::buffer_of(all));
}
/// As `all_gather`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_gather(Group<Transport>& group, In&& mine, Out&& all,
                                         std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.start(
        detail::call_on<Collective::all_gather, In>(group, family, detail::NoOperation{}, 0, counts, counts),
        detail::buffer_of(mine), detail::buffer_of(all));
}

/// Rank r's `mine` = the reduction of all ranks' r-th block of `all`. `counts` as in all_gather.
/// `mine` may be this rank's own block of `all`; any other overlap is bad_input. Cost per rank: p -
/// 1 blocks sent, p - 1 combined. Determinism: as all_reduce with the same family.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && (!std::same_as<Op, WeightedMean>)
void reduce_scatter(Group<Transport>& group, const In& all, Out&& mine, const Op& op = {},
                    std::span<const std::size_t> counts = {}, const Family& family = {}) {
    group.run(detail::call_on<Collective::reduce_scatter, In>(group, family, op, 0, counts, counts),
              detail::buffer_of(all), detail::buffer_of(mine));
}
/// As `reduce_scatter`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> &&
             (!std::same_as<Op, WeightedMean>) && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_reduce_scatter(Group<Transport>& group, In&& all, Out&& mine, const Op& op = {},
                                             std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.start(detail::call_on<Collective::reduce_scatter, In>(group, family, op, 0, counts, counts),
                       detail::buffer_of(all), detail::buffer_of(mine));
}

/// Block j of rank i's `in` becomes block i of rank j's `out`. With counts: `send_counts[j]`
/// elements go to rank j and `receive_counts[i]` come from rank i; otherwise all blocks are equal.
/// `in` and `out` must not overlap (bad_input).
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void all_to_all(Group<Transport>& group, const In& in, Out&& out, std::span<const std::size_t> send_counts = {},
                std::span<const std::size_t> receive_counts = {}, const Family& family = {}) {
    group.run(detail::call_on<Collective::all_to_all, In>(group, family, detail::NoOperation{}, 0, send_counts,
                                                          receive_counts),
              detail::buffer_of(in), detail::buffer_of(out));
}
/// As `all_to_all`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_to_all(Group<Transport>& group, In&& in, Out&& out,
                                         std::span<const std::size_t> send_counts = {},
                                         std::span<const std::size_t> receive_counts = {}, const Family& family = {}) {
    return group.start(detail::call_on<Collective::all_to_all, In>(group, family, detail::NoOperation{}, 0, send_counts,
                                                                   receive_counts),
                       detail::buffer_of(in), detail::buffer_of(out));
}

/// Starts a barrier, which completes when all ranks have started it. Cost: ceil(log2 p) empty
/// messages per rank, or one flag over mapped memory.
template <transport Transport, class Family = NativeSchedule>
[[nodiscard]] Operation start_barrier(Group<Transport>& group, const Family& family = {}) {
    return group.start(detail::call_on<Collective::barrier, std::span<std::byte>>(group, family), {}, {});
}
/// Returns when all ranks have called it. Errors: as all_reduce.
template <transport Transport, class Family = NativeSchedule>
void barrier(Group<Transport>& group, const Family& family = {}) {
    group.run(detail::call_on<Collective::barrier, std::span<std::byte>>(group, family), {}, {});
}

/// Refuses any other call of `all_gather`, with the reason.
template <transport Transport>
void all_gather(Group<Transport>&, detail::AnyData<false>, ...) {}

/// Refuses any other call of `reduce_scatter`, with the reason.
template <transport Transport>
void reduce_scatter(Group<Transport>&, detail::AnyData<false>, ...) {}

/// Refuses any other call of `all_to_all`, with the reason.
template <transport Transport>
void all_to_all(Group<Transport>&, detail::AnyData<false>, ...) {}

UNISONO_NAMESPACE_END
