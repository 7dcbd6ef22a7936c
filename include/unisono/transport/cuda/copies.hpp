#pragma once

/// \file
/// A rank's resources on its device if another transport moves its bytes: two streams of copies,
/// one in each direction, events in them, and pinned memory. Only `settle` waits.

#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/cuda/memory.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Pinned host memory, kept and reused; sizes are powers of two.
struct PinnedBlock {
    std::byte* pinned = nullptr;
    std::size_t bytes = 0;
};

class CudaCopies {
public:
    /// Indices of events.
    using Awaited = List<std::uint32_t>;

    /// On the thread's current device. Errors: refused.
    explicit CudaCopies(int ordinal) : ordinal_(ordinal), out_(CudaStream::make()), back_(CudaStream::make()) {}
    CudaCopies(const CudaCopies&) = delete;
    CudaCopies& operator=(const CudaCopies&) = delete;
    ~CudaCopies() {
        if (!settle(std::chrono::seconds(5))) { // copies may still access the memory: leak it
            static_cast<void>(new auto(std::move(kept_)));
            return;
        }
        for (const PinnedBlock& one : all_) static_cast<void>(cudaFreeHost(one.pinned));
    }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    /// The stream of copies from the device. Work that is enqueued here precedes the copies of
    /// later operations.
    [[nodiscard]] cudaStream_t stream() const { return out_.get(); }
    [[nodiscard]] const std::shared_ptr<PinnedRanges>& pinned() const { return pinned_; }

    /// A missing resource, or CUDA's first error of copies; without a code if there is none.
    [[nodiscard]] const Fault& failure() const { return failure_; }
    void note(const Fault& fault) {
        if (failure_.code == ErrorCode::none) failure_ = fault;
    }

    /// A block of at least `bytes` bytes; an empty one for 0. Errors: refused.
    [[nodiscard]] PinnedBlock take_block(std::size_t bytes) {
        if (bytes == 0) return {};
        const std::size_t size = std::bit_ceil(bytes < least ? least : bytes);
        for (std::size_t i = free_blocks_.size(); i-- != 0;) {
            if (free_blocks_[i].bytes != size) continue;
            const PinnedBlock found = free_blocks_[i];
            free_blocks_.erase(i);
            return found;
        }
        const CudaDeviceGuard here(ordinal_);
        void* made = nullptr;
        if (const cudaError_t code = cudaMallocHost(&made, size); code != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
            throw error(ErrorCode::refused, concat({"CUDA: cudaMallocHost: ", words_of(code), " (", size, " bytes)"}));
        }
        all_.push_back({static_cast<std::byte*>(made), size});
        return all_.back();
    }
    /// Memory of the device that a library may keep a share of.
    [[nodiscard]] KeptOnDevice& kept() { return kept_; }
    void give_block(const PinnedBlock& block) {
        if (block.bytes != 0) free_blocks_.push_back(block);
    }

    void fetch(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, out_.get()), "cudaMemcpyAsync");
    }
    void put(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, back_.get()), "cudaMemcpyAsync");
    }
    /// Copies within the device, in the order of `put`.
    void move(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, back_.get()), "cudaMemcpyAsync");
    }
    /// Makes later work on the device's streams see the data that others have written to its
    /// memory.
    void see_arrivals() {
#if defined(CUDART_VERSION) && CUDART_VERSION >= 11030
        const CudaDeviceGuard here(ordinal_);
        int ordered = 0;
        int offered = 0;
        expect(cudaDeviceGetAttribute(&ordered, cudaDevAttrGPUDirectRDMAWritesOrdering, ordinal_),
               "cudaDeviceGetAttribute");
        expect(cudaDeviceGetAttribute(&offered, cudaDevAttrGPUDirectRDMAFlushWritesOptions, ordinal_),
               "cudaDeviceGetAttribute");
        if (ordered >= cudaGPUDirectRDMAWritesOrderingOwner || (offered & cudaFlushGPUDirectRDMAWritesOptionHost) == 0)
            return;
        expect(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                  cudaFlushGPUDirectRDMAWritesToOwner),
               "cudaDeviceFlushGPUDirectRDMAWrites");
