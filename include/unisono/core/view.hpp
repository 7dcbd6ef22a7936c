#pragma once

/// \file
/// Untyped views of elements, with their type and memory space.

#include "unisono/core/element.hpp"

#include <cstddef>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The processor that accesses memory by plain loads and stores: the host or a device.
enum class MemorySpace : std::uint8_t { host, device };

constexpr std::string_view name_of(MemorySpace space) { return space == MemorySpace::host ? "host" : "device"; }

/// `count` elements at `data`; does not own them. `Byte` is std::byte or const std::byte.
template <class Byte>
struct BasicView {
    Byte* data = nullptr;
    std::size_t count = 0;
    std::size_t element_bytes = 1;
    ElementType type = ElementType::uint8;
    MemorySpace space = MemorySpace::host;

    [[nodiscard]] constexpr std::size_t bytes() const { return count * element_bytes; }
    template <class Const> // a template, since nvcc warns of a conversion to the type itself
        requires(std::is_same_v<Const, const Byte> && !std::is_const_v<Byte>)
    constexpr operator BasicView<Const>() const {
        return {data, count, element_bytes, type, space};
    }
};

/// Elements that may be written; untyped, for the executor.
using View = BasicView<std::byte>;
/// Read-only elements.
using ConstView = BasicView<const std::byte>;

/// A view of a span.
template <element T>
    requires(!std::is_const_v<T>)
View view_of(std::span<T> elements, MemorySpace space = MemorySpace::host) {
    return {reinterpret_cast<std::byte*>(elements.data()), elements.size(), sizeof(T), element_type_of<T>, space};
}

UNISONO_NAMESPACE_END
