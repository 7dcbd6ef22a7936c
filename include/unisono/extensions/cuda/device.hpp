#pragma once

/// \file
/// The base of a rank's resources on its device (copies.hpp, nccl/device.hpp), and of its
/// transport, whatever moves the bytes.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/memory.hpp"
#include "unisono/transport/patience.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
    void settle(cudaStream_t theirs) noexcept { static_cast<void>(cudaStreamSynchronize(theirs)); }
    /// Copies on `theirs`, after its earlier work, and waits as `settle` does. Errors: refused.
    void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t theirs) {
        copy_and_wait(device(), to, from, bytes, cudaMemcpyDeviceToHost, theirs);
    }
    void copy_to_device(void* to, const void* from, std::size_t bytes, cudaStream_t theirs) {
        copy_and_wait(device(), to, from, bytes, cudaMemcpyHostToDevice, theirs);
    }
    /// See transport/stream_call.hpp. Errors: refused.
    void wait_for(void* other) {
        if (other != device_->stream()) device_->wait_for(static_cast<cudaStream_t>(other));
    }

    void give_block(const DeviceBlock& block) { device_->give_block(block); }

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
        fault.message = concat({"rank ", fault.rank, ", device ", device(), ": ", fault.message});
        return fault;
    }

    std::shared_ptr<Device> device_;

private:
    Patience patience_;
};

} // namespace detail
UNISONO_NAMESPACE_END
