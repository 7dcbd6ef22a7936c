// NCCL and the CUDA runtime, as declared by their stand-in in tests/extensions/nccl/stand_in, at
// almost no cost. Memory of a device is memory of the host. The last rank (thread) of a
// communicator that calls a collective runs it immediately, and then the streams are done with the
// call. So the time of a call is the host's: this shows what Unisono adds to NCCL's calls without a
// GPU. It is no test: it checks nothing, and never returns ncclInProgress. NOT SUPPORTED: groups,
// send and receive, splits, graphs, streams that wait, and reductions other than the sum of floats.
#include "cuda_runtime_api.h"
#include "nccl.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Call {
    const void* in = nullptr;
    void* out = nullptr;
};
struct Clique {
    int ranks = 0;
    std::atomic<int> arrived{0};
    std::mutex mutex;
    std::atomic<std::uint64_t> done{0};
    struct Turn {
        int came = 0;
        std::vector<Call> calls;
    };
    // No rank is ever this far ahead: it waits before.
    static constexpr std::size_t turns_at_once = 256;
    std::vector<Turn> turns{turns_at_once};
};

std::mutex cliques_mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
constexpr int devices = 8;
thread_local int current_device = 0;

} // namespace

struct StandInCommunicator {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    int device = 0;
    std::uint64_t calls = 0;
};
struct StandInStream {
    Clique* clique = nullptr;
    std::uint64_t last = 0; ///< call of its communicator
};
struct StandInEvent {
    const Clique* clique = nullptr;
    std::uint64_t at = 0;
};
struct StandInGraph {};
struct StandInGraphExec {};

namespace {

enum class Kind { all_reduce, broadcast, all_gather, reduce_scatter };

void carry_out(Kind kind, const std::vector<Call>& calls, std::size_t bytes, int root) {
    const std::size_t ranks = calls.size();
    const auto sum = [&](std::size_t first, std::size_t count, float* out) {
        std::memcpy(out, static_cast<const float*>(calls[0].in) + first, count * sizeof(float));
        for (std::size_t rank = 1; rank < ranks; ++rank) {
            const float* const one = static_cast<const float*>(calls[rank].in) + first;
            for (std::size_t i = 0; i < count; ++i) out[i] += one[i];
        }
    };
    switch (kind) {
    case Kind::all_reduce: {
        thread_local std::vector<float> all;
        all.resize(bytes / sizeof(float));
        sum(0, all.size(), all.data());
        for (const Call& one : calls) std::memcpy(one.out, all.data(), bytes);
        break;
    }
    case Kind::broadcast:
        for (const Call& one : calls)
            if (one.out != calls[static_cast<std::size_t>(root)].in)
                std::memmove(one.out, calls[static_cast<std::size_t>(root)].in, bytes);
        break;
    case Kind::all_gather:
        for (const Call& one : calls)
            for (std::size_t rank = 0; rank < ranks; ++rank)
                std::memmove(static_cast<std::byte*>(one.out) + rank * bytes, calls[rank].in, bytes);
        break;
    case Kind::reduce_scatter: {
        const std::size_t each = bytes / sizeof(float);
        for (std::size_t rank = 0; rank < ranks; ++rank) sum(rank * each, each, static_cast<float*>(calls[rank].out));
        break;
    }
    }
}

ncclResult_t call(Kind kind, const void* in, void* out, std::size_t bytes, int root, ncclComm_t one,
                  cudaStream_t stream) {
    Clique& clique = *one->clique;
    const std::uint64_t number = ++one->calls;
    stream->clique = &clique;
    stream->last = number;
    Clique::Turn& turn = clique.turns[number % Clique::turns_at_once];
    const std::lock_guard lock(clique.mutex);
    turn.calls.resize(static_cast<std::size_t>(clique.ranks));
    turn.calls[static_cast<std::size_t>(one->rank)] = {in, out};
    if (++turn.came < clique.ranks) return ncclSuccess;
    carry_out(kind, turn.calls, bytes, root);
    turn.came = 0;
    clique.done.store(number, std::memory_order_release);
    return ncclSuccess;
}

bool is_done(const Clique* clique, std::uint64_t number) {
    return clique == nullptr || clique->done.load(std::memory_order_acquire) >= number;
}

} // namespace

const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error (instant stand-in)"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = devices;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
    const std::string place = "0000:" + std::to_string(10 + device) + ":00.0";
    place.copy(text, static_cast<std::size_t>(bytes) - 1);
    return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    if (bytes != 0) std::memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
    std::memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new StandInStream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return is_done(stream->clique, stream->last) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    while (cudaStreamQuery(stream) != cudaSuccess) {
    }
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = new StandInEvent;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    *event = {stream->clique, stream->last};
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return is_done(event->clique, event->at) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaErrorInvalidValue; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorInvalidValue; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorInvalidValue; }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
    return cudaErrorInvalidValue;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorInvalidValue; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<std::uint64_t> number{0};
    const std::uint64_t mine = ++number;
    *id = {};
    std::memcpy(id->internal, &mine, sizeof mine);
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error (instant stand-in)"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
    const std::lock_guard lock(cliques_mutex);
    auto& clique = cliques[std::string(id.internal, sizeof id.internal)];
    if (clique == nullptr) {
        clique = std::make_shared<Clique>();
        clique->ranks = ranks;
    }
    ++clique->arrived;
    *made = new StandInCommunicator{clique, rank, current_device, 0};
    return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) { return ncclInvalidUsage; }
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t one) {
    delete one;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommRevoke(ncclComm_t, int) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t one, ncclResult_t* found) {
    *found = one->clique->arrived.load() == one->clique->ranks ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t one, int* count) {
    *count = one->clique->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t one, int* device) {
    *device = one->device;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t one, int* rank) {
    *rank = one->rank;
    return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
    return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
    cudaFree(memory);
    return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t, void* memory, std::size_t, void** registration) {
    *registration = memory;
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, std::size_t, ncclWindow_t*, int) { return ncclInvalidUsage; }
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclInvalidUsage; }
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
    return ncclInvalidUsage;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t one,
                           cudaStream_t stream) {
    return call(Kind::all_reduce, in, out, count * sizeof(float), 0, one, stream);
}
ncclResult_t ncclReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t) {
    return ncclInvalidUsage;
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t, int root, ncclComm_t one,
                           cudaStream_t stream) {
    return call(Kind::broadcast, in, out, count * sizeof(float), root, one, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t, ncclComm_t one,
                           cudaStream_t stream) {
    return call(Kind::all_gather, in, out, count * sizeof(float), 0, one, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t one, cudaStream_t stream) {
    return call(Kind::reduce_scatter, in, out, count * sizeof(float), 0, one, stream);
}
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
    return ncclInvalidUsage;
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclInvalidUsage; }
ncclResult_t ncclGroupStart() { return ncclInvalidUsage; }
ncclResult_t ncclGroupEnd() { return ncclInvalidUsage; }
