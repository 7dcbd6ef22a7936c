#pragma once

/// \file
/// Finds sizes of layers that suit devices badly, and the cost of rounding them up.

#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/observe/table.hpp"

#include <array>
#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// Rounds up to the next multiple.
constexpr std::size_t padded(std::size_t size, std::size_t multiple) {
    return multiple == 0 ? size : (size + multiple - 1) / multiple * multiple;
}

/// The multiple to which a size should be rounded: 128 (whole tiles of matrix units) from 1024 on,
/// 16 (matrix units of 16-bit numbers) from 128 on, 8 (vectors of floats) from 16 on; smaller sizes
/// are kept.
constexpr std::size_t liked_multiple(std::size_t size) {
    return size >= 1024 ? 128 : size >= 128 ? 16 : size >= 16 ? 8 : 1;
}

/// One line for each output width that is not such a multiple, with the cost of rounding it up;
/// empty if there is none.
template <class T>
std::string padding_hints(const Layers<T>& layers) {
    Table table({"layer", ">outputs", ">padded to", ">more"});
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const std::size_t size = layers[l].outputs, better = padded(size, liked_multiple(size));
        if (better == size) continue;
        const double more = 100.0 * static_cast<double>(better - size) / static_cast<double>(size);
        table.row({std::to_string(l), count_text(size), count_text(better), fixed_text(more, 1) + " %"});
    }
    if (table.rows() == 0) return {};
    return "  widths that are not multiples of the sizes that devices prefer:\n" + table.text(2);
}

UNISONO_NAMESPACE_END
