#pragma once

/// \file
/// Numbers as people read them. Plain ASCII, independent of the locale.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// `digits` decimals after the point: 1.5 with one digit is "1.5".
inline std::string fixed_text(double value, int digits) {
    char text[352]; // the longest double in %f has 309 digits before the point
    const int length = std::snprintf(text, sizeof text, "%.*f", digits < 0 ? 0 : (digits > 30 ? 30 : digits), value);
    return std::string(text, static_cast<std::size_t>(length));
}

/// A size in bytes: "0 B", "1023 B", "1.0 KiB", "25.0 MiB".
inline std::string bytes_text(std::size_t bytes) {
    constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) return std::to_string(bytes) + " B";
    double value = static_cast<double>(bytes) / 1024.0;
    std::size_t unit = 0;
    while (value >= 1023.95 && unit < 5) {
        value /= 1024.0;
        ++unit;
    }
    return fixed_text(value, 1) + " " + std::string(units[unit]);
}

/// A count with its thousands apart: "1,234,567".
inline std::string count_text(std::size_t count) {
    std::string text = std::to_string(count);
    for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
    return text;
}

UNISONO_NAMESPACE_END
