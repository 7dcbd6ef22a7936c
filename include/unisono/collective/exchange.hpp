#pragma once

/// \file
/// all_gather, reduce_scatter and all_to_all, in which every rank gives and gets blocks; and
/// barrier.

#include "unisono/collective/request.hpp"
#include "unisono/core/text.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <Collective What, transport Transport, element T, class Family>
std::uint32_t start_blocks(Group<Transport>& group, OperationRequest request, std::size_t mine, std::size_t all,
                           std::span<const std::size_t> counts, const T*, const Family& family) {
    check_member(group);
    std::size_t expected = mine * static_cast<std::size_t>(group.size());
    if (counts.empty()) {
        request.partition = Partition::uniform(mine);
        request.count = mine;
    } else {
        expected = total(group, What, counts);
        check_count(group, What, "the own block", mine, counts[static_cast<std::size_t>(group.rank())]);
        request.input_counts = counts;
        request.output_counts = counts;
        request.count = hash_of(counts);
    }
    check_count(group, What, "the buffer of all blocks", all, expected);
    request.total_bytes = expected * sizeof(T);
    return start<What>(group, request, 0, family);
}

/// True if all ranks' blocks have the size of this rank's: only such a call can be repeated.
inline bool are_equal_blocks(const GroupCore& group, std::span<const std::size_t> counts, std::size_t mine,
                             std::size_t all) {
    return counts.empty() && all == mine * static_cast<std::size_t>(group.size());
}

template <transport Transport, element T, class Family>
std::uint32_t start_all_gather(Group<Transport>& group, std::span<const T> mine, std::span<T> all,
                               std::span<const std::size_t> counts, const Family& family) {
    if (are_equal_blocks(group, counts, mine.size(), all.size())) {
        const std::uint32_t again =
            start_again<Collective::all_gather>(group, family, mine.data(), all.data(), mine.size());
        if (again != no_operation) return again;
    }
    return start_blocks<Collective::all_gather>(group, request_for(mine.data(), all.data()), mine.size(), all.size(),
                                                counts, mine.data(), family);
}

template <transport Transport, element T, class Op, class Family>
std::uint32_t start_reduce_scatter(Group<Transport>& group, std::span<const T> all, std::span<T> mine,
                                   std::span<const std::size_t> counts, const Op& op, const Family& family) {
    if constexpr (is_built_in<Op>) {
        if (are_equal_blocks(group, counts, mine.size(), all.size())) {
            const std::uint32_t again = start_again<Collective::reduce_scatter>(group, family, all.data(), mine.data(),
                                                                                mine.size(), 0, Op::kind);
            if (again != no_operation) return again;
        }
    }
    OperationRequest request = request_for(all.data(), mine.data());
    request.reduction = make_reduction<Op, T>(op);
    return start_blocks<Collective::reduce_scatter>(group, request, mine.size(), all.size(), counts, all.data(),
                                                    family);
}

template <transport Transport, element T, class Family>
std::uint32_t start_all_to_all(Group<Transport>& group, std::span<const T> in, std::span<T> out,
                               std::span<const std::size_t> send_counts, std::span<const std::size_t> receive_counts,
                               const Family& family) {
    check_member(group);
    const auto ranks = static_cast<std::size_t>(group.size());
    OperationRequest request = request_for(in.data(), out.data());
    if (send_counts.empty() && receive_counts.empty()) {
        if (in.size() % ranks != 0) {
            refuse_input({"all_to_all on rank ", group.world_rank(), ": ", in.size(), " elements cannot be cut into ",
                          ranks, " equal blocks"});
        }
        check_count(group, Collective::all_to_all, "the output", out.size(), in.size());
        request.partition = Partition::uniform(in.size() / ranks);
        request.count = in.size();
    } else {
        check_count(group, Collective::all_to_all, "the input", in.size(),
                    total(group, Collective::all_to_all, send_counts));
        check_count(group, Collective::all_to_all, "the output", out.size(),
                    total(group, Collective::all_to_all, receive_counts));
        request.input_counts = send_counts;
        request.output_counts = receive_counts;
        request.count = 0; // ranks have different lists; each message's size is compared
    }
    request.total_bytes = in.size_bytes();
    return start<Collective::all_to_all>(group, request, 0, family);
}

} // namespace detail

/// Every rank's `all` = the ranks' `mine`, in rank order. `counts`: the number of elements of each
/// rank, the same list on every rank; without it all ranks give the same number. `mine` may be this
/// rank's own block of `all`; any other overlap is bad_input. Cost per rank: p - 1 blocks.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void all_gather(Group<Transport>& group, const In& mine, Out&& all, std::span<const std::size_t> counts = {},
                const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(mine);
    const auto to = detail::elements_of(all);
    const auto& way = detail::family_for<Collective::all_gather, In>(group, family);
    if (detail::are_equal_blocks(group, counts, from.size(), to.size()) &&
        detail::repeat<Collective::all_gather>(group, way, from.data(), to.data(), from.size()))
        return;
    group.finish(detail::start_all_gather(group, from, to, counts, way));
}
/// As `all_gather`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_gather(Group<Transport>& group, In&& mine, Out&& all,
                                         std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(detail::start_all_gather(group, std::span<const buffer_element<In>>(detail::elements_of(mine)),
                                                 detail::elements_of(all), counts,
                                                 detail::family_for<Collective::all_gather, In>(group, family)));
}

