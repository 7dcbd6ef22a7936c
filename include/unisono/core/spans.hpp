#pragma once

/// \file
/// The ranges that std::span views.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <span>

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
UNISONO_NAMESPACE_END
