#pragma once

/// \file
/// The requirements of std::copyable, std::movable, std::equality_comparable and
/// std::convertible_to, without common references, swaps and trait classes: those take a compiler
/// up to a millisecond per type, and this library checks more than a hundred types.

#include "unisono/core/config.hpp"

#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// False for every type: for a static_assert that fails when a template is instantiated, not when
/// it is defined.
template <class>
inline constexpr bool never_true = false;

/// As std::convertible_to.
template <class From, class To>
concept converts_to = requires(From (&from)(), void (&take)(To)) { take(from()); };

template <class V>
inline constexpr bool is_value = true; ///< also for a function, which no constructor makes
template <class V>
inline constexpr bool is_value<V&> = false;
template <class V>
inline constexpr bool is_value<V&&> = false;

template <class V>
concept movable_value = is_value<V> && requires(V& to, V&& from) {
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
