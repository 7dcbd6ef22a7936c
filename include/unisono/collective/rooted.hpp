#pragma once

/// \file
/// broadcast, reduce, gather and scatter: collectives with a root.

#include "unisono/collective/shell.hpp"

UNISONO_NAMESPACE_BEGIN

/// Every rank's data become the root's. n elements on every rank. Cost: tree ceil(log2 p) rounds of
/// n elements; ring (a chain) for large data with `chunk_bytes`; native over mapped memory: each
/// rank reads the root's memory. Errors and aliasing as in all_reduce.
template <transport Transport, result_of<Transport> Data, class Family = NativeSchedule>
void broadcast(Group<Transport>& group, Data&& data, int root, const Family& family = {}) {
    group.run(detail::call_on<Collective::broadcast, Data>(group, family, detail::NoOperation{}, root),
              detail::buffer_of(data), detail::buffer_of(data));
}
/// As `broadcast`, without waiting.
template <transport Transport, result_of<Transport> Data, class Family = NativeSchedule>
    requires detail::outlives_call<Data>
[[nodiscard]] Operation start_broadcast(Group<Transport>& group, Data&& data, int root, const Family& family = {}) {
    return group.start(detail::call_on<Collective::broadcast, Data>(group, family, detail::NoOperation{}, root),
                       detail::buffer_of(data), detail::buffer_of(data));
}

/// The root's `out` = the reduction of all ranks' `in`. `out` is used at the root only (elsewhere
/// it may be empty) and may be the root's `in`. Determinism: as all_reduce with the same family.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && (!std::same_as<Op, WeightedMean>)
void reduce(Group<Transport>& group, const In& in, Out&& out, int root, const Op& op = {}, const Family& family = {}) {
    group.run(detail::call_on<Collective::reduce, In>(group, family, op, root), detail::buffer_of(in),
              detail::buffer_of(out));
}
/// As `reduce`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> &&
             (!std::same_as<Op, WeightedMean>) && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation
    start_reduce(Group<Transport>& group, In&& in, Out&& out, int root, const Op& op = {}, const Family& family = {}) {
    return group.start(detail::call_on<Collective::reduce, In>(group, family, op, root), detail::buffer_of(in),
                       detail::buffer_of(out));
}

/// The root's `all` = the ranks' `mine`, in rank order. `counts`: the number of elements of each
/// rank, the same list on every rank; without it all ranks give the same number. `mine` may be the
/// root's own block of `all`. Cost: tree ceil(log2 p) rounds, p - 1 blocks through the root's
/// subtrees; native over mapped memory: the root reads the ranks' memory.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void gather(Group<Transport>& group, const In& mine, Out&& all, int root, std::span<const std::size_t> counts = {},
            const Family& family = {}) {
    group.run(detail::call_on<Collective::gather, In>(group, family, detail::NoOperation{}, root, counts, counts),
              detail::buffer_of(mine), detail::buffer_of(all));
}
/// As `gather`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_gather(Group<Transport>& group, In&& mine, Out&& all, int root,
                                     std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.start(
        detail::call_on<Collective::gather, In>(group, family, detail::NoOperation{}, root, counts, counts),
        detail::buffer_of(mine), detail::buffer_of(all));
}

/// Each rank's `mine` = its block of the root's `all`: the reverse of gather.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void scatter(Group<Transport>& group, const In& all, Out&& mine, int root, std::span<const std::size_t> counts = {},
             const Family& family = {}) {
    group.run(detail::call_on<Collective::scatter, In>(group, family, detail::NoOperation{}, root, counts, counts),
              detail::buffer_of(all), detail::buffer_of(mine));
}
/// As `scatter`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_scatter(Group<Transport>& group, In&& all, Out&& mine, int root,
                                      std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.start(
        detail::call_on<Collective::scatter, In>(group, family, detail::NoOperation{}, root, counts, counts),
        detail::buffer_of(all), detail::buffer_of(mine));
}

/// Refuses any other call of `broadcast`, with the reason.
template <transport Transport>
void broadcast(Group<Transport>&, detail::AnyData<true>, ...) {}

/// Refuses any other call of `start_broadcast`, with the reason.
template <transport Transport>
Operation start_broadcast(Group<Transport>&, detail::AnyData<true>, ...) {
    return {};
}

/// Refuses any other call of `reduce`, with the reason.
template <transport Transport>
void reduce(Group<Transport>&, detail::AnyData<false>, ...) {}

/// Refuses any other call of `gather`, with the reason.
template <transport Transport>
void gather(Group<Transport>&, detail::AnyData<false>, ...) {}

/// Refuses any other call of `scatter`, with the reason.
template <transport Transport>
void scatter(Group<Transport>&, detail::AnyData<false>, ...) {}

UNISONO_NAMESPACE_END
