#pragma once

/// \file
/// broadcast, reduce, gather and scatter: collectives with a root.

#include "unisono/collective/request.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <transport Transport, element T, class Family>
std::uint32_t start_broadcast(Group<Transport>& group, std::span<T> data, int root, const Family& family) {
    check_root(group, root, "broadcast's root");
    const std::uint32_t again =
        start_again<Collective::broadcast>(group, family, data.data(), data.data(), data.size(), root);
    if (again != no_operation) return again;
    OperationRequest request = request_for<T>(data.data(), data.data());
    request.partition = Partition::vector(data.size());
    request.count = data.size();
    request.total_bytes = data.size_bytes();
    return start<Collective::broadcast>(group, request, root, family);
}

template <transport Transport, element T, class Op, class Family>
std::uint32_t start_reduce(Group<Transport>& group, std::span<const T> in, std::span<T> out, int root, const Op& op,
                           const Family& family) {
    check_root(group, root, "reduce's root");
    if (group.rank() == root) check_count(group, Collective::reduce, "the output", out.size(), in.size());
    if constexpr (is_built_in<Op>) {
        const std::uint32_t again =
            start_again<Collective::reduce>(group, family, in.data(), out.data(), in.size(), root, Op::kind);
        if (again != no_operation) return again;
    }
    OperationRequest request = request_for(in.data(), out.data());
    request.partition = Partition::vector(in.size());
    request.count = in.size();
    request.total_bytes = in.size_bytes();
    request.reduction = make_reduction<Op, T>(op);
    return start<Collective::reduce>(group, request, root, family);
}

/// gather and scatter differ in direction only: `mine` is this rank's own block; `all` has all
/// blocks and is used at the root.
template <Collective What, transport Transport, element T, class Family>
std::uint32_t start_rooted_blocks(Group<Transport>& group, const T* in, T* out, std::size_t mine, std::size_t all,
                                  std::span<const std::size_t> counts, int root, const Family& family) {
    check_root(group, root, What == Collective::gather ? "gather's root" : "scatter's root");
    const auto rank = static_cast<std::size_t>(group.rank());
    OperationRequest request = request_for(in, out);
    std::size_t expected = 0;
    if (counts.empty()) {
        expected = mine * static_cast<std::size_t>(group.size());
        request.partition = Partition::uniform(mine);
        request.count = mine;
    } else {
        expected = total(group, What, counts);
        check_count(group, What, "the own block", mine, counts[rank]);
        request.input_counts = counts;
        request.output_counts = counts;
        request.count = hash_of(counts);
    }
    if (group.rank() == root) check_count(group, What, "the root's buffer of all blocks", all, expected);
    request.total_bytes = expected * sizeof(T);
    return start<What>(group, request, root, family);
}

} // namespace detail

/// Every rank's data become the root's. n elements on every rank. Cost: tree ceil(log2 p) rounds of
/// n elements; ring (a chain) for large data with `chunk_bytes`; native over mapped memory: each
/// rank reads the root's memory. Errors and aliasing as in all_reduce.
template <transport Transport, result_of<Transport> Data, class Family = NativeSchedule>
void broadcast(Group<Transport>& group, Data&& data, int root, const Family& family = {}) {
    const auto all = detail::elements_of(data);
    const auto& way = detail::family_for<Collective::broadcast, Data>(group, family);
    if (detail::repeat<Collective::broadcast>(group, way, all.data(), all.data(), all.size(), root)) return;
    group.finish(detail::start_broadcast(group, all, root, way));
}
/// As `broadcast`, without waiting.
template <transport Transport, result_of<Transport> Data, class Family = NativeSchedule>
    requires detail::outlives_call<Data>
[[nodiscard]] Operation start_broadcast(Group<Transport>& group, Data&& data, int root, const Family& family = {}) {
    return group.handle(detail::start_broadcast(group, detail::elements_of(data), root,
                                                detail::family_for<Collective::broadcast, Data>(group, family)));
}

