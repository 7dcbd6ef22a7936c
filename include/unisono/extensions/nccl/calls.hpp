#pragma once

/// \file
/// Converts programs' calls to calls of NCCL and CUDA; and captures of a stream, with the CUDA
/// graphs made from them.

#include "unisono/extensions/nccl/communicator.hpp"
#include "unisono/transport/stream_call.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The captured work of a stream, ready to be launched repeatedly.
class CudaGraph {
public:
    CudaGraph(cudaGraphExec_t made, std::size_t programs) : made_(made), programs_(programs) {}
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;
    ~CudaGraph() { drop(); }

    [[nodiscard]] cudaGraphExec_t get() const { return made_; }
    /// The number of the library's operations in it.
    [[nodiscard]] std::size_t programs() const { return programs_; }
    void drop() {
        if (made_ != nullptr) static_cast<void>(cudaGraphExecDestroy(std::exchange(made_, nullptr)));
    }

private:
    cudaGraphExec_t made_;
    std::size_t programs_;
};

/// The graphs of one device. A communicator of NCCL waits, even in an abort, for the graphs that
/// contain its calls. So code that ends communicators calls `drop_all` first, even if users still
/// hold graphs.
class CudaGraphs {
public:
    [[nodiscard]] bool capturing() const { return stream_ != nullptr; }
    /// True if a user holds a graph, and so communicators.
    [[nodiscard]] bool any() const {
        return capturing() || std::any_of(all_.begin(), all_.end(), [](const auto& one) { return !one.expired(); });
    }
    /// Counts an enqueued program.
    void count() { ++programs_; }

    /// Begins a capture. Errors: refused, with CUDA's text.
    void begin(cudaStream_t stream) {
        // Other threads may have captures of their own, and NCCL's threads make any calls.
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        stream_ = stream;
        programs_ = 0;
    }
    /// Ends the capture. Errors: refused, with CUDA's text: a call cannot be captured.
    std::shared_ptr<CudaGraph> end() {
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph), "cudaStreamEndCapture");
        cudaGraphExec_t made = nullptr;
        const cudaError_t answer = cudaGraphInstantiateWithFlags(&made, graph, 0);
        static_cast<void>(cudaGraphDestroy(graph));
        check_cuda(answer, "cudaGraphInstantiateWithFlags");
        auto kept = std::make_shared<CudaGraph>(made, programs_);
        std::erase_if(all_, [](const auto& one) { return one.expired(); });
        all_.push_back(kept);
        return kept;
    }
    /// Discards the captured work.
    void stop() {
        if (!capturing()) return;
        cudaGraph_t graph = nullptr;
        if (cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph) != cudaSuccess)
            static_cast<void>(cudaGetLastError());
        if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    }
    void drop_all() {
        stop();
        for (const std::weak_ptr<CudaGraph>& one : all_)
            if (const std::shared_ptr<CudaGraph> there = one.lock()) there->drop();
        all_.clear();
    }

private:
    cudaStream_t stream_ = nullptr; ///< the stream that is being captured
    std::size_t programs_ = 0;
    std::vector<std::weak_ptr<CudaGraph>> all_;
};

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
