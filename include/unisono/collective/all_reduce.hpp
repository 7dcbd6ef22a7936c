#pragma once

/// \file
/// all_reduce: every rank gets the reduction of all ranks' elements.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/shell.hpp"

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

/// Each rank multiplies by its weight, into the output.
template <transport Transport, element T, class Family>
Operation start_mean(Group<Transport>& group, std::span<const T> in, std::span<T> out, const WeightedMean& op,
                     const Family& family) {
    const Call sum = call_on<Collective::all_reduce, std::span<T>>(group, family, op);
    OperationRequest checked = request_of(group.context(), sum, buffer_of(in), buffer_of(out));
    if (sum.by.family != nullptr) sum.by.plan(group, sum, checked); // refused before the output is written
    weigh(out, in, op.weight);
    static constexpr NativeSchedule native;
    const Call weights = call_on<Collective::all_reduce, std::span<double>>(group, native, Few<Sum>{});
    return group.start_mean(sum, buffer_of(out), weights, op.weight, &divide_by_weights<T>);
}

/// On a device. Waits for the weights, which the transport's library needs first.
template <streaming_transport Transport, element T, class Family>
void mean_on_device(Group<Transport>& group, DeviceSpan<const T> in, DeviceSpan<T> out, const WeightedMean& op,
                    const Family& family);

} // namespace detail

/// out = the reduction of all ranks' `in`, on every rank. `in` and `out` may be the same memory;
/// any other overlap is bad_input.
///
/// Shapes: n elements on every rank. Cost with p ranks: ring 2(p-1) messages of n/p elements per
/// rank; halving and doubling the same volume in 2 ceil(log2 p) rounds; tree 2 ceil(log2 p) rounds
/// of n elements; native over mapped memory: each rank reads and writes n/p elements of every
/// rank's memory, or writes one flag for up to 2072 bytes on two to four ranks, and 592 on more.
/// Errors: bad_input (sizes, on this rank); mismatch, timeout, peer_lost, aborted, on every rank.
/// `out` is then undefined.
/// Determinism: all ranks get the same bits. For floats they depend on schedule, chunk size and
/// number of ranks (native over mapped memory: rank order). (Thakur et al. 2005; Patarasuk & Yuan
/// 2009)
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>>
void all_reduce(Group<Transport>& group, const In& in, Out&& out, const Op& op = {}, const Family& family = {}) {
    using T = buffer_element<Out>;
    constexpr bool mean = std::same_as<Op, WeightedMean>;
    if constexpr (mean && detail::views_device<In>) detail::mean_on_device<Transport, T>(group, in, out, op, family);
    else if constexpr (mean)
        group.finish(
            detail::start_mean<Transport, T>(group, detail::elements_of(in), detail::elements_of(out), op, family));
    else
        group.run(detail::call_on<Collective::all_reduce, In>(group, family, op), detail::buffer_of(in),
                  detail::buffer_of(out));
}

/// In place: data = the reduction of all ranks' data.
template <transport Transport, result_of<Transport> Data, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Data>>
void all_reduce(Group<Transport>& group, Data&& data, const Op& op = {}, const Family& family = {}) {
    unisono::all_reduce(group, detail::span_of(data), detail::span_of(data), op, family);
}

/// As all_reduce, without waiting. The memory and the group must outlive the handle.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, In&& in, Out&& out, const Op& op = {},
                                         const Family& family = {}) {
    static_assert(
        !detail::views_device<In> || !std::same_as<Op, WeightedMean>,
        "found: start_all_reduce by WeightedMean on memory of a device. Required: all_reduce, which waits. Why: "
        "each rank multiplies by its share of the sum of all weights, which must be known first");
    using T = buffer_element<Out>;
    if constexpr (std::same_as<Op, WeightedMean>)
        return detail::start_mean<Transport, T>(group, detail::elements_of(in), detail::elements_of(out), op, family);
    else
        return group.start(detail::call_on<Collective::all_reduce, In>(group, family, op), detail::buffer_of(in),
                           detail::buffer_of(out));
}

/// The same in place: data = the reduction of all ranks' data.
template <transport Transport, result_of<Transport> Data, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Data>> && detail::outlives_call<Data>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, Data&& data, const Op& op = {},
                                         const Family& family = {}) {
    return unisono::start_all_reduce(group, detail::span_of(data), detail::span_of(data), op, family);
}

/// Prepares an all_reduce that is started repeatedly on the same memory (group/prepared.hpp). Not
/// for WeightedMean, whose weight is another one each time.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && detail::outlives_call<In> && detail::outlives_call<Out> &&
             (!std::same_as<Op, WeightedMean>)
[[nodiscard]] Prepared
    prepare_all_reduce(Group<Transport>& group, In&& in, Out&& out, const Op& op = {}, const Family& family = {}) {
    return group.prepare(detail::call_on<Collective::all_reduce, In>(group, family, op), detail::buffer_of(in),
                         detail::buffer_of(out));
}

/// The same in place: data = the reduction of all ranks' data.
template <transport Transport, result_of<Transport> Data, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Data>> && detail::outlives_call<Data> &&
             (!std::same_as<Op, WeightedMean>)
[[nodiscard]] Prepared
    prepare_all_reduce(Group<Transport>& group, Data&& data, const Op& op = {}, const Family& family = {}) {
    return unisono::prepare_all_reduce(group, detail::span_of(data), detail::span_of(data), op, family);
}

/// Refuses any other call of `all_reduce`, with the reason.
template <transport Transport>
void all_reduce(Group<Transport>&, detail::AnyData<true>, ...) {}

/// Refuses any other call of `start_all_reduce`, with the reason.
template <transport Transport>
Operation start_all_reduce(Group<Transport>&, detail::AnyData<true>, ...) {
    return {};
}

UNISONO_NAMESPACE_END
