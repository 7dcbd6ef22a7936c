#pragma once

/// \file
/// The words in which kernels of a CUDA stream note an answer for the host
/// (extensions/device/answers.hpp).
///
/// Cost of a call: the kernel, 32 bytes that are set before it and copied to pinned memory after,
/// and one wait for the stream. Only the first call of an object on each device allocates.

#include "unisono/extensions/cuda/api.hpp"
#include "unisono/extensions/device/answers.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Words on a device, which is current when it is made, and pinned words of the host.
class CudaAnswerWords {
public:
    const int device;
    CudaAnswerWords* next = nullptr; ///< of the same object, on another device

    explicit CudaAnswerWords(int current) : device(current) {
        check_cuda(cudaMalloc(&there_, bytes), "cudaMalloc");
        if (const cudaError_t code = cudaMallocHost(&here_, bytes); code != cudaSuccess) {
            static_cast<void>(cudaFree(there_));
            check_cuda(code, "cudaMallocHost");
        }
    }
    CudaAnswerWords(const CudaAnswerWords&) = delete;
    CudaAnswerWords& operator=(const CudaAnswerWords&) = delete;
    ~CudaAnswerWords() {
        static_cast<void>(cudaFree(there_));
        static_cast<void>(cudaFreeHost(here_));
    }

    /// Sets every byte of the words to `initial`, calls note(words of the device), and waits for
    /// the stream. Callers that share the words take turns.
    template <class Note>
    AnswerWords ask(cudaStream_t stream, int initial, const Note& note) {
        const std::lock_guard lock(turn_);
        check_cuda(cudaMemsetAsync(there_, initial, bytes, stream), "cudaMemsetAsync");
        note(static_cast<std::uint64_t*>(there_));
        check_cuda(cudaMemcpyAsync(here_, there_, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        AnswerWords told{};
        std::memcpy(told.data(), here_, bytes);
        return told;
    }

private:
    static constexpr std::size_t bytes = sizeof(AnswerWords);
    std::mutex turn_;
    void *there_ = nullptr, *here_ = nullptr;
};

/// The words of an object, for kernels on the stream `cuda_stream()` of theirs. They live as long
/// as the object; a copy of it gets words of its own. Several threads may call, also with other
/// devices (a stream may be that of the current device, as the default one is).
class CudaAnswers {
public:
    CudaAnswers() = default;
    CudaAnswers(const CudaAnswers&) noexcept {}
    CudaAnswers& operator=(const CudaAnswers&) noexcept { return *this; }
    ~CudaAnswers() {
        for (CudaAnswerWords* one = words_.load(); one != nullptr;) delete std::exchange(one, one->next);
    }

    template <class Kernels, class Note>
    AnswerWords ask(const Kernels& kernels, int initial, const Note& note) const {
        return words().ask(kernels.cuda_stream(), initial, note);
    }

private:
    CudaAnswerWords& words() const {
        int device = 0;
        check_cuda(cudaGetDevice(&device), "cudaGetDevice");
        CudaAnswerWords* first = words_.load();
        for (CudaAnswerWords* one = first; one != nullptr; one = one->next)
            if (one->device == device) return *one;
        auto made = std::make_unique<CudaAnswerWords>(device);
        do made->next = first; // another thread may have been earlier: both serve
        while (!words_.compare_exchange_weak(first, made.get()));
        return *made.release();
    }

    mutable std::atomic<CudaAnswerWords*> words_ = nullptr;
};

template <class Kernels>
using DeviceAnswers = Answers<Kernels, CudaAnswers>;

} // namespace detail
UNISONO_NAMESPACE_END
