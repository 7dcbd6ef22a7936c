#pragma once

/// \file
/// MPI's own collectives as the native collectives of a world over MPI. unisono/mpi.hpp includes
/// it.
///
/// `NativeSchedule` uses them for data of `transports_own_bytes` or more, where MPI has the
/// operation: float32, float64, int32, int64, uint8, uint32 and uint64, sums and products of all of
/// them (and weighted means of floats), minima and maxima of integers (MPI does not define the
/// result for a NaN), and moves of elements of any type. They run only in the adopted world, since
/// groups that `split` makes have no MPI communicator. The library's schedules do the rest: small
/// data, barriers, other types and operations, reproducible sums, blocks of all_to_all that differ,
/// and more than 2 GiB, MPI's limit. The choice depends on values that are equal on all ranks.
///
/// Before MPI's collective starts, all ranks tell each other what they are about to do
/// (schedule/transports_own.hpp). So a mismatch, a rank that has left, or a rank that does not come
/// is found then, and named as usual. MPI's collectives then start on all ranks in the same order.
///
/// Determinism: MPI defines the order of the operands. The implementations that were tested gave
/// all ranks the same bits; the standard only recommends that equal arguments give equal results.

#include "unisono/collective/native.hpp"
#include "unisono/extensions/mpi/mpi.hpp"
#include "unisono/group/own_collectives.hpp"

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline MPI_Datatype mpi_type(ElementType element) {
    switch (element) {
    case ElementType::float32: return MPI_FLOAT;
    case ElementType::float64: return MPI_DOUBLE;
    case ElementType::int32: return MPI_INT32_T;
    case ElementType::int64: return MPI_INT64_T;
    case ElementType::uint8: return MPI_UINT8_T;
    case ElementType::uint32: return MPI_UINT32_T;
    case ElementType::uint64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

/// The operation of MPI with the same result as ours; MPI_OP_NULL if there is none.
inline MPI_Op mpi_operation(ReductionKind kind, ElementType element) {
    const bool floats = element == ElementType::float32 || element == ElementType::float64;
    if (mpi_type(element) == MPI_DATATYPE_NULL) return MPI_OP_NULL;
    switch (kind) {
    case ReductionKind::sum: return MPI_SUM;
    case ReductionKind::weighted_mean: return floats ? MPI_SUM : MPI_OP_NULL; // weighted before and divided after
    case ReductionKind::product: return MPI_PROD;
    case ReductionKind::min: return floats ? MPI_OP_NULL : MPI_MIN;
    case ReductionKind::max: return floats ? MPI_OP_NULL : MPI_MAX;
    default: return MPI_OP_NULL;
    }
}

/// The memory of a call's input and output while MPI works: the caller's memory if it may be kept
/// until then, else copies.
class MpiBuffers {
public:
    MpiBuffers(MpiOwn& own, MpiOwn::Call& call, const OwnCollective& collective)
        : own_(own), call_(call), collective_(collective) {}

    /// Returns `count` elements to read, while `written` elements of the output are written. MPI
    /// forbids that they overlap; the library's functions allow it.
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
    /// Returns `count` elements to write. `begins_as`: their initial values, if they matter.
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

/// The memory of a rank that MPI accesses.
struct MpiNeeds {
    bool reads = false;  ///< `read` elements of the input are read
    bool writes = false; ///< `written` elements of the output are written
    std::size_t read = 0;
    std::size_t written = 0;
    bool begins_as_input = false; ///< the output begins as a copy of the input, and the input is not read
};

inline MpiNeeds mpi_needs(const OwnCollective& what) {
    const bool is_root = what.rank == what.root;
    const std::size_t n = what.count, mine = what.block(what.rank), all = what.all_blocks();
    switch (what.what) {
    case Collective::all_reduce: return {.writes = true, .written = n, .begins_as_input = true};
    case Collective::reduce:
        if (is_root) return {.writes = true, .written = n, .begins_as_input = true};
        return {.reads = true, .read = n};
    case Collective::broadcast:
        if (is_root) return {.reads = true, .read = n};
        return {.writes = true, .written = n};
    case Collective::reduce_scatter: return {.reads = true, .writes = true, .read = all, .written = mine};
    case Collective::all_gather: return {.reads = true, .writes = true, .read = mine, .written = all};
    case Collective::gather: return {.reads = true, .writes = is_root, .read = mine, .written = is_root ? all : 0};
    case Collective::scatter: return {.reads = is_root, .writes = true, .read = is_root ? all : 0, .written = mine};
    case Collective::all_to_all: return {.reads = true, .writes = true, .read = all, .written = all};
    default: break;
    }
    UNISONO_ASSERT(false, "no transport is asked for these");
    return {};
}

/// Passes a collective with this memory to MPI.
inline void hand_to_mpi(MpiOwn& own, MpiOwn::Call& call, const OwnCollective& what, const void* in, void* out) {
    const bool typed = mpi_type(what.element) != MPI_DATATYPE_NULL;
    MPI_Datatype type = typed ? mpi_type(what.element) : MPI_BYTE;
    const std::size_t unit = typed ? 1 : what.element_bytes; // number of MPI's elements per element
    const auto number = [&](std::size_t elements) { return static_cast<int>(elements * unit); };
    MPI_Op op = mpi_operation(what.reduction, what.element);
    MPI_Comm world = own.communicator();
    const bool is_root = what.rank == what.root;
    const int n = number(what.count), mine = number(what.block(what.rank));
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
    case Collective::all_reduce: code = MPI_Iallreduce(MPI_IN_PLACE, out, n, type, op, world, &call.request); break;
    case Collective::reduce:
        code = MPI_Ireduce(is_root ? MPI_IN_PLACE : in, out, n, type, op, what.root, world, &call.request);
        break;
    case Collective::broadcast:
        code = MPI_Ibcast(is_root ? const_cast<void*>(in) : out, n, type, what.root, world, &call.request);
        break;
    case Collective::reduce_scatter:
        code = table ? MPI_Ireduce_scatter(in, out, counts, type, op, world, &call.request)
                     : MPI_Ireduce_scatter_block(in, out, n, type, op, world, &call.request);
        break;
    case Collective::all_gather:
        code = table ? MPI_Iallgatherv(in, mine, type, out, counts, begins, type, world, &call.request)
                     : MPI_Iallgather(in, n, type, out, n, type, world, &call.request);
        break;
    case Collective::gather:
        code = table ? MPI_Igatherv(in, mine, type, out, counts, begins, type, what.root, world, &call.request)
                     : MPI_Igather(in, n, type, out, n, type, what.root, world, &call.request);
        break;
    case Collective::scatter:
        code = table ? MPI_Iscatterv(in, counts, begins, type, out, mine, type, what.root, world, &call.request)
                     : MPI_Iscatter(in, n, type, out, n, type, what.root, world, &call.request);
        break;
    case Collective::all_to_all: code = MPI_Ialltoall(in, n, type, out, n, type, world, &call.request); break;
    case Collective::barrier:
    case Collective::replay:
    case Collective::send_receive: UNISONO_ASSERT(false, "no transport is asked for these");
    }
    check_mpi(code, "MPI's own collective");
}

/// Starts a collective when it is its turn.
inline void begin_own(Mpi& transport, const OwnCollective& what, std::uint32_t ticket) {
    MpiOwn& own = transport.own();
    MpiOwn::Call& call = own.next(ticket);
    MpiBuffers buffers(own, call, what);
    const MpiNeeds needs = mpi_needs(what);
    const void* const in = needs.reads ? buffers.input(needs.read, needs.written) : nullptr;
    void* const out =
        needs.writes ? buffers.output(needs.written, needs.begins_as_input ? what.input : nullptr) : nullptr;
    hand_to_mpi(own, call, what, in, out);
}

/// True if MPI has the operation. `family` has the least size from which on it is used.
template <Collective What, transport Transport>
bool has_own(const Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request) {
    constexpr bool reduces =
        What == Collective::all_reduce || What == Collective::reduce || What == Collective::reduce_scatter;
    const bool tables = !request.input_counts.empty() || !request.output_counts.empty();
    bool fits = What != Collective::barrier && group.size() > 1 && group.is_world() &&
                request.total_bytes >= family.transports_own_bytes && request.total_bytes <= INT_MAX;
    if constexpr (reduces) fits = fits && mpi_operation(request.reduction.kind, request.element) != MPI_OP_NULL;
    // A rank does not know the counts of the others.
    if constexpr (What == Collective::all_to_all) fits = fits && !tables;
    return fits;
}

/// For transports with MPI's own collectives.
template <Collective What, transport Transport, class Use>
auto choose_own(Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request, int root,
                Use use) {
    if constexpr (What != Collective::barrier) {
        if (has_own<What>(group, family, request)) return use(schedule::TransportsOwn<What>{{group.shape(root)}});
    }
    return choose_on_equals<What>(group, family, request, root, use);
}

} // namespace detail
UNISONO_NAMESPACE_END
