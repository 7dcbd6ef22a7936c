#pragma once

/// \file
/// The ranges that std::span views: the same answers as std::span's constructors give, without
/// testing whether the iterators of a std::vector or a std::span are contiguous, which takes a
/// compiler 5 ms per type.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class B>
inline constexpr bool is_span = false;
template <class T, std::size_t Extent>
inline constexpr bool is_span<std::span<T, Extent>> = true;

template <class B>
inline constexpr bool is_vector = false;
template <class T, class Allocator>
inline constexpr bool is_vector<std::vector<T, Allocator>> = !std::is_same_v<T, bool>;

/// A std::span, or a std::vector that can be viewed.
template <class B>
concept known_range = is_span<std::remove_cvref_t<B>> || is_vector<std::remove_cvref_t<B>>;

/// A cheap pretest: a type without `begin` is no range.
template <class B>
concept may_be_range =
    std::is_array_v<std::remove_reference_t<B>> || requires(B& b) { b.begin(); } || requires(B& b) { begin(b); };

template <class B>
concept spannable = known_range<B> || (may_be_range<B> && requires(B& b) { std::span(b); });

/// As std::span(b).
template <spannable B>
constexpr auto as_span(B& b) {
    using Bare = std::remove_cv_t<B>;
    if constexpr (is_span<Bare>) return Bare(b);
    else if constexpr (is_vector<Bare>) return std::span<std::remove_pointer_t<decltype(b.data())>>(b.data(), b.size());
    else return std::span(b);
}

} // namespace detail
UNISONO_NAMESPACE_END
