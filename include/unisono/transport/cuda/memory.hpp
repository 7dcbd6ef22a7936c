#pragma once

/// \file
/// Memory between the host and a device: pinned buffers and device buffers, which are kept and
/// reused.

#include "unisono/core/lent_memory.hpp"
#include "unisono/transport/cuda/api.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A buffer on the device, on the host (pinned), or both; sizes are powers of two.
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

/// Buffers of one device. Nothing is freed before `free_all`, since freeing waits for all work of
/// the device.
class DevicePool {
public:
    DevicePool() = default;
    DevicePool(const DevicePool&) = delete;
    DevicePool& operator=(const DevicePool&) = delete;

    /// A block of at least `bytes` bytes. Errors: refused, with the size.
    DeviceBlock take(std::size_t bytes, bool with_pinned) {
        if (bytes == 0) return {};
        const std::size_t size = std::bit_ceil(bytes < least ? least : bytes);
        std::vector<DeviceBlock>& kept = with_pinned ? with_ : without_;
        for (std::size_t i = kept.size(); i-- != 0;) {
            if (kept[i].bytes != size) continue;
            const DeviceBlock found = kept[i];
            kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
            return found;
        }
        DeviceBlock made{.pinned = nullptr, .device = nullptr, .bytes = size};
        all_.reserve(all_.size() + 1);
        void* memory = nullptr;
        check(cudaMalloc(&memory, size), "cudaMalloc", size);
        made.device = static_cast<std::byte*>(memory);
        if (with_pinned) {
            if (const cudaError_t code = cudaMallocHost(&memory, size); code != cudaSuccess) {
                static_cast<void>(cudaFree(made.device));
                check(code, "cudaMallocHost", size);
            }
            made.pinned = static_cast<std::byte*>(memory);
        }
        all_.push_back(made);
        return made;
    }
    void give(const DeviceBlock& block) {
        if (block.bytes != 0) (block.pinned != nullptr ? with_ : without_).push_back(block);
    }
    /// Frees all buffers. The device must no longer use them.
    void free_all() {
        for (const DeviceBlock& one : all_) {
            static_cast<void>(cudaFree(one.device));
            if (one.pinned != nullptr) static_cast<void>(cudaFreeHost(one.pinned));
        }
        all_.clear();
        with_.clear();
        without_.clear();
    }

private:
    static constexpr std::size_t least = 4096;

    static void check(cudaError_t code, const char* call, std::size_t bytes) {
        if (code == cudaSuccess) return;
        static_cast<void>(cudaGetLastError());
        throw error(ErrorCode::refused, concat({"CUDA: ", call, ": ", words_of(code), " (", bytes, " bytes)"}));
    }

    std::vector<DeviceBlock> all_, with_, without_;
};

/// Allocates pinned host memory (`Transport::allocate`). Errors: refused.
inline std::shared_ptr<std::byte> allocate_pinned(int device, const std::shared_ptr<PinnedRanges>& ranges,
                                                  std::size_t bytes) {
    const CudaDeviceGuard here(device);
    void* made = nullptr;
    check_cuda(cudaMallocHost(&made, bytes == 0 ? 1 : bytes), "cudaMallocHost");
    auto* const data = static_cast<std::byte*>(made);
    ranges->add(data, bytes);
    return {data, [ranges](std::byte* one) {
                ranges->drop(one);
                static_cast<void>(cudaFreeHost(one));
            }};
}

/// Allocates memory of a device. Freeing it waits for all work of the device. Errors: refused.
inline std::shared_ptr<std::byte> allocate_device(int device, std::size_t bytes) {
    const CudaDeviceGuard here(device);
    void* made = nullptr;
    check_cuda(cudaMalloc(&made, bytes == 0 ? 1 : bytes), "cudaMalloc");
    return {static_cast<std::byte*>(made), [](std::byte* one) { static_cast<void>(cudaFree(one)); }};
}

/// Memory of a device for a library that cannot be made to release it: the library holds shares.
class KeptOnDevice {
public:
    /// Memory for a rank's collectives. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(int device, std::size_t bytes) {
        return allocated_.add(allocate_device(device, bytes), bytes);
    }
    /// A share of the allocation that contains these bytes; null if none does.
    [[nodiscard]] std::shared_ptr<std::byte> share_of(const std::byte* data, std::size_t bytes) const {
        return allocated_.share_of(data, bytes);
    }
    /// Memory of at least this size that has no other user. It is reused when no share of it is
    /// held. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> room(int device, std::size_t bytes) {
        const std::size_t size = std::bit_ceil(bytes < 4096 ? 4096 : bytes);
        for (const Room& one : rooms_)
            if (one.bytes == size && one.memory.use_count() == 1) return one.memory;
        rooms_.push_back({allocate_device(device, size), size});
        return rooms_.back().memory;
    }

private:
    struct Room {
        std::shared_ptr<std::byte> memory;
        std::size_t bytes = 0;
    };
    LentMemory allocated_;
    std::vector<Room> rooms_;
};

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
