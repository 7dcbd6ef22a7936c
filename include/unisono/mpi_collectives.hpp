#pragma once

/// \file
/// MPI's own collectives as the native ones of a world over MPI. Comes with unisono/mpi.hpp.
///
/// `NativeSchedule` runs them from `transports_own_bytes` on, for what MPI has: float32, float64, int32, int64 and uint8, sums and
/// products of all of them (and weighted means of floats), least and greatest of integers (MPI does not say what a NaN gives), and moving
/// elements of any type; in the world that was adopted, as groups that `split` makes have no communicator of their own. All else goes by
/// our schedules: small data, barriers, other types and operations, reproducible sums, blocks of all_to_all that differ, and more
/// than 2 GiB, which is as far as MPI counts. Which it is depends on what all ranks know alike.
///
/// Before MPI's begins, all ranks have told each other what they are about to do (schedule/transports_own.hpp): a mismatch, a rank that
/// has left and one that does not come are found there, and named as ever. MPI's own then begins on all ranks, and in the same order.
///
/// Determinism: the order of the operands is MPI's own; the MPIs that were tried gave all ranks the same bits, and the standard
/// recommends that equal arguments give equal results, no more.

#include "unisono/collective/native.hpp"
#include "unisono/transport/mpi.hpp"

#include <climits>
#include <cstddef>
#include <memory>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline MPI_Datatype mpi_type(ElementType element) {
    switch (element) {
    case ElementType::float32: return MPI_FLOAT;
    case ElementType::float64: return MPI_DOUBLE;
    case ElementType::int32: return MPI_INT32_T;
    case ElementType::int64: return MPI_INT64_T;
    case ElementType::uint8: return MPI_UINT8_T;
    default: return MPI_DATATYPE_NULL;
    }
}

/// MPI_OP_NULL where MPI has none that gives what ours does.
inline MPI_Op mpi_operation(ReductionKind kind, ElementType element) {
    const bool floats = element == ElementType::float32 || element == ElementType::float64;
    if (mpi_type(element) == MPI_DATATYPE_NULL) return MPI_OP_NULL;
    switch (kind) {
    case ReductionKind::sum: return MPI_SUM;
    case ReductionKind::weighted_mean: return floats ? MPI_SUM : MPI_OP_NULL; // weighted before, divided after
    case ReductionKind::product: return MPI_PROD;
    case ReductionKind::min: return floats ? MPI_OP_NULL : MPI_MIN;
    case ReductionKind::max: return floats ? MPI_OP_NULL : MPI_MAX;
    default: return MPI_OP_NULL;
    }
}

/// Where a call's input and output are while MPI works: in the caller's memory if that may be held, else in copies.
class MpiBuffers {
public:
    MpiBuffers(MpiOwn& own, MpiOwn::Call& call, const OwnCollective& collective)
        : own_(own), call_(call), collective_(collective) {}

    /// `count` elements that are read, while `written` ones of the output are written. MPI forbids that they overlap; ours may.
    const void* input(std::size_t count, std::size_t written) {
        const std::size_t bytes = count * collective_.element_bytes;
        const std::byte* const data = collective_.input;
        const auto in = reinterpret_cast<std::uintptr_t>(data);
        const auto out = reinterpret_cast<std::uintptr_t>(collective_.output);
        const bool overlap = in < out + written * collective_.element_bytes && out < in + bytes;
        call_.input = overlap ? nullptr : own_.share_of(data, bytes);
        if (call_.input != nullptr) return data;
        call_.input = MpiOwn::room(bytes);
        if (bytes != 0) std::memcpy(call_.input.get(), data, bytes);
        return call_.input.get();
    }
    /// `count` elements that are written. `begins_as`: what stands there before MPI begins, if that matters.
    void* output(std::size_t count, const std::byte* begins_as = nullptr) {
        const std::size_t bytes = count * collective_.element_bytes;
        std::byte* at = collective_.output;
        call_.output = own_.share_of(at, bytes);
        if (call_.output == nullptr) {
            call_.output = MpiOwn::room(bytes);
            call_.from = call_.output.get();
            call_.to = at;
            call_.bytes = bytes;
            at = call_.output.get();
        }
        if (begins_as != nullptr && begins_as != at && bytes != 0) std::memmove(at, begins_as, bytes);
        return at;
    }

private:
    MpiOwn& own_;
    MpiOwn::Call& call_;
    const OwnCollective& collective_;
};

