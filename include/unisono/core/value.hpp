#pragma once

/// \file
/// The requirements of std::copyable, std::movable and std::equality_comparable, without common
/// references and swaps: those take a compiler a millisecond per class, and this library checks
/// more than a hundred.

#include "unisono/core/config.hpp"

#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// False, whatever the type, for a static_assert that fails where a template is instantiated, and
/// not where it is written.
template <class>
inline constexpr bool never_true = false;

template <class V>
concept movable_value = std::is_object_v<V> && requires(V& to, V&& from) {
    V(static_cast<V&&>(from));
    to = static_cast<V&&>(from);
};

template <class V>
concept copyable_value = movable_value<V> && requires(V& to, const V& from) {
    V(from);
    to = from;
};

template <class V>
concept comparable_value = requires(const V& left, const V& right) {
    { left == right ? 0 : 1 };
    { left != right ? 0 : 1 };
};

} // namespace detail

UNISONO_NAMESPACE_END
