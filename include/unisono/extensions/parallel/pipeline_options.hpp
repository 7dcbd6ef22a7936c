#pragma once

/// \file
/// The options of a pipeline, their description as text, and hints about layers whose sizes suit
/// devices badly, with the cost of rounding them up.

#include "unisono/core/text.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/extensions/parallel/placement.hpp"
#include "unisono/observe/table.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Options of PipelineModel.
struct PipelineOptions {
    std::uint32_t micro_batches = 4; ///< per batch; a batch with fewer samples makes fewer
    bool recompute = false; ///< keep only a chunk's input, and repeat its forward pass before the backward pass
    /// Number of layers of each part; empty: by numbers of parameters and outputs (see
    /// balanced_placement).
    LayerPlacement placement = {};
    friend bool operator==(const PipelineOptions&, const PipelineOptions&) = default;
};

/// The memory of this rank, in bytes.
struct PipelineMemory {
    std::size_t parameters = 0, gradients = 0;
    std::size_t activations = 0; ///< of micro-batches in flight, and of messages; known after the first batch
    std::size_t work = 0;        ///< memory between layers
    friend bool operator==(const PipelineMemory&, const PipelineMemory&) = default;
};

namespace detail {

/// The name of a layer's parameters, which are one parameter of the model. It does not depend on
/// the layer's rank.
inline std::string layer_name(std::size_t layer) { return concat({"layer ", layer}); }

/// The names of the layers that have parameters, in order.
template <class T>
std::vector<std::pair<std::string, std::size_t>> names_and_elements(const Layers<T>& layers) {
    std::vector<std::pair<std::string, std::size_t>> all;
    for (std::size_t l = 0; l < layers.size(); ++l)
        if (layers[l].parameters != 0) all.emplace_back(layer_name(l), layers[l].parameters);
    return all;
}
/// The number of layers with parameters before this layer.
template <class T>
std::size_t parameters_before(const Layers<T>& layers, std::size_t layer) {
    std::size_t count = 0;
    for (std::size_t l = 0; l < layer; ++l) count += layers[l].parameters != 0 ? 1 : 0;
    return count;
}

template <class T>
std::string pipeline_text(const Layers<T>& layers, const PipelineOptions& options, std::string_view schedule,
                          int stages) {
    Table table({"part", "stage", "layers", ">parameters", ">outputs per sample"});
    std::size_t at = 0;
    for (std::size_t part = 0; part < options.placement.size(); ++part) {
        const std::size_t end = at + options.placement[part];
        std::size_t count = 0;
        for (std::size_t l = at; l < end; ++l) count += layers[l].parameters;
        table.row({std::to_string(part), std::to_string(part % static_cast<std::size_t>(stages)),
                   concat({at, " to ", end - 1}), count_text(count), count_text(layers[end - 1].outputs)});
        at = end;
    }
    return concat({"pipeline of ", stages, " stages by ", schedule, ", ", options.micro_batches, " micro-batches",
                   options.recompute ? ", activations recomputed" : "", "\n", table.text(2), padding_hints(layers)});
}

} // namespace detail
UNISONO_NAMESPACE_END
