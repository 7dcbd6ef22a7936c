#pragma once

/// \file
/// A rank's resources on its device, whatever moves the bytes: pinned and device buffers, which are
/// kept and reused, and the base of the device (cuda.hpp, nccl/device.hpp) and of its transport.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/api.hpp"
#include "unisono/transport/patience.hpp"

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void check_allocation(cudaError_t code, const char* call, std::size_t bytes) {
    if (code != cudaSuccess) throw error(ErrorCode::refused, concat({words_of(code, call), " (", bytes, " bytes)"}));
}
/// Memory of the thread's current device. Errors: refused, with the size.
inline std::byte* new_on_device(std::size_t bytes) {
    void* made = nullptr;
    check_allocation(cudaMalloc(&made, bytes == 0 ? 1 : bytes), "cudaMalloc", bytes);
    return static_cast<std::byte*>(made);
}
/// Pinned host memory. Errors: refused, with the size.
inline std::byte* new_pinned(std::size_t bytes) {
    void* made = nullptr;
    check_allocation(cudaMallocHost(&made, bytes == 0 ? 1 : bytes), "cudaMallocHost", bytes);
    return static_cast<std::byte*>(made);
}

/// The size of a buffer that is kept: there are few sizes, so that it is found again.
inline std::size_t kept_bytes(std::size_t bytes) { return std::bit_ceil(bytes < 4096 ? 4096 : bytes); }

/// A buffer on the device, on the host (pinned), or both.
struct DeviceBlock {
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
};

/// Pinned memory that users hold: copies read and write it directly. Users may release it on any
/// thread, also after the transport's end.
class PinnedRanges {
public:
    void add(const std::byte* begin, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        ranges_.push_back({begin, bytes});
    }
    void drop(const std::byte* begin) {
        const std::lock_guard lock(mutex_);
        std::erase_if(ranges_, [&](const auto& one) { return one.first == begin; });
    }
    [[nodiscard]] bool holds(const std::byte* data, std::size_t bytes) const {
        const std::lock_guard lock(mutex_);
        for (const auto& [begin, size] : ranges_)
            if (data >= begin && bytes <= size && static_cast<std::size_t>(data - begin) <= size - bytes) return true;
        return false;
    }

private:
    mutable std::mutex mutex_;
    std::vector<std::pair<const std::byte*, std::size_t>> ranges_;
};

/// Buffers of one device, kept and reused. Nothing is freed before `free_all`, since freeing waits
/// for all work of the device.
class DevicePool {
public:
    explicit DevicePool(int device) : device_(device) {}
    DevicePool(const DevicePool&) = delete;
    DevicePool& operator=(const DevicePool&) = delete;

    /// A block of at least `bytes` bytes; an empty one for 0. Errors: refused, with the size.
    [[nodiscard]] DeviceBlock take(std::size_t bytes, bool on_device, bool pinned) {
        if (bytes == 0) return {};
        const std::size_t size = kept_bytes(bytes);
        for (std::size_t i = free_.size(); i-- != 0;) {
            const DeviceBlock found = free_[i];
            if (found.bytes != size || (found.device != nullptr) != on_device || (found.pinned != nullptr) != pinned)
                continue;
            free_.erase(i);
            return found;
        }
        const CudaDeviceGuard here(device_);
        all_.push_back({.bytes = size}); // first: whatever it gets is freed
        DeviceBlock& made = all_.back();
        if (on_device) made.device = new_on_device(size);
        if (pinned) made.pinned = new_pinned(size);
        return made;
    }
    void give(const DeviceBlock& block) {
        if (block.bytes != 0) free_.push_back(block);
    }
    /// Frees all buffers. The device must no longer use them.
    void free_all() {
        for (const DeviceBlock& one : all_) {
            if (one.device != nullptr) static_cast<void>(cudaFree(one.device));
            if (one.pinned != nullptr) static_cast<void>(cudaFreeHost(one.pinned));
        }
        all_.clear();
        free_.clear();
    }

private:
    int device_;
    List<DeviceBlock> all_, free_;
};

/// Allocates memory of a device. Freeing it waits for all work of the device. Errors: refused.
inline std::shared_ptr<std::byte> allocate_device(int device, std::size_t bytes) {
    const CudaDeviceGuard here(device);
    return {new_on_device(bytes), [](std::byte* one) { static_cast<void>(cudaFree(one)); }};
}
/// Allocates pinned host memory. `ranges` has it as long as it exists; null: none. Errors: refused.
inline std::shared_ptr<std::byte> allocate_pinned(int device, const std::shared_ptr<PinnedRanges>& ranges,
                                                  std::size_t bytes) {
    const CudaDeviceGuard here(device);
    std::byte* const made = new_pinned(bytes);
    if (ranges != nullptr) ranges->add(made, bytes);
    return {made, [ranges](std::byte* one) {
                if (ranges != nullptr) ranges->drop(one);
                static_cast<void>(cudaFreeHost(one));
            }};
}