#endif
    }
    /// Marks everything that was fetched (`outward`) or put so far.
    [[nodiscard]] std::uint32_t mark(bool outward) {
        ++marks_;
        return record(outward ? out_.get() : back_.get());
    }
    /// True once, when the marked copies have finished; then the mark is free.
    [[nodiscard]] bool passed(std::uint32_t mark) {
        if (!is_over(mark)) return false;
        --marks_;
        return true;
    }
    /// True if no marked copies are known to be in flight.
    [[nodiscard]] bool is_quiet() const { return marks_ == 0; }

    void order_puts() {
        const std::uint32_t now = record(out_.get());
        expect(cudaStreamWaitEvent(back_.get(), events_[now]->get(), 0), "cudaStreamWaitEvent");
        free_events_.push_back(now);
    }
    void follow_puts(cudaStream_t stream) {
        const std::uint32_t now = record(back_.get());
        expect(cudaStreamWaitEvent(stream, events_[now]->get(), 0), "cudaStreamWaitEvent");
        free_events_.push_back(now);
    }

    void wait_for(cudaStream_t stream) { awaited_.push_back(record(stream)); }
    [[nodiscard]] Awaited take_awaited() { return std::exchange(awaited_, {}); }
    [[nodiscard]] bool reached(Awaited& awaited) {
        while (!awaited.empty()) {
            if (!is_over(awaited.back())) return false;
            awaited.pop_back();
        }
        return true;
    }

    /// Waits until no copy is in flight; false if some still are after `within`.
    bool settle(std::chrono::nanoseconds within) {
        const nanoseconds until = deadline_after(steady_now(), within);
        while (cudaStreamQuery(out_.get()) == cudaErrorNotReady || cudaStreamQuery(back_.get()) == cudaErrorNotReady) {
            if (steady_now() >= until) return false;
            std::this_thread::yield();
        }
        return true;
    }

private:
    static constexpr std::size_t least = 4096;

    void expect(cudaError_t answer, const char* call) {
        if (answer == cudaSuccess) return;
        static_cast<void>(cudaGetLastError());
        note({.code = ErrorCode::aborted, .message = concat({"CUDA: ", call, ": ", words_of(answer)})});
    }
    std::uint32_t record(cudaStream_t stream) {
        if (free_events_.empty()) {
            const CudaDeviceGuard here(ordinal_);
            events_.push_back(std::make_unique<CudaEvent>());
            free_events_.push_back(static_cast<std::uint32_t>(events_.size() - 1));
        }
        const std::uint32_t number = free_events_.back();
        free_events_.pop_back();
        expect(cudaEventRecord(events_[number]->get(), stream), "cudaEventRecord");
        return number;
    }
    /// True once, when the event has passed; then the event is free.
    bool is_over(std::uint32_t event) {
        if (failure_.code != ErrorCode::none) return false;
        const cudaError_t answer = cudaEventQuery(events_[event]->get());
        if (answer == cudaErrorNotReady) return false;
        expect(answer, "cudaEventQuery");
        if (answer != cudaSuccess) return false;
        free_events_.push_back(event);
        return true;
    }

    int ordinal_;
    std::vector<std::unique_ptr<CudaEvent>> events_; ///< destroyed before the streams
    CudaStream out_, back_;
    List<std::uint32_t> free_events_;
    Awaited awaited_; ///< events that the next operation waits for
    std::uint32_t marks_ = 0;
    std::vector<PinnedBlock> all_;
    List<PinnedBlock> free_blocks_;
    std::shared_ptr<PinnedRanges> pinned_ = std::make_shared<PinnedRanges>();
    KeptOnDevice kept_;
    Fault failure_;
};

} // namespace detail
UNISONO_NAMESPACE_END
