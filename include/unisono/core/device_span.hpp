#pragma once

/// \file
/// Elements in device memory: the counterpart of `std::span`, without access to elements, so that
/// no host code reads them by mistake.

#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace detail {

template <class B>
inline constexpr bool is_span = false;
template <class T, std::size_t Extent>
inline constexpr bool is_span<std::span<T, Extent>> = true;

template <class B>
concept spannable = requires(B& b) { std::span(b); };

template <spannable B>
constexpr auto as_span(B& b) {
    return std::span(b);
}

} // namespace detail

/// `size()` elements at an address in device memory; does not own them. Collectives accept it if
/// the transport has a device.
template <class T>
    requires element<std::remove_const_t<T>>
class DeviceSpan {
public:
    using element_type = T;
    using value_type = std::remove_const_t<T>;

    constexpr DeviceSpan() = default;
    constexpr DeviceSpan(T* data, std::size_t count) : data_(data), count_(count) {}
    /// Converts to a read-only span.
    template <class U>
        requires std::same_as<const U, T> && (!std::same_as<U, T>)
    constexpr DeviceSpan(const DeviceSpan<U>& other) : data_(other.data()), count_(other.size()) {}

    [[nodiscard]] constexpr T* data() const { return data_; } ///< a device address
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    [[nodiscard]] constexpr std::size_t size_bytes() const { return count_ * sizeof(T); }
    [[nodiscard]] constexpr bool empty() const { return count_ == 0; }

    /// `count` elements from `first` on. Errors: bad_input if the range is out of bounds.
    [[nodiscard]] constexpr DeviceSpan subspan(std::size_t first, std::size_t count) const {
        if (first > count_ || count > count_ - first)
            refuse_input({"DeviceSpan::subspan: elements ", first, " to ", first + count, " of ", count_});
        return {data_ + first, count};
    }

private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
};

namespace detail {
template <class T>
inline constexpr bool is_device_span = false;
template <class T>
inline constexpr bool is_device_span<DeviceSpan<T>> = true;
} // namespace detail

/// Owned elements in device memory, as returned by `allocate_on_device<T>(group, n)`. Move-only.
template <element T>
class DeviceMemory : public detail::Array<T> {
public:
    using value_type = T;

    using detail::Array<T>::Array;
    [[nodiscard]] DeviceSpan<T> span() const { return {this->data(), this->size()}; }
};

UNISONO_NAMESPACE_END
