#pragma once

/// \file
/// NCCL and the CUDA runtime as this library uses them: versions, their words for errors, and the few things that are owned. No other
/// header includes theirs.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <utility>

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < 21900
#define UNISONO_TEXT_OF(x) #x
#define UNISONO_VALUE_OF(x) UNISONO_TEXT_OF(x)
#pragma message("found: NCCL_VERSION_CODE is " UNISONO_VALUE_OF(NCCL_VERSION_CODE) "; required: at least 21900")
#error "Unisono needs the headers of NCCL 2.19 or newer (communicators that do not block, split, registered memory)"
#endif

#if NCCL_VERSION_CODE >= 22700
#define UNISONO_NCCL_WINDOWS 1 ///< memory that all ranks of a communicator register together
#else
#define UNISONO_NCCL_WINDOWS 0
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// 22809 is "2.28.9"; before 2.9 versions had four digits.
inline std::string nccl_version_text(int code) {
    const int major = code < 10000 ? code / 1000 : code / 10000;
    const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
    return concat({major, ".", minor, ".", code % 100});
}

/// "cudaErrorNoDevice, no CUDA-capable device is detected"
inline std::string words_of(cudaError_t code) {
    return concat({cudaGetErrorName(code), ", ", cudaGetErrorString(code)});
}

/// What NCCL calls it, and what it said last about anything.
inline std::string words_of(ncclResult_t code) {
    std::string text = ncclGetErrorString(code);
    const char* const last = ncclGetLastError(nullptr);
    if (last != nullptr && *last != '\0') text += concat({" (", last, ")"});
    return text;
}

[[noreturn, gnu::cold]] inline void refuse_call(const char* call, const std::string& words) {
    throw error(ErrorCode::refused, concat({"NCCL: ", call, ": ", words}));
}

inline void check_cuda(cudaError_t code, const char* call) {
    if (code == cudaSuccess) return;
    static_cast<void>(cudaGetLastError()); // else somebody else's next call would find it
    refuse_call(call, words_of(code));
}

/// Nonblocking communicators answer that they are at it: that is no error.
inline void check_nccl(ncclResult_t code, const char* call) {
    if (code != ncclSuccess && code != ncclInProgress) refuse_call(call, words_of(code));
}

/// The library that is loaded; refused if it is older than the headers.
inline int loaded_nccl() {
    int loaded = 0;
    check_nccl(ncclGetVersion(&loaded), "ncclGetVersion");
    if (loaded < NCCL_VERSION_CODE) {
        throw error(ErrorCode::refused,
                    concat({"NCCL: the library that was loaded is ", nccl_version_text(loaded), ", older than ",
                            nccl_version_text(NCCL_VERSION_CODE), ", whose headers the program was compiled with"}));
    }
    return loaded;
}

/// How many devices this process sees; refused where there is none, or no driver.
inline int visible_devices() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        throw error(ErrorCode::refused,
                    concat({"NCCL needs a GPU for each rank, but cudaGetDeviceCount says: ", words_of(code)}));
    }
    if (count == 0) throw error(ErrorCode::refused, "NCCL needs a GPU for each rank, but this process sees none");
    return count;
}

/// A device is this thread's for a while; then it has the one again that it had.
class CudaDeviceGuard {
public:
    explicit CudaDeviceGuard(int device) {
        if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
        if (before_ == device) before_ = -1;
        else check_cuda(cudaSetDevice(device), "cudaSetDevice");
    }
    CudaDeviceGuard(const CudaDeviceGuard&) = delete;
    CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;
    ~CudaDeviceGuard() {
        if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_ = -1; ///< -1: nothing to restore
};

/// A stream: one of its own, or the caller's, who keeps it.
class CudaStream {
public:
    CudaStream() = default;
    explicit CudaStream(cudaStream_t theirs) : stream_(theirs) {}
    /// On the thread's device.
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
