// A device for tests on machines without one: tensors of the host play those of a device, and
// streams and events are those of the stand-in for CUDA (tests/extensions/nccl/stand_in), whose
// streams are threads. A script's own work on tensors is done by the host at once; so a test that
// wants it on the current stream enqueues it there, by the functions at the end of this file.
// The ranks of NCCL's stand-in are threads of one process. Each makes a device its own.
// UNISONO_STAND_IN_WITHOUT=begin or end leaves out what connects the current stream with a call, to
// see that tests notice.
// One call of the device runs at a time. With UNISONO_STAND_IN_WAITS=1, calls that may wait for the
// device do so: for all work that is enqueued on any stream. A call by the mover's thread
// (lane.hpp) ends the process.
#include "device.hpp"

#include "cuda_runtime_api.h"
#include "stand_in.hpp"

#include <ATen/ATen.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace unisono_torch::device {

const bool built = true;
const char* const name = "the device's stand-in";
/// Tensors of the host are there for everyone at once, so a future that waits for streams would be
/// complete too early. A test that needs no values asks for such futures.
const bool futures_wait = std::getenv("UNISONO_STAND_IN_FUTURES") != nullptr;

namespace {

struct Context {
    std::recursive_mutex mutex;
    std::vector<cudaStream_t> streams;
};
Context& context() {
    static Context& one = *new Context;
    return one;
}

/// A call of the device.
class Call {
public:
    Call() {
        std::array<char, 16> name{};
        ::pthread_getname_np(::pthread_self(), name.data(), name.size());
        if (std::string_view(name.data()) == "unisono-mover") {
            std::fputs("the mover called the device\n", stderr);
            std::abort();
        }
        context().mutex.lock();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { context().mutex.unlock(); }

    void wait_for_device() const {
        for (cudaStream_t each : context().streams) cudaStreamSynchronize(each);
    }
    /// For one that may wait.
    void wait_if_told() const {
        if (std::getenv("UNISONO_STAND_IN_WAITS") != nullptr) wait_for_device();
    }
};

void check(cudaError_t answer) {
    TORCH_CHECK(answer == cudaSuccess, "the device's stand-in: ", cudaGetErrorName(answer));
}

} // namespace

struct Event::State {
    State() {
        const Call here;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
        const Call here;
        cudaEventDestroy(event);
    }
    cudaEvent_t event = nullptr;
};
struct Stream::State {
    State() {
        const Call here;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        context().streams.push_back(stream);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
        const Call here;
        std::erase(context().streams, stream);
        cudaStreamDestroy(stream);
    }
    cudaStream_t stream = nullptr;
};

namespace {

bool is_without(std::string_view what) {
    const char* const said = std::getenv("UNISONO_STAND_IN_WITHOUT");
    return said != nullptr && what == said;
}

thread_local bool uses_second_stream = false;
thread_local bool captures = false; ///< as if the current stream were recorded into a graph

int device_of_thread() {
    int found = 0;
    check(cudaGetDevice(&found));
    return found;
}

/// Each device has its own, which all threads share.
cudaStream_t current_stream() {
    const Call here;
    static auto& made = *new std::map<std::pair<int, bool>, Stream::State>;
    return made[{device_of_thread(), uses_second_stream}].stream;
}

} // namespace

int count() { return 1; }
bool has(const at::Device& device) { return device.is_cpu(); }
at::Device with_index(std::int64_t) { return at::kCPU; }
int number(const at::Device&) { return device_of_thread(); }
at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
    const Call here;
    here.wait_if_told();
    const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
    const auto free_it = [](void* memory) {
        const Call freeing;
        std::free(memory);
    };
    return at::from_blob(std::malloc(std::max<std::size_t>(bytes, 1)), sizes, free_it, at::dtype(type));
}

void refuse_capture(const std::string& who, const std::string& call) {
    TORCH_CHECK(!captures, who, ": ", call, ": the current stream is being captured");
}
c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr type, const at::Device&) {
    return c10::make_intrusive<c10::ivalue::Future>(std::move(type));
}
void keep_out_of_captures() {}

bool Event::has_passed() const {
    const Call here;
    const cudaError_t answer = cudaEventQuery(state_->event);
    if (answer != cudaErrorNotReady) check(answer);
    return answer == cudaSuccess;
}
void Event::hold_current_stream() const {
    const Call here;
    if (!is_without("end")) check(cudaStreamWaitEvent(current_stream(), state_->event, 0));
}
Event mark_current(const at::Device&) {
    const Call here;
    auto made = std::make_shared<Event::State>();
    if (!is_without("begin")) check(cudaEventRecord(made->event, current_stream()));
    return Event(std::move(made));
}

