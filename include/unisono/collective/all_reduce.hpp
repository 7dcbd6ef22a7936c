#pragma once

/// \file
/// all_reduce: every rank gets the reduction of all ranks' elements.

#include "unisono/arithmetic/scale.hpp"
#include "unisono/collective/request.hpp"

#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Divides by the sum of the weights, which travel as one double beside the data. Runs when both
/// have arrived. If all weights are zero, the result is zero.
template <element T>
void divide_by_weights(OperationState& operation, const OperationState*) {
    if (operation.numbers[1] == 0.0) return;
    divide(std::span(reinterpret_cast<T*>(operation.request.output), operation.request.count), operation.numbers[1]);
}

template <transport Transport, element T, class Op, class Family>
std::uint32_t start_all_reduce(Group<Transport>& group, const T* input, T* output, std::size_t count, const Op& op,
                               const Family& family) {
    constexpr bool mean = std::same_as<Op, WeightedMean>;
    if constexpr (mean) {
        op.check(element_type_of<T>);
        check_overlap(Collective::all_reduce, group.world_rank(),
                      {input, count * sizeof(T), output, count * sizeof(T)}); // before the output is written
        weigh(std::span<T>(output, count), std::span<const T>(input, count), op.weight);
        input = output;
    } else if constexpr (is_built_in<Op>) {
        const std::uint32_t again =
            start_again<Collective::all_reduce>(group, family, input, output, count, 0, Op::kind);
        if (again != no_operation) return again;
    }
    OperationRequest request = request_for(input, output);
    request.partition = Partition::vector(count);
    request.count = count;
    request.total_bytes = count * sizeof(T);
    request.reduction = make_reduction<Op, T>(op);
    const std::uint32_t index = start<Collective::all_reduce>(group, request, 0, family);
    if constexpr (mean) {
        OperationState& operation = group.operation(index);
        operation.numbers = {op.weight, 0.0};
        const std::uint32_t weights = detail::start_all_reduce(group, &operation.numbers[0], &operation.numbers[1], 1,
                                                               Few<Sum>{}, NativeSchedule{});
        operation.companion = weights;
        operation.finish = &divide_by_weights<T>;
    }
    return index;
}

/// On a device. Waits for the weights, which the transport's library needs first.
template <streaming_transport Transport, element T, class Family>
std::uint32_t start_all_reduce(Group<Transport>& group, const T* input, T* output, std::size_t count,
                               const WeightedMean& op, const OnDevice<Family>& family);

} // namespace detail

/// out = the reduction of all ranks' `in`, on every rank. `in` and `out` may be the same memory;
/// any other overlap is bad_input.
///
/// Shapes: n elements on every rank. Cost with p ranks: ring 2(p-1) messages of n/p elements per
/// rank; halving and doubling the same volume in 2 ceil(log2 p) rounds; tree 2 ceil(log2 p) rounds
/// of n elements; native over mapped memory: each rank reads and writes n/p elements of every
/// rank's memory, or writes one flag for up to 1400 bytes on two ranks, 2072 on three and four, and
/// 592 on more.
/// Errors: bad_input (sizes, on this rank); mismatch, timeout, peer_lost, aborted, on every rank.
/// `out` is then undefined.
/// Determinism: all ranks get the same bits. For floats they depend on schedule, chunk size and
/// number of ranks (native over mapped memory: rank order). (Thakur et al. 2005; Patarasuk & Yuan
/// 2009)
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>>
void all_reduce(Group<Transport>& group, const In& in, Out&& out, const Op& op = {}, const Family& family = {}) {
    detail::check_member(group);
    const auto from = detail::elements_of(in);
    const auto to = detail::elements_of(out);
    detail::check_count(group, Collective::all_reduce, "the output", to.size(), from.size());
    const auto& way = detail::family_for<Collective::all_reduce, In, Op>(group, family);
    if constexpr (detail::is_built_in<Op>) {
        if (detail::repeat<Collective::all_reduce>(group, way, from.data(), to.data(), from.size(), 0, Op::kind))
            return;
    }
    group.finish(detail::start_all_reduce(group, from.data(), to.data(), from.size(), op, way));
}

/// In place: data = the reduction of all ranks' data.
template <transport Transport, result_of<Transport> Data, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Data>>
void all_reduce(Group<Transport>& group, Data&& data, const Op& op = {}, const Family& family = {}) {
    const auto all = detail::span_of(data);
    unisono::all_reduce(group, all, all, op, family);
}

/// As all_reduce, without waiting. The memory and the group must outlive the handle.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, In&& in, Out&& out, const Op& op = {},
                                         const Family& family = {}) {
    detail::check_member(group);
    static_assert(
        !detail::views_device<In> || !std::same_as<Op, WeightedMean>,
        "found: start_all_reduce by WeightedMean on memory of a device. Required: all_reduce, which waits. Why: "
        "each rank multiplies by its share of the sum of all weights, which must be known first");
    const auto from = detail::elements_of(in);
    const auto to = detail::elements_of(out);
    detail::check_count(group, Collective::all_reduce, "the output", to.size(), from.size());
    return group.handle(detail::start_all_reduce(group, from.data(), to.data(), from.size(), op,
                                                 detail::family_for<Collective::all_reduce, In, Op>(group, family)));
}

/// The same in place: data = the reduction of all ranks' data.
template <transport Transport, result_of<Transport> Data, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Data>> && detail::outlives_call<Data>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, Data&& data, const Op& op = {},
                                         const Family& family = {}) {
    const auto all = detail::span_of(data);
    return unisono::start_all_reduce(group, all, all, op, family);
}

/// Refuses any other call of `all_reduce`, with the reason.
template <transport Transport>
void all_reduce(Group<Transport>&, detail::AnyData<true>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `start_all_reduce`, with the reason.
template <transport Transport>
Operation start_all_reduce(Group<Transport>&, detail::AnyData<true>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                           detail::AnyArgument = 0, detail::AnyArgument = 0) {
    return {};
}

UNISONO_NAMESPACE_END
