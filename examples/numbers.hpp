// Numbers on the examples' command lines, read by the library's own parser. CLI11's parser clamps
// values that are too large for the type, and accepts -1 for an unsigned number.
#pragma once

#include <unisono/core/number.hpp>
#include <unisono/core/text.hpp>

#include <CLI/CLI.hpp>

#include <limits>
#include <string>

namespace numbers {

/// For `->check(...)`: accepts numbers of the given type within the range, and refuses overflow.
template <class T>
CLI::Validator from(T least, T most) {
    return CLI::Validator(
        [least, most](const std::string& text) {
            T value{};
            if (unisono::parse_number(text, least, most, value)) return std::string();
            return unisono::concat({"found ", text, "; expected ", unisono::expected_number(least, most)});
        },
        std::string());
}
template <class T>
CLI::Validator at_least(T least) {
    return from(least, std::numeric_limits<T>::max());
}

} // namespace numbers
