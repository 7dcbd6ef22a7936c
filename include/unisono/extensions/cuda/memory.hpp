#pragma once

/// \file
/// Memory between the host and a device: pinned buffers and device buffers, which are kept and
/// reused.

#include "unisono/core/list.hpp"
#include "unisono/extensions/cuda/api.hpp"

#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
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
        for (const auto& [begin, size] : ranges_) {
            if (data >= begin && bytes <= size && static_cast<std::size_t>(data - begin) <= size - bytes) return true;
        }
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

} // namespace detail
UNISONO_NAMESPACE_END
