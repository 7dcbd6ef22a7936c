#pragma once

/// \file
/// The parts of `<algorithm>`, `<chrono>` and `<iterator>` that declarations use: std::min and
/// similar functions, durations and clocks, std::size and the concepts of iterators.
///
/// With libstdc++ only these parts are included, since the rest (calendars, time zones, parallel
/// sorting, stream iterators) takes a compiler longer than all of this library's headers about
/// groups. A program that uses the rest includes the standard header.

#include "unisono/core/config.hpp"

#include <cstddef> // says which standard library it is

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#include <bits/stl_algobase.h>
#include <span> // and with it the concepts of iterators
#else
#include <algorithm>
#include <chrono>
#include <iterator>
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {
/// As std::clamp, which is in `<algorithm>` alone.
template <class T>
constexpr T clamped(T value, T least, T most) {
    return std::min(std::max(value, least), most);
}

/// As std::partition_point, which is in `<algorithm>` alone: the first of [begin, end) for which
/// `holds` is false. It is false for all behind that one.
template <class T, class Holds>
constexpr T* partition_point(T* begin, T* end, Holds holds) {
    for (auto count = end - begin; count > 0;) {
        const auto half = count / 2;
        if (holds(begin[half])) {
            begin += half + 1;
            count -= half + 1;
        } else count = half;
    }
    return begin;
}
} // namespace detail
UNISONO_NAMESPACE_END
