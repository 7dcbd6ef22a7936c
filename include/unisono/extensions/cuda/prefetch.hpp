#pragma once

/// \file
/// CUDA's part of batches that are copied ahead (extensions/device/device_rows.hpp): pinned memory,
/// device memory, a stream and events.

#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/device.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

UNISONO_NAMESPACE_BEGIN

/// Copies to one device, on a stream of its own. Move-only. May be used on any thread, with any
/// current device. Errors: refused, with CUDA's text; timeout if a copy, or the work that it waits
/// for, does not end.
class CudaPrefetch {
public:
    using Stream = cudaStream_t;
    using Mark = std::unique_ptr<detail::CudaEvent>; ///< created when it is first recorded

    /// \param device as CUDA numbers them; `group.endpoint().device()` is the rank's
    /// \param timeout the longest that the host waits for the device
    explicit CudaPrefetch(int device, std::chrono::nanoseconds timeout = std::chrono::seconds(60))
        : device_(device), timeout_(timeout) {
        const detail::CudaDeviceGuard here(device_);
        stream_ = detail::CudaStream::make();
    }

    [[nodiscard]] std::shared_ptr<std::byte> pinned(std::size_t bytes) const {
        return detail::allocate_pinned(device_, nullptr, bytes);
    }
    [[nodiscard]] std::shared_ptr<std::byte> on_device(std::size_t bytes) const {
        return detail::allocate_device(device_, bytes);
    }

    void copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
        detail::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "cudaMemcpyAsync");
    }
    void mark(Mark& mark) const { this->mark(mark, stream_.get()); }
    void mark(Mark& mark, Stream stream) const {
        const detail::CudaDeviceGuard here(device_);
        if (mark == nullptr) mark = std::make_unique<detail::CudaEvent>();
        detail::check_cuda(cudaEventRecord(mark->get(), stream), "cudaEventRecord");
    }
    void follow(const Mark& mark) const { follow(mark, stream_.get()); }
    void follow(const Mark& mark, Stream stream) const {
        if (mark == nullptr) return;
        detail::check_cuda(cudaStreamWaitEvent(stream, mark->get(), 0), "cudaStreamWaitEvent");
    }
    /// Polls until the event has passed; usually it has.
    void wait(const Mark& mark) const {
        if (mark == nullptr) return;
        const nanoseconds until = deadline_after(steady_now(), timeout_);
        for (;;) {
            const cudaError_t code = cudaEventQuery(mark->get());
            if (!detail::goes_on(code)) return detail::check_cuda(code, "cudaEventQuery");
            if (steady_now() >= until)
                throw error(ErrorCode::timeout,
                            concat({"device ", device_, " has not copied a batch, or not finished using one, within ",
                                    timeout_ / std::chrono::milliseconds(1), " ms"}));
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }

private:
    int device_;
    std::chrono::nanoseconds timeout_;
    detail::CudaStream stream_;
};

UNISONO_NAMESPACE_END