/// Begins one, whose turn it is.
inline void begin_own(Mpi& transport, const OwnCollective& what, std::uint32_t ticket) {
    MpiOwn& own = transport.own();
    MpiOwn::Call& call = own.next(ticket);
    MpiBuffers buffers(own, call, what);
    const bool typed = mpi_type(what.element) != MPI_DATATYPE_NULL;
    const MPI_Datatype type = typed ? mpi_type(what.element) : MPI_BYTE;
    const std::size_t unit = typed ? 1 : what.element_bytes; // elements are so many of MPI's
    const auto number = [&](std::size_t elements) { return static_cast<int>(elements * unit); };
    const MPI_Op op = mpi_operation(what.reduction, what.element);
    const MPI_Comm world = own.communicator();
    const bool is_root = what.rank == what.root;
    const std::size_t n = what.count, mine = what.block(what.rank), all = what.all_blocks();
    const bool table = !what.offsets.empty();
    call.counts.clear();
    call.begins.clear();
    for (std::size_t i = 0; table && i + 1 < what.offsets.size(); ++i) {
        call.counts.push_back(number(what.offsets[i + 1] - what.offsets[i]));
        call.begins.push_back(number(what.offsets[i]));
    }
    const int* const counts = call.counts.data();
    const int* const begins = call.begins.data();
    int code = MPI_SUCCESS;
    switch (what.what) {
    case Collective::all_reduce:
        code = MPI_Iallreduce(MPI_IN_PLACE, buffers.output(n, what.input), number(n), type, op, world, &call.request);
        break;
    case Collective::reduce:
        if (is_root)
            code = MPI_Ireduce(MPI_IN_PLACE, buffers.output(n, what.input), number(n), type, op, what.root, world,
                               &call.request);
        else code = MPI_Ireduce(buffers.input(n, 0), nullptr, number(n), type, op, what.root, world, &call.request);
        break;
    case Collective::broadcast:
        code = MPI_Ibcast(is_root ? const_cast<void*>(buffers.input(n, 0)) : buffers.output(n), number(n), type,
                          what.root, world, &call.request);
        break;
    case Collective::reduce_scatter: {
        const void* const in = buffers.input(all, mine);
        void* const out = buffers.output(mine);
        code = table ? MPI_Ireduce_scatter(in, out, counts, type, op, world, &call.request)
                     : MPI_Ireduce_scatter_block(in, out, number(n), type, op, world, &call.request);
        break;
    }
    case Collective::all_gather: {
        const void* const in = buffers.input(mine, all);
        void* const out = buffers.output(all);
        code = table ? MPI_Iallgatherv(in, number(mine), type, out, counts, begins, type, world, &call.request)
                     : MPI_Iallgather(in, number(n), type, out, number(n), type, world, &call.request);
        break;
    }
    case Collective::gather: {
        const void* const in = buffers.input(mine, is_root ? all : 0);
        void* const out = is_root ? buffers.output(all) : nullptr;
        code = table ? MPI_Igatherv(in, number(mine), type, out, counts, begins, type, what.root, world, &call.request)
                     : MPI_Igather(in, number(n), type, out, number(n), type, what.root, world, &call.request);
        break;
    }
    case Collective::scatter: {
        const void* const in = is_root ? buffers.input(all, mine) : nullptr;
        void* const out = buffers.output(mine);
        code = table ? MPI_Iscatterv(in, counts, begins, type, out, number(mine), type, what.root, world, &call.request)
                     : MPI_Iscatter(in, number(n), type, out, number(n), type, what.root, world, &call.request);
        break;
    }
    case Collective::all_to_all: {
        const void* const in = buffers.input(all, all);
        void* const out = buffers.output(all);
        code = MPI_Ialltoall(in, number(n), type, out, number(n), type, world, &call.request);
        break;
    }
    case Collective::barrier:
    case Collective::replay:
    case Collective::send_receive: UNISONO_ASSERT(false, "no transport is asked for these");
    }
    check_mpi(code, "MPI's own collective");
}

/// Where MPI's own is to be had; `family` says from which size on.
template <Collective What, transport Transport, class Use>
auto choose_own(Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request, int root,
                Use use) {
    constexpr bool reduces =
        What == Collective::all_reduce || What == Collective::reduce || What == Collective::reduce_scatter;
    const bool tables = !request.input_counts.empty() || !request.output_counts.empty();
    bool fits = group.size() > 1 && group.is_world() && request.total_bytes >= family.transports_own_bytes &&
                request.total_bytes <= INT_MAX;
    if constexpr (reduces) fits = fits && mpi_operation(request.reduction.kind, request.element) != MPI_OP_NULL;
    if constexpr (What == Collective::all_to_all) fits = fits && !tables; // a rank does not know the others' counts
    if constexpr (What != Collective::barrier) {
        if (fits) return use(schedule::TransportsOwn<What>{.shape = group.shape(root)});
    }
    return choose_on_equals<What>(group, family, request, root, use);
}

} // namespace detail
UNISONO_NAMESPACE_END
