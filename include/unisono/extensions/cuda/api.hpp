#pragma once

/// \file
/// The CUDA runtime as this library uses it: the text of its errors, and owners of its resources.
/// Besides nccl/communicator.hpp, no other header includes a header of NVIDIA's.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// "cudaErrorNoDevice, no CUDA-capable device is detected". The thread forgets the error, else a
/// later call in another place would report it.
inline std::string words_of(cudaError_t code) {
    static_cast<void>(cudaGetLastError());
    return concat({cudaGetErrorName(code), ", ", cudaGetErrorString(code)});
}
inline std::string words_of(cudaError_t code, const char* call) {
    return concat({"CUDA: ", call, ": ", words_of(code)});
}

/// True if the work that a query asks about has not ended. CUDA notes this answer as the thread's
/// last error; the thread forgets it.
inline bool goes_on(cudaError_t answer) {
    if (answer != cudaErrorNotReady) return false;
    if (cudaPeekAtLastError() == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return true;
}

inline void check_cuda(cudaError_t code, const char* call) {
    if (code != cudaSuccess) throw error(ErrorCode::refused, words_of(code, call));
}

/// The number of devices that this process sees. Errors: refused if there is none, or no driver.
inline int visible_devices() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess)
        throw error(ErrorCode::refused,
                    concat({"each rank needs a GPU, but cudaGetDeviceCount says: ", words_of(code)}));
    if (count == 0) throw error(ErrorCode::refused, "each rank needs a GPU, but this process sees none");
    return count;
}

/// Makes a device the thread's current one, and restores the previous one at its end.
class CudaDeviceGuard {
public:
    explicit CudaDeviceGuard(int device) {
        if (device < 0) return;
        if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
        if (before_ == device) before_ = -1;
        else check_cuda(cudaSetDevice(device), "cudaSetDevice");
    }
    /// Acts only for the default streams, which belong to the device that is current. Other streams
    /// know their device.
    CudaDeviceGuard(int device, cudaStream_t stream)
        : CudaDeviceGuard(reinterpret_cast<std::uintptr_t>(stream) <= 2 ? device : -1) {}
    CudaDeviceGuard(const CudaDeviceGuard&) = delete;
    CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
    ~CudaDeviceGuard() {
        if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_ = -1; ///< -1: nothing to restore
};

/// A stream: one that this object owns, or the caller's.
class CudaStream {
public:
    CudaStream() = default;
    explicit CudaStream(cudaStream_t theirs) : stream_(theirs) {}
    /// On the thread's current device.
    static CudaStream make() {
        CudaStream made;
        check_cuda(cudaStreamCreateWithFlags(&made.stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        made.owned_ = true;
        return made;
    }
    CudaStream(CudaStream&& other) noexcept
        : stream_(std::exchange(other.stream_, nullptr)), owned_(std::exchange(other.owned_, false)) {}
    CudaStream& operator=(CudaStream&& other) noexcept {
        std::swap(stream_, other.stream_);
        std::swap(owned_, other.owned_);
        return *this;
    }
    ~CudaStream() {
        if (owned_) static_cast<void>(cudaStreamDestroy(stream_));
    }
    [[nodiscard]] cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
    bool owned_ = false;
};

/// A mark in a stream.
class CudaEvent {
public:
    CudaEvent() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;
    ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }
    [[nodiscard]] cudaEvent_t get() const { return event_; }

private:
    cudaEvent_t event_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
