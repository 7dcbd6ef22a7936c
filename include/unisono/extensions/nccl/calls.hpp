#pragma once

/// \file
/// Converts programs' calls to calls of NCCL and CUDA.

#include "unisono/extensions/nccl/communicator.hpp"
#include "unisono/extensions/nccl/graph.hpp"
#include "unisono/transport/stream_call.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

constexpr ncclDataType_t nccl_type(ElementType type) {
    switch (type) {
    case ElementType::float32: return ncclFloat32;
    case ElementType::float64: return ncclFloat64;
    case ElementType::bfloat16: return ncclBfloat16;
    case ElementType::float16: return ncclFloat16;
    case ElementType::int32: return ncclInt32;
    case ElementType::int64: return ncclInt64;
    case ElementType::uint32: return ncclUint32;
    case ElementType::uint64: return ncclUint64;
    default: return ncclUint8; // bytes
    }
}

/// NCCL's operation that multiplies by a rank's weight before it adds. It must live until NCCL has
/// accepted its call.
class WeightedSumOperation {
public:
    /// Makes the operation; returns NCCL's answer.
    ncclResult_t make(double weight, ElementType type, ncclComm_t communicator) {
        alignas(8) std::byte scalar[8] = {};
        const auto put = [&](auto value) {
            static_assert(sizeof value <= sizeof scalar);
            __builtin_memcpy(scalar, &value, sizeof value);
        };
        switch (type) {
        case ElementType::float64: put(weight); break;
        case ElementType::bfloat16: put(bfloat16(static_cast<float>(weight))); break;
        case ElementType::float16: put(float16(static_cast<float>(weight))); break;
        default: put(static_cast<float>(weight)); break;
        }
        const ncclResult_t answer =
            ncclRedOpCreatePreMulSum(&operation_, scalar, nccl_type(type), ncclScalarHostImmediate, communicator);
        made_ = answer == ncclSuccess;
        return answer;
    }
    void drop(ncclComm_t communicator) {
        if (!made_) return;
        made_ = false;
        static_cast<void>(ncclRedOpDestroy(operation_, communicator));
    }
    [[nodiscard]] ncclRedOp_t get() const { return operation_; }

private:
    ncclRedOp_t operation_ = ncclSum;
    bool made_ = false;
};

inline ncclRedOp_t nccl_operation(StreamReduction reduction, const WeightedSumOperation& weighted) {
    switch (reduction) {
    case StreamReduction::product: return ncclProd;
    case StreamReduction::min: return ncclMin;
    case StreamReduction::max: return ncclMax;
    case StreamReduction::weighted_sum: return weighted.get();
    default: return ncclSum;
    }
}

/// Makes a call of NCCL.
inline ncclResult_t call_nccl(const StreamCall& call, ncclComm_t communicator, cudaStream_t stream,
                              const WeightedSumOperation& weighted) {
    const ncclDataType_t type = nccl_type(call.element);
    const ncclRedOp_t operation = nccl_operation(call.reduction, weighted);
    switch (call.verb) {
    case StreamVerb::all_reduce:
        return ncclAllReduce(call.in, call.out, call.count, type, operation, communicator, stream);
    case StreamVerb::reduce:
        return ncclReduce(call.in, call.out, call.count, type, operation, call.peer, communicator, stream);
    case StreamVerb::broadcast:
        return ncclBroadcast(call.in, call.out, call.count, type, call.peer, communicator, stream);
    case StreamVerb::all_gather: return ncclAllGather(call.in, call.out, call.count, type, communicator, stream);
    case StreamVerb::reduce_scatter:
        return ncclReduceScatter(call.in, call.out, call.count, type, operation, communicator, stream);
    case StreamVerb::send: return ncclSend(call.in, call.count, type, call.peer, communicator, stream);
    case StreamVerb::receive: return ncclRecv(call.out, call.count, type, call.peer, communicator, stream);
    default: return ncclInvalidArgument;
    }
}

inline bool is_nccls(StreamVerb verb) { return verb < StreamVerb::copy; }

/// Makes a call of the stream only. Errors: as kernels throw.
inline cudaError_t call_cuda(const StreamCall& call, const StreamProgram& program, cudaStream_t stream) {
    switch (call.verb) {
    case StreamVerb::to_device: return cudaMemcpyAsync(call.out, call.in, call.count, cudaMemcpyHostToDevice, stream);
    case StreamVerb::to_host: return cudaMemcpyAsync(call.out, call.in, call.count, cudaMemcpyDeviceToHost, stream);
    case StreamVerb::copy: return cudaMemcpyAsync(call.out, call.in, call.count, cudaMemcpyDeviceToDevice, stream);
    case StreamVerb::clear: return cudaMemsetAsync(call.out, 0, call.count, stream);
    case StreamVerb::launch: return cudaGraphLaunch(reinterpret_cast<const CudaGraph*>(call.in)->get(), stream);
    default: break;
    }
    std::byte* const target = call.out;
    program.kernel(program.kernel_state, program.addresses.data() + call.first_source, call.sources, &target, 1,
                   call.count, stream);
    return cudaSuccess;
}

/// Enqueues calls [first, end) of a program: one call of the stream, or one communication. False,
/// with the reason in `why`, if that failed.
inline bool enqueue_calls(NcclCommunicator& communicator, const StreamProgram& program, std::size_t first,
                          std::size_t end, cudaStream_t stream, WeightedSumOperation& weighted, std::string& why) {
    const StreamCall& only = program.calls[first];
    if (!is_nccls(only.verb)) {
        const cudaError_t answer = call_cuda(only, program, stream);
        if (answer != cudaSuccess) why = concat({"CUDA: ", words_of(answer)});
        return answer == cudaSuccess;
    }
    for (std::size_t i = first; i < end; ++i) {
        const StreamCall& call = program.calls[i];
        const void* const memory = call.verb == StreamVerb::send ? call.in : call.out;
        if ((call.verb != StreamVerb::send && call.verb != StreamVerb::receive) || !communicator.in_window(memory))
            continue;
        why = "memory of allocate_windows was to be sent or received, and NCCL hangs unless the peer's is registered, "
              "too; it is for NativeSchedule's all_reduce, reduce, reduce_scatter, all_gather of equal parts and "
              "broadcast";
        return false;
    }
    const auto taken = [&](ncclResult_t answer, const char* call) {
        const bool good = communicator.note(answer, call);
        if (!good) why = concat({"NCCL: ", communicator.why()});
        return good;
    };
    if (only.reduction == StreamReduction::weighted_sum &&
        !taken(weighted.make(program.weight, only.element, communicator.get()), "ncclRedOpCreatePreMulSum"))
        return false;
    if (end - first == 1) return taken(call_nccl(only, communicator.get(), stream, weighted), "a collective");
    if (!taken(ncclGroupStart(), "ncclGroupStart")) return false;
    bool good = true;
    for (std::size_t i = first; i < end && good; ++i) {
        const ncclResult_t answer = call_nccl(program.calls[i], communicator.get(), stream, weighted);
        good = answer == ncclInProgress || taken(answer, "a call of a group");
    }
    return taken(ncclGroupEnd(), "ncclGroupEnd") && good;
}

} // namespace detail
UNISONO_NAMESPACE_END
