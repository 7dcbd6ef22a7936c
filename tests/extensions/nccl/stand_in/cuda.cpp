#include "state.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace stand_in {

State& state() {
    static State& one = *new State; // threads of streams may outlive main
    return one;
}

namespace {

class Arena;
Arena& arena();

/// Memory of all devices. It is mapped twice, and the program knows only the address at which
/// access faults. A fork has devices of its own, without contents. CUDA itself refuses to work in a
/// fork of a process that has used it, but these tests share a process.
class Arena {
public:
    static constexpr std::size_t bytes = std::size_t{1} << 28;
    Arena() {
        make();
        ::pthread_atfork(nullptr, nullptr, [] { arena().make_again(); });
    }
    std::byte* seen(const void* address) const {
        const auto* at = static_cast<const std::byte*>(address);
        return at >= device_ && at < device_ + bytes ? host_ + (at - device_) : const_cast<std::byte*>(at);
    }
    void* take(std::size_t wanted) {
        const std::size_t size = (wanted + 255) / 256 * 256;
        std::size_t at = 0;
        for (const auto& [begin, used] : used_) {
            if (begin - at >= size) break;
            at = begin + used;
        }
        if (at + size > bytes) return nullptr;
        used_[at] = size;
        return device_ + at;
    }
    /// Returns its size, or 0 if this arena did not allocate it.
    std::size_t give(const void* address) {
        const auto known = used_.find(static_cast<std::size_t>(static_cast<const std::byte*>(address) - device_));
        if (known == used_.end()) return 0;
        const std::size_t size = known->second;
        used_.erase(known);
        return size;
    }
    std::size_t size_of(const void* address) {
        return used_[static_cast<std::size_t>(static_cast<const std::byte*>(address) - device_)];
    }

private:
    void make() {
        const int file = ::memfd_create("stand-in for a device", 0);
        if (file < 0 || ::ftruncate(file, bytes) != 0) std::abort();
        host_ = map(host_, file, PROT_READ | PROT_WRITE);
        device_ = map(device_, file, PROT_NONE);
        ::close(file);
    }
    void make_again() {
        make();
        used_.clear();
    }
    /// Maps at the given address, if there is one, in place of what is there.
    static std::byte* map(void* at, int file, int protection) {
        at = ::mmap(at, bytes, protection, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), file, 0);
        if (at == MAP_FAILED) std::abort();
        return static_cast<std::byte*>(at);
    }
    std::byte *host_ = nullptr, *device_ = nullptr;
    std::map<std::size_t, std::size_t> used_;
};
Arena& arena() {
    static Arena& one = *new Arena;
    return one;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t fails(cudaError_t code) { return last_error = code; }

void work(StandInStream* stream) {
    State& all = state();
    Lock lock(all.mutex);
    for (;;) {
        all.changed.wait(lock, [&] { return stream->ends || !stream->tasks.empty(); });
        if (stream->tasks.empty()) return delete stream;
        const Task task = std::move(stream->tasks.front());
        stream->tasks.pop_front();
        stream->busy = true;
        task(lock);
        stream->busy = false;
        all.changed.notify_all();
    }
}

} // namespace

std::byte* seen_by_host(const void* of_device) { return arena().seen(of_device); }

void launch(cudaStream_t stream, std::function<void()> work) {
    const Lock lock(state().mutex);
    if (state().is_lost(stream->device)) throw std::runtime_error("a kernel: cudaErrorLaunchFailure (stand-in)");
    if (stream->untaken != 0) state().note("a kernel was launched while NCCL had not taken a call before it");
    state().enqueue(stream, [work = std::move(work)](Lock& held) {
        held.unlock(); // may take long
        work();
        held.lock();
    });
}

bool kernels_run() {
    const Lock lock(state().mutex);
    return state().behaviour.kernels;
}

int device_of_thread() { return current_device; }

cudaError_t take_of_device(void** memory, std::size_t bytes) {
    State& all = state();
    if (all.breaks_capture()) return cudaErrorStreamCaptureUnsupported;
    if (all.is_lost(current_device)) return fails(cudaErrorLaunchFailure);
    if (bytes > all.behaviour.memory) return cudaErrorMemoryAllocation;
    *memory = arena().take(bytes);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    all.counts.device_bytes += arena().size_of(*memory);
    ++all.counts.allocations;
    return cudaSuccess;
}
cudaError_t free_of_device(void* memory) {
    if (memory == nullptr) return cudaSuccess;
    State& all = state();
    if (all.registered.contains(memory)) all.note("memory was freed while it was registered");
    const std::size_t size = arena().give(memory);
    all.counts.device_bytes -= size;
    return size == 0 ? cudaErrorInvalidValue : cudaSuccess;
}

