// A device for tests on machines without one: tensors of the host play those of a device, and
// streams and events are those of the stand-in for CUDA (tests/extensions/nccl/stand_in), whose
// streams are threads. A script's own work on tensors is done by the host at once; so a test that
// wants it on the current stream enqueues it there, by the functions at the end of this file.
// UNISONO_STAND_IN_WITHOUT=begin or end leaves out what connects the current stream with a call, to
// see that tests notice.
#include "device.hpp"

#include "cuda_runtime_api.h"
#include "stand_in.hpp"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

namespace unisono_torch::device {

const bool built = true;
const char* const name = "the device's stand-in";

struct Event::State {
    State() { cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { cudaEventDestroy(event); }
    cudaEvent_t event = nullptr;
};
struct Stream::State {
    State() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { cudaStreamDestroy(stream); }
    cudaStream_t stream = nullptr;
};

namespace {

bool is_without(std::string_view what) {
    const char* const said = std::getenv("UNISONO_STAND_IN_WITHOUT");
    return said != nullptr && what == said;
}

cudaStream_t current_stream() {
    static Stream::State& one = *new Stream::State;
    return one.stream;
}

} // namespace

int count() { return 1; }
bool has(const at::Device& device) { return device.is_cpu(); }
at::Device with_index(std::int64_t) { return at::kCPU; }
at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) { return at::empty(sizes, at::dtype(type)); }
void refuse_capture(const std::string&, const std::string&) {}
c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr type, const at::Device&) {
    return c10::make_intrusive<c10::ivalue::Future>(std::move(type));
}

bool Event::has_passed() const { return cudaEventQuery(state_->event) == cudaSuccess; }
void Event::hold_current_stream() const {
    if (!is_without("end")) cudaStreamWaitEvent(current_stream(), state_->event, 0);
}

Stream::Stream(const at::Device&) : state_(std::make_shared<State>()) {}
void Stream::follow_current() {
    if (is_without("begin")) return;
    const Event::State now;
    cudaEventRecord(now.event, current_stream());
    cudaStreamWaitEvent(state_->stream, now.event, 0);
}
void Stream::follow(const Event& event) { cudaStreamWaitEvent(state_->stream, event.state()->event, 0); }
void Stream::run(std::function<void()> work) { stand_in::launch(state_->stream, std::move(work)); }
void Stream::wait_for(const Word& word) {
    stand_in::launch(state_->stream, [word] {
        while (!word.is_open()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
}
Event Stream::mark() {
    auto made = std::make_shared<Event::State>();
    cudaEventRecord(made->event, state_->stream);
    return Event(std::move(made));
}
/// Tensors of the host are there for everyone at once.
bool Stream::complete(c10::ivalue::Future&, const c10::IValue&) { return false; }

} // namespace unisono_torch::device

extern "C" {

/// Enqueues work on the current stream.
[[gnu::visibility("default")]] void stand_in_enqueue(void (*work)()) {
    stand_in::launch(unisono_torch::device::current_stream(), work);
}
/// Waits for the current stream.
[[gnu::visibility("default")]] void stand_in_synchronize() {
    cudaStreamSynchronize(unisono_torch::device::current_stream());
}
}