/// Rank r's `mine` = the reduction of all ranks' r-th block of `all`. `counts` as in all_gather.
/// `mine` may be this rank's own block of `all`; any other overlap is bad_input. Cost per rank: p -
/// 1 blocks sent, p - 1 combined. Determinism: as all_reduce with the same family.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> && (!std::same_as<Op, WeightedMean>)
void reduce_scatter(Group<Transport>& group, const In& all, Out&& mine, const Op& op = {},
                    std::span<const std::size_t> counts = {}, const Family& family = {}) {
    const std::span<const buffer_element<In>> from = detail::elements_of(all);
    const auto to = detail::elements_of(mine);
    const auto& way = detail::family_for<Collective::reduce_scatter, In, Op>(group, family);
    if constexpr (detail::is_built_in<Op>) {
        if (detail::are_equal_blocks(group, counts, to.size(), from.size()) &&
            detail::repeat<Collective::reduce_scatter>(group, way, from.data(), to.data(), to.size(), 0, Op::kind))
            return;
    }
    group.finish(detail::start_reduce_scatter(group, from, to, counts, op, way));
}
/// As `reduce_scatter`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Op = Sum,
          class Family = NativeSchedule>
    requires reduction_operation<Op, buffer_element<Out>> &&
             (!std::same_as<Op, WeightedMean>) && detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_reduce_scatter(Group<Transport>& group, In&& all, Out&& mine, const Op& op = {},
                                             std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(detail::start_reduce_scatter(
        group, std::span<const buffer_element<In>>(detail::elements_of(all)), detail::elements_of(mine), counts, op,
        detail::family_for<Collective::reduce_scatter, In, Op>(group, family)));
}

/// Block j of rank i's `in` becomes block i of rank j's `out`. With counts: `send_counts[j]`
/// elements go to rank j and `receive_counts[i]` come from rank i; otherwise all blocks are equal.
/// `in` and `out` must not overlap (bad_input).
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
void all_to_all(Group<Transport>& group, const In& in, Out&& out, std::span<const std::size_t> send_counts = {},
                std::span<const std::size_t> receive_counts = {}, const Family& family = {}) {
    group.finish(detail::start_all_to_all(group, std::span<const buffer_element<In>>(detail::elements_of(in)),
                                          detail::elements_of(out), send_counts, receive_counts,
                                          detail::family_for<Collective::all_to_all, In>(group, family)));
}
/// As `all_to_all`, without waiting.
template <transport Transport, data_of<Transport> In, result_for<Transport, In> Out, class Family = NativeSchedule>
    requires detail::outlives_call<In> && detail::outlives_call<Out>
[[nodiscard]] Operation start_all_to_all(Group<Transport>& group, In&& in, Out&& out,
                                         std::span<const std::size_t> send_counts = {},
                                         std::span<const std::size_t> receive_counts = {}, const Family& family = {}) {
    return group.handle(detail::start_all_to_all(group, std::span<const buffer_element<In>>(detail::elements_of(in)),
                                                 detail::elements_of(out), send_counts, receive_counts,
                                                 detail::family_for<Collective::all_to_all, In>(group, family)));
}

/// Starts a barrier, which completes when all ranks have started it. Cost: ceil(log2 p) empty
/// messages per rank, or one flag over mapped memory.
template <transport Transport, class Family = NativeSchedule>
[[nodiscard]] Operation start_barrier(Group<Transport>& group, const Family& family = {}) {
    detail::check_member(group);
    detail::OperationRequest request;
    return group.handle(detail::start<Collective::barrier>(group, request, 0, family));
}
/// Returns when all ranks have called it. Errors: as all_reduce.
template <transport Transport, class Family = NativeSchedule>
void barrier(Group<Transport>& group, const Family& family = {}) {
    detail::check_member(group);
    if constexpr (Transport::maps_peers && std::same_as<Family, NativeSchedule>) {
        constexpr std::uint64_t call =
            detail::call_of(Collective::barrier, ElementType::opaque, ReductionKind::none, 0);
        if (group.repeat(call, 0, nullptr, nullptr)) return;
    }
    detail::OperationRequest request;
    group.finish(detail::start<Collective::barrier>(group, request, 0, family));
}

/// Refuses any other call of `all_gather`, with the reason.
template <transport Transport>
void all_gather(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `reduce_scatter`, with the reason.
template <transport Transport>
void reduce_scatter(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                    detail::AnyArgument = 0, detail::AnyArgument = 0) {}

/// Refuses any other call of `all_to_all`, with the reason.
template <transport Transport>
void all_to_all(Group<Transport>&, detail::AnyData<false>, detail::AnyArgument = 0, detail::AnyArgument = 0,
                detail::AnyArgument = 0, detail::AnyArgument = 0) {}

UNISONO_NAMESPACE_END
