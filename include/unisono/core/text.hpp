#pragma once

/// \file
/// Messages, and numbers as people read them. Plain ASCII, independent of the locale.

#include "unisono/core/config.hpp"

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A piece of a message: text, a character, or a number that becomes text when the message is made.
struct TextPart {
    std::string_view text = {};
    enum class Kind : unsigned char { text, character, natural, integer, real } kind = Kind::text;
    union {
        char character;
        unsigned long long natural;
        long long integer;
        double real;
    };

    TextPart(std::string_view value) : text(value), natural(0) {}
    TextPart(const std::string& value) : text(value), natural(0) {}
    TextPart(const char* value) : text(value), natural(0) {}
    TextPart(char value) : kind(Kind::character), character(value) {}
    template <std::unsigned_integral T>
    TextPart(T value) : kind(Kind::natural), natural(value) {}
    template <std::signed_integral T>
    TextPart(T value) : kind(Kind::integer), integer(value) {}
    template <std::floating_point T>
    TextPart(T value) : kind(Kind::real), real(static_cast<double>(value)) {}

    void append_to(std::string& all) const {
        char number[352]; // the longest double in %f has 309 digits before the point
        int length = 0;
        switch (kind) {
        case Kind::text: all += text; return;
        case Kind::character: all += character; return;
        case Kind::natural: length = std::snprintf(number, sizeof number, "%llu", natural); break;
        case Kind::integer: length = std::snprintf(number, sizeof number, "%lld", integer); break;
        case Kind::real: length = std::snprintf(number, sizeof number, "%f", real); break;
        }
        all.append(number, static_cast<std::size_t>(length));
    }
};

} // namespace detail

/// The text of the parts (strings, characters, numbers), one after the other: concat({"rank ", rank, " of ", world}). All
/// messages are made by it: a chain of operator+, or a template, would cost the programs that include them code and compile
/// time.
[[gnu::noinline]] inline std::string concat(std::initializer_list<detail::TextPart> parts) {
    std::string all;
    for (const detail::TextPart& part : parts) part.append_to(all);
    return all;
}

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

namespace detail {

/// As an error quotes what came from outside: foreign text is cut, and what is not printable is replaced.
inline std::string quoted(std::string_view text) {
    std::string shown;
    for (const char c : text.substr(0, 80)) shown += c >= ' ' && c <= '~' ? c : '?';
    return concat({"'", shown, text.size() > 80 ? "...'" : "'"});
}

} // namespace detail
UNISONO_NAMESPACE_END
