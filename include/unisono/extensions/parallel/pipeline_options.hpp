#pragma once

/// \file
/// The layers of a pipeline's stages: their placement, given or balanced; the options of a pipeline
/// and their description as text; and hints about layers whose sizes suit devices badly, with the
/// cost of rounding them up.

#include "unisono/collective/rooted.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/parallel/agreement.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/observe/table.hpp"
#include "unisono/trainer/failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The number of layers of each part of the model, along the forward pass; stages x chunks entries.
using LayerPlacement = std::vector<std::size_t>;

/// The cost of a layer on its rank.
struct LayerCost {
    double time = 0;       ///< time of forward and backward pass, in any unit
    std::size_t bytes = 0; ///< memory that it takes on its rank
    friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// The contiguous placement whose slowest part is fastest, among those whose parts take at most
/// `most_bytes`. Among equals, the one with the shorter parts at the end. No part is empty. Cost:
/// parts x layers^2 / 2 additions.
/// \throws error bad_input: fewer layers than parts; no placement fits; the message names the layer
/// or the memory that is too large
inline LayerPlacement balanced_placement(const std::vector<LayerCost>& layers, std::size_t parts,
                                         std::size_t most_bytes = std::numeric_limits<std::size_t>::max()) {
    const std::size_t n = layers.size();
    if (parts == 0 || n < parts)
        refuse_input({"a placement on ", parts, " parts needs at least one layer for each, found ", n});
    constexpr double impossible = std::numeric_limits<double>::infinity();
    // slowest[k][i]: the time of the slowest part if the first i layers are on k parts.
    // begin[k][i]: the first layer of the last of these parts.
    std::vector<std::vector<double>> slowest(parts + 1, std::vector<double>(n + 1, impossible));
    std::vector<std::vector<std::size_t>> begin(parts + 1, std::vector<std::size_t>(n + 1, 0));
    slowest[0][0] = 0;
    for (std::size_t k = 1; k <= parts; ++k)
        for (std::size_t i = k; i <= n; ++i) {
            double time = 0;
            std::size_t bytes = 0;
            for (std::size_t j = i; j-- > k - 1;) { // the part is layers j to i - 1
                time += layers[j].time;
                bytes += layers[j].bytes;
                if (bytes > most_bytes) break;
                const double worst = std::max(slowest[k - 1][j], time);
                if (worst < slowest[k][i]) {
                    slowest[k][i] = worst;
                    begin[k][i] = j;
                }
            }
        }
    if (slowest[parts][n] == impossible) {
        std::size_t all = 0, largest = 0;
        for (const LayerCost& one : layers) {
            all += one.bytes;
            largest = std::max(largest, one.bytes);
        }
        refuse_input({"no placement on ", parts, " parts of at most ", bytes_text(most_bytes),
                      " each: all layers take ", bytes_text(all), ", the largest ", bytes_text(largest)});
    }
    LayerPlacement placement(parts);
    for (std::size_t k = parts, end = n; k-- > 0;) {
        placement[k] = end - begin[k + 1][end];
        end = begin[k + 1][end];
    }
    return placement;
}

/// Options of `measure_layers`.
struct MeasureOptions {
    std::size_t samples = 16; ///< samples of a micro-batch
    /// Micro-batches whose activations a rank holds at the same time; for the bytes.
    std::size_t micro_batches_held = 1;
    std::size_t copies_of_parameters = 3; ///< parameters, gradients and optimizer state; for the bytes
    int repetitions = 3;                  ///< runs of each layer; the fastest counts
    friend bool operator==(const MeasureOptions&, const MeasureOptions&) = default;
};

namespace detail {

/// The fastest of several forward and backward passes, in nanoseconds.
template <class T>
double nanoseconds_of_layer(AnyLayer<T>& layer, std::size_t n, int repetitions) {
    std::vector<T> parameters(layer.parameters), gradient(layer.parameters), input(n * layer.inputs, T(0.5)),
        output(n * layer.outputs), kept(n * layer.kept), output_gradient(n * layer.outputs, T(0.25)),
        input_gradient(n * layer.inputs);
    layer.initialise(parameters);
    double fastest = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < repetitions; ++repetition) {
        const nanoseconds begin = steady_now();
        LayerForward<T> ahead{n, parameters, input, output, kept, nullptr, 0};
        layer.forward(ahead);
        LayerBackward<T> back{n, parameters, input, output, kept, output_gradient, input_gradient, gradient};
        layer.backward(back);
        fastest = std::min(fastest, static_cast<double>(steady_now() - begin));
    }
    return fastest;
}

} // namespace detail

