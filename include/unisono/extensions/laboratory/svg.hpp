#pragma once

/// \file
/// The beginning of a drawing in SVG, and words in it.

#include "unisono/core/text.hpp"

#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline std::string escape_xml(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
        case '&': escaped += "&amp;"; break;
        case '<': escaped += "&lt;"; break;
        case '>': escaped += "&gt;"; break;
        case '"': escaped += "&quot;"; break;
        case '\'': escaped += "&apos;"; break;
        default: escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }
    return escaped;
}

/// Opens the document. `rules`: the style of its marks, beside those of text and titles.
inline std::string begin_svg(int width, int height, std::string_view rules) {
    return concat({"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                   "\" viewBox=\"0 0 ", width, " ", height,
                   "\">\n<style>text{font-family:sans-serif;font-size:11px;fill:#222}"
                   ".title{font-size:15px;font-weight:bold}",
                   rules, "</style>\n"});
}

} // namespace detail
UNISONO_NAMESPACE_END
