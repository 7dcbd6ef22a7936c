#pragma once

/// \file
/// An array that owns its memory, from any source: `group.allocate<T>(n)` returns it.

#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory of this process for a rank, aligned to a cache line. Large blocks are offset slightly
/// from rank to rank: at distances of large powers of two the processor takes loads for aliases of
/// stores, and all_reduce of 128 MiB takes three times as long.
inline std::shared_ptr<std::byte> memory_for_rank(int rank, std::size_t bytes) {
    constexpr std::align_val_t line{128};
    const std::size_t apart =
        bytes < (std::size_t{1} << 20) ? 0 : static_cast<std::size_t>(rank % 16) * (37 * 4096 + 384);
    if (bytes > bytes + apart) refuse_input({"allocate: ", bytes, " bytes are more than memory can hold"});
    std::byte* const whole = static_cast<std::byte*>(::operator new(bytes + apart, line, std::nothrow));
    if (whole == nullptr)
        throw error(ErrorCode::refused, concat({"allocate: the system has no memory of ", bytes, " bytes"}));
    return {whole + apart, [whole](std::byte*) { ::operator delete(whole, line); }};
}

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
    Memory(std::shared_ptr<std::byte> owner, std::size_t count)
        : owner_(std::move(owner)), data_(reinterpret_cast<T*>(owner_.get())), count_(count) {
        if (count_ != 0) std::memset(static_cast<void*>(data_), 0, count_ * sizeof(T));
    }
    Memory(Memory&& other) noexcept
        : owner_(std::move(other.owner_)), data_(std::exchange(other.data_, nullptr)),
          count_(std::exchange(other.count_, 0)) {}
    Memory& operator=(Memory&& other) noexcept {
        owner_ = std::move(other.owner_);
        data_ = std::exchange(other.data_, nullptr);
        count_ = std::exchange(other.count_, 0);
        return *this;
    }
    ~Memory() = default;

    [[nodiscard]] T* data() { return data_; }
    [[nodiscard]] const T* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] T* begin() { return data_; }
    [[nodiscard]] T* end() { return data_ + count_; }
    [[nodiscard]] const T* begin() const { return data_; }
    [[nodiscard]] const T* end() const { return data_ + count_; }
    [[nodiscard]] T& operator[](std::size_t index) { return data_[index]; }
    [[nodiscard]] const T& operator[](std::size_t index) const { return data_[index]; }

private:
    std::shared_ptr<std::byte> owner_;
    T* data_ = nullptr;
    std::size_t count_ = 0;
};

UNISONO_NAMESPACE_END