/// The cost of each layer, as rank 0 measures it: forward and backward pass of one micro-batch of
/// small numbers, in nanoseconds. All ranks get the same result. Collective. Layers with
/// collectives (branches, tensor) cannot be measured, and are refused. Memory: one layer at a time.
/// An exception of a layer is `aborted` on the other ranks.
template <class World, class T>
std::vector<LayerCost> measure_layers(World& world, Layers<T>& layers, const MeasureOptions& options = {}) {
    return detail::telling_all(world, "measure_layers", [&] {
        if (options.samples == 0 || options.repetitions < 1)
            refuse_input({"measure_layers: found ", options.samples, " samples and ", options.repetitions,
                          " repetitions, expected 1 or more"});
        std::vector<double> ranks = {double(world.world_rank()), -double(world.world_rank())};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            layers[l].most_over_ranks(ranks); // which changes them where the layer is on several
            if (ranks[0] != -ranks[1])
                refuse_input({"measure_layers: layer ", l,
                              " is spread over ranks, and cannot be measured on one; expected costs of your own"});
        }
        std::vector<double> times(layers.size(), 0);
        for (std::size_t l = 0; l < layers.size() && world.rank() == 0; ++l)
            times[l] = detail::nanoseconds_of_layer(layers[l], options.samples, options.repetitions);
        if (world.size() > 1 && !times.empty()) broadcast(world, times, 0);
        std::vector<LayerCost> costs;
        for (std::size_t l = 0; l < layers.size(); ++l)
            costs.push_back({times[l], sizeof(T) * (options.copies_of_parameters * layers[l].parameters +
                                                    options.micro_batches_held * options.samples *
                                                        (layers[l].outputs + layers[l].kept))});
        return costs;
    });
}

namespace detail {

/// Sets the placement, if none is given, without measured times: numbers of parameters and outputs
/// serve as times. Ranks that share a layer (tensor.hpp, branches.hpp) have different numbers, and
/// must nevertheless have it in the same part: they take the largest of any of them. Returns true
/// if there are such ranks. `rank`: in the world; `options`: what must be equal on them, too.
/// Collective over them. \throws error bad_input, on all of them: they differ
template <class T>
bool place_layers(LayerPlacement& placement, const Layers<T>& layers, std::size_t parts, Fingerprint options,
                  int rank) {
    for (const std::size_t count : placement) options.add(count);
    const auto word = [&](int shift) { return static_cast<double>(options.value() >> shift & 0xffffffffu); };
    std::vector<double> values = {word(0), -word(0), word(32), -word(32), double(rank), -double(rank)};
    const std::size_t agreed = values.size();
    for (std::size_t l = 0; l < layers.size(); ++l)
        values.push_back(static_cast<double>(layers[l].parameters + layers[l].outputs));
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].most_over_ranks(values);
    if (values[0] != -values[1] || values[2] != -values[3])
        refuse_input("PipelineModel: ranks that share its layers have another placement, schedule or other options; "
                     "expected the same on all of them");
    if (placement.empty()) {
        std::vector<LayerCost> costs;
        for (std::size_t l = 0; l < layers.size(); ++l) costs.push_back({values[agreed + l], 0});
        placement = balanced_placement(costs, parts);
    }
    return values[4] != -values[5];
}

/// \throws error bad_input: the number of parts is wrong, a part is empty, or the layers do not add
/// up to those of the model
inline void check_placement(const LayerPlacement& placement, std::size_t parts, std::size_t layers) {
    if (placement.size() != parts)
        refuse_input({"PipelineOptions::placement has ", placement.size(), " parts, expected ", parts,
                      ": stages x chunks of a stage"});
    std::size_t all = 0;
    for (std::size_t i = 0; i < parts; ++i) {
        if (placement[i] == 0) refuse_input({"PipelineOptions::placement: part ", i, " has no layers"});
        all += placement[i];
    }
    if (all != layers)
        refuse_input({"PipelineOptions::placement has ", all, " layers, expected ", layers, ": those of the model"});
}

} // namespace detail

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