/// Copies on `stream`, after its earlier work, and waits for the copy. Errors: refused.
inline void copy_and_wait(int device, void* to, const void* from, std::size_t bytes, cudaMemcpyKind which,
                          cudaStream_t stream) {
    if (bytes == 0) return;
    const CudaDeviceGuard here(device);
    check_cuda(cudaMemcpyAsync(to, from, bytes, which, stream), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/// Copies between the host and memory of a device, after the earlier work of a program's stream.
/// The host waits for each copy. Refers to no transport. Errors: refused.
struct CudaStateCopies {
    int device = 0;
    cudaStream_t stream = nullptr;

    void to_host(void* to, const void* from, std::size_t bytes) const {
        copy_and_wait(device, to, from, bytes, cudaMemcpyDeviceToHost, stream);
    }
    void to_device(void* to, const void* from, std::size_t bytes) const {
        copy_and_wait(device, to, from, bytes, cudaMemcpyHostToDevice, stream);
    }
};

/// Events and buffers, which are kept and reused, and the device's first error.
class CudaDevice {
public:
    /// Events, by number.
    using Awaited = List<std::uint32_t>;

    [[nodiscard]] int ordinal() const { return ordinal_; }
    /// The pinned memory that users hold.
    [[nodiscard]] const std::shared_ptr<PinnedRanges>& pinned() const { return pinned_; }

    /// A missing resource, or the first error of what was enqueued; without a code if there is
    /// none. `progress` makes it the world's fault.
    [[nodiscard]] const Fault& failure() const { return failure_; }
    [[nodiscard]] bool failed() const { return failure_.code != ErrorCode::none; }
    void note(const Fault& fault) {
        if (!failed()) failure_ = fault;
    }
    /// The error that CUDA answers to every call after a fault on the device, which can do no more
    /// work for its rank. Empty: it can, as far as CUDA tells. CUDA answers the error of a refused
    /// call, for instance for lack of memory, only once.
    [[nodiscard]] std::string own_failure(cudaStream_t stream) const {
        const auto asked = [&] {
            const cudaError_t answer = cudaStreamQuery(stream);
            const bool works = goes_on(answer) || answer == cudaErrorStreamCaptureUnsupported;
            return works || answer == cudaSuccess ? std::string() : words_of(answer, "cudaStreamQuery");
        };
        return asked().empty() ? std::string() : asked();
    }

    /// See DevicePool. Errors: refused.
    [[nodiscard]] DeviceBlock take_block(std::size_t bytes, bool on_device, bool pinned) {
        return pool_.take(bytes, on_device, pinned);
    }
    void give_block(const DeviceBlock& block) { pool_.give(block); }

    /// Makes later operations wait for the work on this stream. Errors: refused.
    void wait_for(cudaStream_t stream) {
        const std::uint32_t event = take_event();
        const cudaError_t answer = record(event, stream);
        if (answer == cudaSuccess) return awaited_.push_back(event);
        give_event(event);
        check_cuda(answer, "cudaEventRecord");
    }

protected:
    explicit CudaDevice(int ordinal) : ordinal_(ordinal), pool_(ordinal) {}
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;
    ~CudaDevice() = default;

    /// False, with the error noted, if the call failed.
    bool expect(cudaError_t answer, const char* call) {
        if (answer == cudaSuccess) return true;
        note({.code = ErrorCode::aborted, .message = words_of(answer, call)});
        return false;
    }

    /// An event, until `give_event`. Errors: refused.
    [[nodiscard]] std::uint32_t take_event() {
        if (free_events_.empty()) {
            const CudaDeviceGuard here(ordinal_);
            events_.push_back(std::make_unique<CudaEvent>());
            return static_cast<std::uint32_t>(events_.size() - 1);
        }
        const std::uint32_t event = free_events_.back();
        free_events_.pop_back();
        return event;
    }
    void give_event(std::uint32_t event) { free_events_.push_back(event); }
    [[nodiscard]] cudaEvent_t event(std::uint32_t number) const { return events_[number]->get(); }
    cudaError_t record(std::uint32_t number, cudaStream_t stream) const {
        const CudaDeviceGuard here(ordinal_, stream);
        return cudaEventRecord(event(number), stream);
    }
    /// False if the work before the event has not finished, or after an error.
    bool has_passed(cudaEvent_t event) {
        const cudaError_t answer = cudaEventQuery(event);
        return !goes_on(answer) && expect(answer, "cudaEventQuery");
    }
    /// Makes later work on a stream wait for an event. False after an error.
    bool follow(cudaStream_t stream, cudaEvent_t event) {
        const CudaDeviceGuard here(ordinal_, stream);
        return expect(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
    }
    /// As `follow`, for all work on another stream so far.
    void follow_all_of(cudaStream_t other, cudaStream_t stream) {
        const std::uint32_t now = take_event();
        if (expect(record(now, other), "cudaEventRecord")) static_cast<void>(follow(stream, event(now)));
        give_event(now);
    }

    void free_blocks() { pool_.free_all(); }
    void free_events() {
        events_.clear();
        free_events_.clear();
        awaited_.clear();
    }

    Awaited awaited_; ///< events that the next operation waits for

private:
    int ordinal_;
    std::vector<std::unique_ptr<CudaEvent>> events_;
    List<std::uint32_t> free_events_;
    DevicePool pool_;
    std::shared_ptr<PinnedRanges> pinned_ = std::make_shared<PinnedRanges>();
    Fault failure_;
};

/// The transport of a rank that has a device. `Base` is a transport that moves bytes of the host.
template <class Base, class Device>
class WithDevice : public Base {
public:
    static constexpr bool streams = true; ///< see transport/stream_call.hpp

    /// The device, as this process numbers them.
    [[nodiscard]] int device() const { return device_->ordinal(); }

    /// The device's work wakes no rank: it is polled.
    void idle(std::uint32_t attempt, nanoseconds until) override {
        if (device_->is_quiet()) Base::idle(attempt, until);
        else idle_on_host(patience_, attempt, until);
    }

    // --- the program's own streams: used by a trainer on the device ---

    /// Waits, without a limit, for all work that `theirs` has got so far and for all that this work
    /// depends on.
    static void settle(cudaStream_t theirs) noexcept { static_cast<void>(cudaStreamSynchronize(theirs)); }
    /// Copies on `theirs`, after its earlier work, and waits as `settle` does. Errors: refused.
    void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t theirs) {
        copy_and_wait(device(), to, from, bytes, cudaMemcpyDeviceToHost, theirs);
    }
    void copy_to_device(void* to, const void* from, std::size_t bytes, cudaStream_t theirs) {
        copy_and_wait(device(), to, from, bytes, cudaMemcpyHostToDevice, theirs);
    }
    /// For an elastic world, whose state outlives this transport.
    [[nodiscard]] CudaStateCopies state_copies(cudaStream_t theirs) const { return {device(), theirs}; }
    /// See transport/stream_call.hpp. Errors: refused.
    void wait_for(void* other) {
        if (other != device_->stream()) device_->wait_for(static_cast<cudaStream_t>(other));
    }

    /// The object that runs the transport's own work on the device: see transport/stream_call.hpp
    /// and extensions/device/bounced_lanes.hpp.
    [[nodiscard]] Device& stream_device() const { return *device_; }

    // --- for an elastic world: see extensions/elastic/memory.hpp ---

    /// From now on the failure of this device ends this rank alone: the others learn of it as of a
    /// death, and may continue.
    void fail_alone() { fails_alone_ = true; }
    /// Why the device of this rank has failed, with the numbers of both; empty: it works.
    [[nodiscard]] std::string own_failure() const {
        const std::string why = device_->own_failure(device_->stream());
        return why.empty() ? why : named(why);
    }

protected:
    static constexpr std::chrono::nanoseconds abort_within = std::chrono::seconds(5);

    /// `is_crowded(base)`: whether the host has more ranks than cores.
    template <class IsCrowded>
    WithDevice(std::string_view known_as, Base&& base, std::shared_ptr<Device> device, IsCrowded is_crowded)
        : Base(std::move(base)), device_(std::move(device)), patience_(is_crowded(static_cast<const Base&>(*this))) {
        this->facts_.name = known_as;
    }

    /// The device's failure, as a fault of this rank.
    [[nodiscard]] Fault fault_of_device() const {
        Fault fault = device_->failure();
        fault.rank = this->rank();
        fault.message = named(fault.message);
        return fault;
    }
    [[nodiscard]] bool fails_alone() const { return fails_alone_; }
    /// A fault as the other ranks learn of it.
    [[nodiscard]] Fault told(const Fault& fault) const {
        if (!fails_alone_ || fault.rank != this->rank()) return fault;
        const std::string why = own_failure();
        return why.empty() ? fault : Fault{.code = ErrorCode::peer_lost, .rank = this->rank(), .message = why};
    }

    std::shared_ptr<Device> device_;

private:
    [[nodiscard]] std::string named(const std::string& why) const {
        return concat({"rank ", this->rank(), ", device ", device(), ": ", why});
    }

    Patience patience_;
    bool fails_alone_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
