#pragma once

/// \file
/// Text in the form of JSON (RFC 8259): valid UTF-8 between quotes, for all files in that format.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <cstddef>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The length of the UTF-8 sequence at the start of `text`; 0 if it is invalid.
inline std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto follows = [&](std::size_t i, unsigned least = 0x80, unsigned most = 0xbf) {
        return byte(i) >= least && byte(i) <= most;
    };
    const unsigned first = byte(0);
    if (text.empty()) return 0;
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) // neither overlong nor half of a surrogate pair
        return follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
    if (first >= 0xf0 && first <= 0xf4)
        return follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && follows(2) && follows(3) ? 4 : 0;
    return 0;
}

inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = static_cast<unsigned char>(text.front()) < 0x80 ? 1 : utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

/// A string in JSON's form. \throws error bad_input if it is not UTF-8
inline std::string json_text(std::string_view text) {
    if (!is_utf8(text))
        refuse_input(
            {"found the text ", detail::quoted(text), ", which is not UTF-8; expected names and notes in UTF-8"});
    std::string all;
    all.reserve(text.size() + 2);
    all += '"';
    std::size_t done = 0; // what is before is in `all`
    for (std::size_t i = 0; i < text.size(); ++i) {
        constexpr std::string_view digits = "0123456789abcdef";
        const char c = text[i];
        const auto code = static_cast<unsigned char>(c);
        if (code >= 0x20 && c != '"' && c != '\\') continue;
        all.append(text, done, i - done);
        done = i + 1;
        if (code >= 0x20) all += '\\', all += c;
        else if (c == '\n') all += "\\n";
        else all += concat({"\\u00", digits[code >> 4], digits[code & 15]});
    }
    all.append(text, done);
    return all += '"';
}

} // namespace detail
UNISONO_NAMESPACE_END
