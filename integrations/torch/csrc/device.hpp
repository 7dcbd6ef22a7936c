#pragma once

/// \file All that the process group knows of a device: its memory, streams and events.
/// device_cuda.cpp has it for CUDA as PyTorch uses it, device_none.cpp for a build without devices.
/// In tests/stand_in/device.cpp tensors of the host play those of a device.

#include <ATen/core/ivalue.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace unisono_torch::device {

extern const bool built;       ///< whether this build knows devices
extern const char* const name; ///< of their type, for messages
/// Whether futures wait for streams: then they are complete when the work is enqueued.
extern const bool futures_wait;

/// The number of devices that this process sees.
[[nodiscard]] int count();
[[nodiscard]] bool has(const at::Device& device);
/// The device with this index.
[[nodiscard]] at::Device with_index(std::int64_t index);
/// The number of a device in this process, as its runtime counts.
[[nodiscard]] int number(const at::Device& device);
[[nodiscard]] inline bool has(const at::Tensor& tensor) { return built && has(tensor.device()); }
/// A flat tensor of the host which a device copies to and from without the host.
[[nodiscard]] at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type);
/// Throws if the current stream is recorded into a graph.
void refuse_capture(const std::string& who, const std::string& call);
/// A future for tensors of this device.
[[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr type, const at::Device& device);

/// The calling thread's calls from now on do not disturb captures of graphs by other threads.
void keep_out_of_captures();

/// A number in pinned memory that only grows. It is open when the number there has reached its
/// value. The host or the device opens it, and the host sees that without a call of the device.
struct Word {
    std::atomic<std::uint32_t>* at = nullptr;
    std::uint32_t value = 0;

    void open() const { at->store(value, std::memory_order_release); }
    [[nodiscard]] bool is_open() const {
        return static_cast<std::int32_t>(at->load(std::memory_order_acquire) - value) >= 0;
    }
};

/// A mark in a stream.
class Event {
public:
    struct State;
    Event() = default;
    explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

    /// Errors: those of the device.
    [[nodiscard]] bool has_passed() const;
    /// Later work on the current stream of the event's device waits. The host does not.
    void hold_current_stream() const;
    [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

private:
    std::shared_ptr<State> state_;
};

/// A mark after all work so far of the device's current stream.
[[nodiscard]] Event mark_current(const at::Device& device);

/// A stream of this process group. Its calls enqueue, and usually return at once. Each of them may
/// also wait for the device, and keep all other threads' calls of the device from beginning: if a
/// kernel is loaded, or memory is allocated.
class Stream {
public:
    struct State;
    explicit Stream(const at::Device& device);

    /// Later work here waits for the event.
    void follow(const Event& event);
    /// Memory for work here.
    [[nodiscard]] at::Tensor empty(const at::Tensor& like);
    /// What `work` does to tensors happens here.
    void run(std::function<void()> work);
    /// Later work here waits until the host opens the word.
    void wait_for(const Word& word);
    /// The device opens the word when the work so far has ended.
    void open(const Word& word);
    [[nodiscard]] Event mark();
    /// The runtime's own.
    [[nodiscard]] void* native() const;
    /// If `futures_wait`: completes a future with a value that exists when the work so far has
    /// ended.
    void complete(c10::ivalue::Future& future, const c10::IValue& value);

private:
    std::shared_ptr<State> state_;
};

} // namespace unisono_torch::device