Stream::Stream(const at::Device&) : state_(std::make_shared<State>()) {}
void Stream::follow(const Event& event) {
    const Call here;
    check(cudaStreamWaitEvent(state_->stream, event.state()->event, 0));
}
at::Tensor Stream::empty(const at::Tensor& like) {
    const Call here;
    here.wait_if_told();
    return at::empty(like.sizes(), like.options().requires_grad(false));
}
void Stream::run(std::function<void()> work) {
    const Call here;
    here.wait_if_told();
    stand_in::launch(state_->stream, std::move(work));
}
void Stream::wait_for(const Word& word) {
    const Call here;
    stand_in::launch(state_->stream, [word] {
        while (!word.is_open()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
}
void Stream::open(const Word& word) {
    const Call here;
    stand_in::launch(state_->stream, [word] { word.open(); });
}
Event Stream::mark() {
    const Call here;
    auto made = std::make_shared<Event::State>();
    check(cudaEventRecord(made->event, state_->stream));
    return Event(std::move(made));
}
void* Stream::native() const { return state_->stream; }
void Stream::complete(c10::ivalue::Future& future, const c10::IValue& value) { future.markCompleted(value); }

} // namespace unisono_torch::device

namespace {

/// What the stand-ins do from now on, in place of what they did before.
void play(const stand_in::Behaviour& how) {
    static auto& scene = *new std::unique_ptr<stand_in::Scene>;
    scene.reset();
    scene = std::make_unique<stand_in::Scene>(how);
}

} // namespace

extern "C" {

/// Enqueues work on the current stream.
[[gnu::visibility("default")]] void stand_in_enqueue(void (*work)()) {
    const unisono_torch::device::Call here;
    stand_in::launch(unisono_torch::device::current_stream(), work);
}
/// Makes one of two streams the current one of the calling thread.
[[gnu::visibility("default")]] void stand_in_use_second_stream(int second) {
    unisono_torch::device::uses_second_stream = second != 0;
}
/// Waits for the current stream.
[[gnu::visibility("default")]] void stand_in_synchronize() {
    cudaStreamSynchronize(unisono_torch::device::current_stream());
}
/// An allocation that waits for the device.
[[gnu::visibility("default")]] void stand_in_allocate() {
    const unisono_torch::device::Call here;
    here.wait_for_device();
}
/// Begins or ends a capture by the calling thread.
[[gnu::visibility("default")]] void stand_in_capture(int begins) { unisono_torch::device::captures = begins != 0; }
/// Makes a device that of the calling thread.
[[gnu::visibility("default")]] void stand_in_use_device(int device) { cudaSetDevice(device); }
/// The names of NCCL's calls that have run since the last question, and then, if there is any, what
/// NCCL forbids; with spaces between them.
[[gnu::visibility("default")]] void stand_in_take_calls(char* text, std::size_t room) {
    std::string all;
    for (const std::string& one : stand_in::take_calls()) all += one + ' ';
    for (const std::string& one : stand_in::take_misuse()) all += "MISUSE: " + one + ' ';
    std::snprintf(text, room, "%s", all.c_str());
}
/// From its next call on, the communicators of this rank answer an error.
[[gnu::visibility("default")]] void stand_in_fail_nccl(int rank) { play({.failing_rank = rank}); }
/// The streams of this rank run no call of NCCL until another rank, or -1, is the silent one.
[[gnu::visibility("default")]] void stand_in_silence_nccl(int rank) { play({.silent_rank = rank}); }
/// This rank joins no new communicator of NCCL.
[[gnu::visibility("default")]] void stand_in_keep_from_nccl(int rank) { play({.absent_rank = rank}); }
/// The next communicator of NCCL answers an error to its rank.
[[gnu::visibility("default")]] void stand_in_refuse_nccl() { play({.bad_starts = 1}); }
/// NCCL and the device work again, except for what has failed.
[[gnu::visibility("default")]] void stand_in_play_on() { play({}); }
/// Every later call of the device answers an error.
[[gnu::visibility("default")]] void stand_in_lose_device() { play({.lost_device = 0}); }
}