/// The root's `out` = the reduction of all ranks' `in`. `out` is used at the root only (elsewhere
/// it may be empty) and may be the root's `in`. Determinism: as all_reduce with the same family.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && (!std::same_as<Op, WeightedMean>)
void reduce(Group<Transport>& group, const In& in, Out&& out, int root, const Op& op = {}, const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(in);
    const auto to = detail::elements_of(out);
    const auto& way = detail::family_for<Collective::reduce, In, Op>(group, family);
    if constexpr (detail::is_built_in<Op>) {
        if ((group.rank() != root || to.size() == from.size()) &&
            detail::repeat<Collective::reduce>(group, way, from.data(), to.data(), from.size(), root, Op::kind))
            return;
    }
    group.finish(detail::start_reduce(group, from, to, root, op, way));
}
/// As `reduce`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> &&
             (!std::same_as<Op, WeightedMean>) && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation
    start_reduce(Group<Transport>& group, In&& in, Out&& out, int root, const Op& op = {}, const Family& family = {}) {
    return group.handle(detail::start_reduce(group, std::span<const buffer_element<In>>(detail::elements_of(in)),
                                             detail::elements_of(out), root, op,
                                             detail::family_for<Collective::reduce, In, Op>(group, family)));
}

/// The root's `all` = the ranks' `mine`, in rank order. `counts`: the number of elements of each
/// rank, the same list on every rank; without it all ranks give the same number. `mine` may be the
/// root's own block of `all`. Cost: tree ceil(log2 p) rounds, p - 1 blocks through the root's
/// subtrees; native over mapped memory: the root reads the ranks' memory.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void gather(Group<Transport>& group, const In& mine, Out&& all, int root, std::span<const std::size_t> counts = {},
            const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(mine);
    const auto to = detail::elements_of(all);
    group.finish(detail::start_rooted_blocks<Collective::gather>(
        group, from.data(), to.data(), from.size(), to.size(), counts, root,
        detail::family_for<Collective::gather, In>(group, family)));
}
/// As `gather`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_gather(Group<Transport>& group, In&& mine, Out&& all, int root,
                                     std::span<const std::size_t> counts = {}, const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(mine);
    const auto to = detail::elements_of(all);
    return group.handle(detail::start_rooted_blocks<Collective::gather>(
        group, from.data(), to.data(), from.size(), to.size(), counts, root,
        detail::family_for<Collective::gather, In>(group, family)));
}

/// Each rank's `mine` = its block of the root's `all`: the reverse of gather.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void scatter(Group<Transport>& group, const In& all, Out&& mine, int root, std::span<const std::size_t> counts = {},
             const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(all);
    const auto to = detail::elements_of(mine);
    group.finish(detail::start_rooted_blocks<Collective::scatter>(
        group, from.data(), to.data(), to.size(), from.size(), counts, root,
        detail::family_for<Collective::scatter, In>(group, family)));
}
/// As `scatter`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_scatter(Group<Transport>& group, In&& all, Out&& mine, int root,
                                      std::span<const std::size_t> counts = {}, const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(all);
    const auto to = detail::elements_of(mine);
    return group.handle(detail::start_rooted_blocks<Collective::scatter>(
        group, from.data(), to.data(), to.size(), from.size(), counts, root,
        detail::family_for<Collective::scatter, In>(group, family)));
}

/// Refuses any other call of `broadcast`, with the reason.
template <transport Transport>
void broadcast(Group<Transport>&, detail::AnyData<true>, detail::AnyArgument = 0, detail::AnyArgument = 0,
               detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `start_broadcast`, with the reason.
template <transport Transport>
Operation start_broadcast(Group<Transport>&, detail::AnyData<true>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                          detail::AnyArgument = 0, detail::AnyArgument = 0) {
    return {};
}

/// Refuses any other call of `reduce`, with the reason.
template <transport Transport>
void reduce(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
            detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `gather`, with the reason.
template <transport Transport>
void gather(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
            detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `scatter`, with the reason.
template <transport Transport>
void scatter(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
             detail::AnyArgument = 0, detail::AnyArgument = 0) {}

UNISONO_NAMESPACE_END
