#include "device.hpp"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <utility>

namespace unisono_torch::device {

const bool built = true;
const char* const name = "cuda";
const bool futures_wait = true;

struct Event::State {
    at::cuda::CUDAEvent event{cudaEventDisableTiming};
};
struct Stream::State {
    c10::cuda::CUDAStream stream;
};

namespace {

/// The calls of the driver that wait for a word and write one, to which PyTorch does not link.
using CallOnWord = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

CallOnWord driver_call(const char* called) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(called, &entry, 12000, cudaEnableDefault, &answer));
#else
    C10_CUDA_CHECK(cudaGetDriverEntryPoint(called, &entry, cudaEnableDefault, &answer));
#endif
    TORCH_CHECK(answer == cudaDriverEntryPointSuccess && entry != nullptr, "unisono: CUDA's driver has no ", called,
                "; expected one of CUDA 12.0 or newer");
    return reinterpret_cast<CallOnWord>(entry);
}

void call_on_word(CallOnWord call, const char* called, const c10::cuda::CUDAStream& stream, const Word& word,
                  unsigned how) {
    const c10::cuda::CUDAGuard here(stream.device_index());
    void* seen = nullptr;
    C10_CUDA_CHECK(cudaHostGetDevicePointer(&seen, word.at, 0));
    const CUresult answer = call(stream.stream(), reinterpret_cast<CUdeviceptr>(seen), word.value, how);
    TORCH_CHECK(answer == CUDA_SUCCESS, "unisono: ", called, ": CUDA error ", static_cast<int>(answer));
}

} // namespace

int count() { return c10::cuda::device_count(); }
bool has(const at::Device& device) { return device.is_cuda(); }
at::Device with_index(std::int64_t index) {
    TORCH_CHECK(index >= 0 && index < count(), "unisono: found device ", index, ", expected one of 0 to ", count() - 1);
    return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}
int number(const at::Device& device) { return device.index(); }

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
    return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kCPU).pinned_memory(true));
}

void refuse_capture(const std::string& who, const std::string& call) {
    TORCH_CHECK(at::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None, who, ": ", call,
                ": the current stream is being captured into a graph; expected calls outside of captures, because the "
                "host takes part in them");
}

c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr type, const at::Device& device) {
    return c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::vector<c10::Device>{device});
}

void keep_out_of_captures() {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    C10_CUDA_CHECK_WARN(cudaThreadExchangeStreamCaptureMode(&mode));
}

bool Event::has_passed() const {
    const c10::cuda::CUDAGuard here(state_->event.device_index()); // a thread that chose none would use GPU 0
    return state_->event.query();
}
void Event::hold_current_stream() const {
    state_->event.block(c10::cuda::getCurrentCUDAStream(state_->event.device_index()));
}

Event mark_current(const at::Device& device) {
    auto made = std::make_shared<Event::State>();
    made->event.record(c10::cuda::getCurrentCUDAStream(device.index()));
    return Event(std::move(made));
}

// Another priority than most streams of programs have: its work does not queue behind theirs.
Stream::Stream(const at::Device& device)
    : state_(std::make_shared<State>(State{c10::cuda::getStreamFromPool(true, device.index())})) {}

void Stream::follow(const Event& event) { event.state()->event.block(state_->stream); }

at::Tensor Stream::empty(const at::Tensor& like) {
    const c10::cuda::CUDAStreamGuard here(state_->stream);
    return at::empty(like.sizes(), like.options().requires_grad(false));
}

void Stream::run(std::function<void()> work) {
    const c10::cuda::CUDAStreamGuard here(state_->stream);
    work();
}

void Stream::wait_for(const Word& word) {
    static const CallOnWord call = driver_call("cuStreamWaitValue32");
    call_on_word(call, "cuStreamWaitValue32", state_->stream, word, CU_STREAM_WAIT_VALUE_GEQ);
}

void Stream::open(const Word& word) {
    static const CallOnWord call = driver_call("cuStreamWriteValue32");
    call_on_word(call, "cuStreamWriteValue32", state_->stream, word, CU_STREAM_WRITE_VALUE_DEFAULT);
}

Event Stream::mark() {
    auto made = std::make_shared<Event::State>();
    made->event.record(state_->stream);
    return Event(std::move(made));
}

void* Stream::native() const { return state_->stream.stream(); }

void Stream::complete(c10::ivalue::Future& future, const c10::IValue& value) {
    const c10::cuda::CUDAStreamGuard here(state_->stream);
    future.markCompleted(value);
}

} // namespace unisono_torch::device
