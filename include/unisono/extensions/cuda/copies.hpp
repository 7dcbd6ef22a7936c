#pragma once

/// \file
/// A rank's resources on its device if another transport moves its bytes: beside those of
/// CudaDevice two streams of copies, one in each direction. Only `settle` waits.

#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/device.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class CudaCopies : public CudaDevice {
public:
    /// On the thread's current device. Errors: refused.
    explicit CudaCopies(int ordinal) : CudaDevice(ordinal), out_(CudaStream::make()), back_(CudaStream::make()) {}
    CudaCopies(const CudaCopies&) = delete;
    CudaCopies& operator=(const CudaCopies&) = delete;
    ~CudaCopies() {
        if (settle(std::chrono::seconds(5))) free_blocks();
        free_events();
    }

    /// The stream of copies from the device. Work that is enqueued here precedes the copies of
    /// later operations.
    [[nodiscard]] cudaStream_t stream() const { return out_.get(); }

    void fetch(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, out_.get()), "cudaMemcpyAsync");
    }
    void put(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, back_.get()), "cudaMemcpyAsync");
    }
    /// Marks everything that was fetched (`outward`) or put so far.
    [[nodiscard]] std::uint32_t mark(bool outward) {
        ++marks_;
        const std::uint32_t made = take_event();
        expect(record(made, outward ? out_.get() : back_.get()), "cudaEventRecord");
        return made;
    }
    /// True once, when the marked copies have finished; then the mark is free.
    [[nodiscard]] bool passed(std::uint32_t mark) {
        if (!is_over(mark)) return false;
        --marks_;
        return true;
    }
    /// True if no marked copies are known to be in flight.
    [[nodiscard]] bool is_quiet() const { return marks_ == 0; }

    void order_puts() { follow_all_of(out_.get(), back_.get()); }
    void follow_puts(cudaStream_t stream) { follow_all_of(back_.get(), stream); }

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
        while (goes_on(cudaStreamQuery(out_.get())) || goes_on(cudaStreamQuery(back_.get()))) {
            if (steady_now() >= until) return false;
            std::this_thread::yield();
        }
        return true;
    }

private:
    /// True once, when the event has passed; then the event is free.
    bool is_over(std::uint32_t number) {
        if (failed() || !has_passed(event(number))) return false;
        give_event(number);
        return true;
    }

    CudaStream out_, back_;
    std::uint32_t marks_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
