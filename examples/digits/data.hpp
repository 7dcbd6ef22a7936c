// The handwritten digits of data/README.md.
#pragma once

#include "unisono/core/number.hpp"
#include "unisono/unisono.hpp"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace un = unisono;

namespace digits {

inline constexpr std::size_t pixels = 64; ///< 8x8, row by row
inline constexpr std::size_t kinds = 10;

/// Images with values from 0 to 1, and their digits.
struct Images {
    std::vector<float> values = {};
    std::vector<std::int32_t> labels = {};

    [[nodiscard]] std::size_t size() const { return labels.size(); }
    [[nodiscard]] un::RowData<float> data() const { return {values, pixels, labels}; }
};

/// Reads a file of lines with 64 values from 0 to 16 and a digit. \throws un::error bad_input:
/// names the file, the line and the fault
inline Images read(const std::string& path) {
    std::ifstream file(path);
    if (!file)
        un::refuse_input("cannot read '" + path + "'; expected the file of handwritten digits (--data names it)");
    Images images;
    std::string line;
    for (std::size_t number = 1; std::getline(file, line); ++number) {
        const auto refuse = [&](const std::string& what) {
            un::refuse_input(path + ":" + std::to_string(number) + ": " + what);
        };
        std::string_view rest = line;
        if (rest.ends_with('\r')) rest.remove_suffix(1);
        for (std::size_t i = 0; i <= pixels; ++i) {
            const std::size_t comma = rest.find(',');
            const std::string_view field = rest.substr(0, comma);
            int value = 0;
            if ((comma == std::string_view::npos) != (i == pixels) ||
                !un::parse_number(field, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), value))
                refuse("expected 64 pixels and a digit, as whole numbers with commas between them");
            if (value < 0 || value > (i < pixels ? 16 : 9))
                refuse("found " + std::to_string(value) + "; expected " +
                       (i < pixels ? "a pixel of 0 to 16" : "a digit"));
            if (i < pixels) images.values.push_back(static_cast<float>(value) / 16);
            else images.labels.push_back(value);
            rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
        }
    }
    return images;
}

/// Images for training and images for the test. The split is fixed, so all runs use the same test
/// images.
struct Split {
    Images train = {};
    Images test = {};
};

/// Draws `for_test` test images.
inline Split split(const Images& all, std::size_t for_test) {
    if (for_test == 0 || for_test >= all.size())
        un::refuse_input("found " + std::to_string(all.size()) + " images; expected more than " +
                         std::to_string(for_test) + ", which are for testing");
    un::Mt19937 random(0);
    Split parts;
    std::size_t drawn = 0;
    for (const std::size_t i : un::torch_randperm(all.size(), random)) {
        Images& part = drawn++ < for_test ? parts.test : parts.train;
        const auto image = std::span(all.values).subspan(i * pixels, pixels);
        part.values.insert(part.values.end(), image.begin(), image.end());
        part.labels.push_back(all.labels[i]);
    }
    return parts;
}

/// An image as text. More ink is a darker character.
inline std::string drawing(std::span<const float> image) {
    const std::string ink = " .:-=+*#%@";
    std::string text;
    for (std::size_t row = 0; row < 8; ++row) {
        for (std::size_t column = 0; column < 8; ++column) {
            const auto shade = static_cast<std::size_t>(image[8 * row + column] * 9);
            text += std::string(2, ink[shade]);
        }
        text += '\n';
    }
    return text;
}

} // namespace digits