Counts counts() {
    const Lock lock(state().mutex);
    return state().counts;
}
std::vector<std::string> take_misuse() {
    const Lock lock(state().mutex);
    return std::exchange(state().misuse, {});
}
std::vector<std::string> take_calls() {
    const Lock lock(state().mutex);
    return std::exchange(state().calls, {});
}

Scene::Scene(const Behaviour& behaviour) {
    const Lock lock(state().mutex);
    state().behaviour = behaviour;
}
Scene::~Scene() {
    const Lock lock(state().mutex);
    state().behaviour = {};
    state().changed.notify_all();
}

} // namespace stand_in

using namespace stand_in;

const char* cudaGetErrorName(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    default: return "cudaErrorInvalidValue";
    }
}
const char* cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorNoDevice           ? "no CUDA-capable device is detected (stand-in)"
           : code == cudaErrorMemoryAllocation ? "out of memory (stand-in)"
                                               : "an error (stand-in)";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
    const Lock lock(state().mutex);
    if (state().behaviour.devices == 0) return cudaErrorNoDevice; // and *count keeps its value
    *count = state().behaviour.devices;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    const Lock lock(state().mutex);
    if (device < 0 || device >= state().behaviour.devices) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device) + 16u);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    const Lock lock(state().mutex);
    return take_of_device(memory, bytes);
}
cudaError_t cudaFree(void* memory) {
    const Lock lock(state().mutex);
    return free_of_device(memory);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    const Lock lock(state().mutex);
    if (state().is_lost(current_device)) return fails(cudaErrorLaunchFailure);
    if (state().breaks_capture()) return cudaErrorStreamCaptureUnsupported;
    if (bytes > state().behaviour.pinned) return cudaErrorMemoryAllocation;
    *memory = std::malloc(bytes);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    state().pinned[*memory] = bytes;
    state().counts.pinned_bytes += bytes;
    ++state().counts.allocations;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
    const Lock lock(state().mutex);
    const auto known = state().pinned.find(memory);
    if (known == state().pinned.end()) return cudaErrorInvalidValue;
    state().counts.pinned_bytes -= known->second;
    state().pinned.erase(known);
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const Lock lock(state().mutex);
    if (state().is_lost(current_device)) return fails(cudaErrorLaunchFailure);
    if (state().breaks_capture()) return cudaErrorStreamCaptureUnsupported;
    state().count_copy(bytes, kind);
    if (bytes != 0) std::memmove(arena().seen(to), arena().seen(from), bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    const Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    if (stream->untaken != 0) state().note("memory was set while NCCL had not taken a call before it");
    state().enqueue(stream, [=](Lock&) { std::memset(arena().seen(to), value, bytes); });
    return cudaSuccess;
}
// Of pageable memory the bytes are taken before the call returns, or they have arrived (CUDA
// Runtime API, "API synchronization behavior", Memcpy, Asynchronous).
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    if (!state().behaviour.copies) return fails(cudaErrorInvalidValue);
    state().count_copy(bytes, kind);
    if (stream->untaken != 0) state().note("a copy was enqueued while NCCL had not taken a call before it");
    const bool now = stream->capture == nullptr;
    if (now && kind == cudaMemcpyHostToDevice && state().is_pageable(from)) {
        const auto* const first = static_cast<const std::byte*>(from);
        state().enqueue(stream, [to, taken = std::vector(first, first + bytes)](Lock&) {
            std::memcpy(arena().seen(to), taken.data(), taken.size());
        });
        return cudaSuccess;
    }
    const auto arrived = std::make_shared<bool>(false);
    state().enqueue(stream, [=](Lock&) {
        std::memmove(arena().seen(to), arena().seen(from), bytes);
        *arrived = true;
    });
    if (!now || kind != cudaMemcpyDeviceToHost || !state().is_pageable(to)) return cudaSuccess;
    state().changed.wait(lock, [&] { return *arrived || state().is_lost(stream->device); });
    return *arrived ? cudaSuccess : fails(cudaErrorLaunchFailure);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    const Lock lock(state().mutex);
    if (state().is_lost(current_device)) return fails(cudaErrorLaunchFailure);
    if (!state().behaviour.streams) return fails(cudaErrorMemoryAllocation);
    *stream = new StandInStream;
    (*stream)->device = current_device;
    std::thread(work, *stream).detach();
    ++state().counts.streams;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const Lock lock(state().mutex);
    stream->ends = true; // after the rest of its work
    state().changed.notify_all();
    --state().counts.streams;
    return cudaSuccess;
}
/// Work in a capture, which does not run, must not be queried.
static bool asks_a_capture(const std::shared_ptr<Capture>& capture) {
    if (capture == nullptr) return false;
    capture->invalid = true;
    state().note("what is being captured was asked whether it is done");
    return true;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    if (asks_a_capture(stream->capture)) return cudaErrorStreamCaptureUnsupported;
    return stream->tasks.empty() && !stream->busy ? cudaSuccess : fails(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    if (asks_a_capture(stream->capture)) return cudaErrorStreamCaptureUnsupported;
    state().changed.wait(lock, [&] { return stream->tasks.empty() && !stream->busy; });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    const Lock lock(state().mutex);
    if (state().is_lost(current_device)) return fails(cudaErrorLaunchFailure);
    *event = new StandInEvent;
    (*event)->device = current_device;
    ++state().counts.events;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const Lock lock(state().mutex);
    delete event;
    --state().counts.events;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const Lock lock(state().mutex);
    if (!state().behaviour.records) return fails(cudaErrorInvalidValue); // also for a stream that is none
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    ++state().counts.records;
    if (stream->untaken != 0) state().note("an event was recorded while NCCL had not taken a call before it");
    event->capture = stream->capture;
    event->done = std::make_shared<bool>(false);
    if (stream->capture != nullptr) return cudaSuccess;
    state().enqueue(stream, [done = event->done](Lock&) { *done = true; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    const Lock lock(state().mutex);
    ++state().counts.queries;
    if (state().is_lost(event->device)) return fails(cudaErrorLaunchFailure);
    if (asks_a_capture(event->capture)) return cudaErrorStreamCaptureUnsupported;
    return *event->done ? cudaSuccess : fails(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    // The stream joins the capture here.
    if (event->capture != nullptr && stream->capture == nullptr) {
        stream->capture = event->capture;
        stream->capture->streams.push_back(stream);
    }
    if (stream->capture != event->capture) {
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    // The order of the recording is an allowed one.
    if (stream->capture != nullptr) return cudaSuccess;
    state().enqueue(stream, [done = event->done](Lock& held) { state().changed.wait(held, [&] { return *done; }); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    const Lock lock(state().mutex);
    if (mode != cudaStreamCaptureModeThreadLocal) state().note("a capture that other threads disturb");
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    stream->capture = std::make_shared<Capture>();
    stream->capture->streams.push_back(stream);
    stream->capture->thread = std::this_thread::get_id();
    state().captures.push_back(stream->capture);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const Lock lock(state().mutex);
    *graph = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr || capture->streams.front() != stream) return cudaErrorInvalidValue;
    if (stream->untaken != 0) state().note("a capture was ended while NCCL had not taken a call of it");
    for (StandInStream* const one : capture->streams) one->capture = nullptr;
    std::erase(state().captures, capture);
    // Events still refer to the capture.
    const std::shared_ptr<Recording> recording = std::move(capture->recording);
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    *graph = new StandInGraph{recording};
    ++state().counts.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    const Lock lock(state().mutex);
    *made = new StandInGraphExec{graph->recording};
    ++state().counts.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    const Lock lock(state().mutex);
    if (state().is_lost(stream->device)) return fails(cudaErrorLaunchFailure);
    if (graph == nullptr) return cudaErrorInvalidValue;
    if (!state().behaviour.launches) return fails(cudaErrorLaunchFailure);
    if (stream->untaken != 0) state().note("a graph was launched while NCCL had not taken a call before it");
    for (const auto& one : graph->recording->at_launch) one();
    for (const Task& one : graph->recording->tasks) state().enqueue(stream, one);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const Lock lock(state().mutex);
    delete graph;
    --state().counts.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    const Lock lock(state().mutex);
    delete graph;
    --state().counts.graphs;
    return cudaSuccess;
}
