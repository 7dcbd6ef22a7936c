#pragma once

/// \file
/// Where elements are, and an array that owns its memory, from any source: `group.allocate<T>(n)`
/// returns it.

#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The processor that accesses memory by plain loads and stores: the host or a device.
enum class MemorySpace : std::uint8_t { host, device };

constexpr std::string_view name_of(MemorySpace space) { return space == MemorySpace::host ? "host" : "device"; }

namespace detail {

/// Memory of this process for a rank, aligned to a cache line. Large blocks are offset slightly
/// from rank to rank: at distances of large powers of two the processor takes loads for aliases of
/// stores, and all_reduce of 128 MiB takes three times as long.
[[gnu::cold]] inline std::shared_ptr<std::byte> memory_for_rank(int rank, std::size_t bytes) {
    constexpr std::align_val_t line{128};
    const std::size_t apart =
        bytes < (std::size_t{1} << 20) ? 0 : static_cast<std::size_t>(rank % 16) * (37 * 4096 + 384);
    if (bytes > bytes + apart) refuse_input({"allocate: ", bytes, " bytes are more than memory can hold"});
    std::byte* const whole = static_cast<std::byte*>(::operator new(bytes + apart, line, std::nothrow));
    if (whole == nullptr)
        throw error(ErrorCode::refused, concat({"allocate: the system has no memory of ", bytes, " bytes"}));
    return {whole + apart, [whole](std::byte*) { ::operator delete(whole, line); }};
}

/// `size()` contiguous elements in memory of the host or of a device, so only their address is
/// told. Move-only. Keeps the owner of its memory alive.
template <class T>
class Array {
public:
    Array() = default;
    Array(std::shared_ptr<std::byte> owner, std::size_t count) : owner_(std::move(owner)), count_(count) {}
    Array(Array&& other) noexcept : owner_(std::move(other.owner_)), count_(std::exchange(other.count_, 0)) {}
    Array& operator=(Array&& other) noexcept {
        owner_ = std::move(other.owner_);
        count_ = std::exchange(other.count_, 0);
        return *this;
    }
    ~Array() = default;

    [[nodiscard]] T* data() const { return reinterpret_cast<T*>(owner_.get()); }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }

private:
    std::shared_ptr<std::byte> owner_;
    std::size_t count_ = 0;
};

} // namespace detail

/// `size()` contiguous elements, aligned to a cache line. Move-only. Keeps the owner of its memory
/// alive.
template <class T>
    requires __is_trivially_copyable(T)
class Memory {
public:
    using value_type = T;

    Memory() = default;
    /// `owner` frees the bytes when it ends; they are zeroed here.
    Memory(std::shared_ptr<std::byte> owner, std::size_t count) : all_(std::move(owner), count) {
        if (count != 0) std::memset(static_cast<void*>(data()), 0, count * sizeof(T));
    }

    [[nodiscard]] T* data() { return all_.data(); }
    [[nodiscard]] const T* data() const { return all_.data(); }
    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] T* begin() { return data(); }
    [[nodiscard]] T* end() { return data() + size(); }
    [[nodiscard]] const T* begin() const { return data(); }
    [[nodiscard]] const T* end() const { return data() + size(); }
    [[nodiscard]] T& operator[](std::size_t index) { return data()[index]; }
    [[nodiscard]] const T& operator[](std::size_t index) const { return data()[index]; }

private:
    detail::Array<T> all_;
};

UNISONO_NAMESPACE_END
