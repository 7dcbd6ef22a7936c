#pragma once

/// \file
/// The state of a training as its checkpoint stores it: names, types and shapes, and the numbers
/// that each rank writes.
///
/// If all ranks hold a parameter, each rank writes some whole parameters, of about the same number
/// of bytes per rank. If each rank holds its slices of the optimizer's state (or of the
/// parameters), it writes its slices. So all ranks write, and no number is written twice.
///
/// If a rank has a stage of the model (parallel/), the trainer's group consists of the ranks with
/// the same stage. The checkpoint contains the whole model and does not depend on how it was split:
/// the model names all parameters, and those that are on this rank.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/core/list.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/state_memory.hpp"
#include "unisono/update/update.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A part of the state and its memory.
struct StatePart {
    SavedPart saved = {};
    TensorData data = {};
    std::shared_ptr<const void> owner = {}; ///< the owner of a copy, if the memory is a device's
};

inline std::uint64_t element_count(const Tensor& tensor) {
    std::uint64_t count = 1;
    for (const std::uint64_t dimension : tensor.shape) count *= dimension;
    return count;
}

/// Makes a tensor for each span, with the names `what`_0, `what`_1, ...
template <class Spans>
std::vector<Tensor> tensors_of(Spans&& spans, std::string_view what) {
    std::vector<Tensor> all;
    for_each_span(spans, [&](auto one) {
        using T = typename decltype(one)::element_type;
        all.push_back({.name = concat({what, "_", all.size()}),
                       .type = std::string(tensor_type(element_type_of<T>)),
                       .shape = {one.size()}});
    });
    return all;
}

template <class Names>
void give_names(std::vector<Tensor>& all, Names&& names, std::string_view what) {
    std::size_t count = 0;
    for (auto it = std::begin(names); it != std::end(names); ++it, ++count)
        if (count < all.size()) all[count].name = std::string(*it);
    if (count != all.size())
        refuse_input({"the model has ", count, " ", what, " for ", all.size(), "; expected one for each"});
}

template <class Shapes>
void give_shapes(std::vector<Tensor>& all, Shapes&& shapes) {
    std::size_t at = 0;
    for (const auto& shape : shapes) {
        if (at == all.size()) refuse_input({"the model has more parameter_shapes than its ", at, " parameters"});
        Tensor one{.type = all[at].type};
        for (const auto dimension : shape) one.shape.push_back(static_cast<std::uint64_t>(dimension));
        std::uint64_t bytes = 0;
        if (!tensor_bytes(one, bytes) || element_count(one) != all[at].shape[0])
            refuse_input({"the shape of \"", all[at].name, "\" does not match its ", all[at].shape[0], " elements"});
        all[at++].shape = std::move(one.shape);
    }
    if (at != all.size()) refuse_input({"the model has ", at, " parameter_shapes for ", all.size(), " parameters"});
}

template <class Sampler>
SavedOrder order_of(const Sampler& sampler) {
    SavedOrder order{.sampler = std::string(Sampler::name)};
    if constexpr (requires { std::uint64_t{sampler.seed}; }) order.seed = sampler.seed;
    if constexpr (requires { bool{sampler.shuffle}; }) order.shuffle = sampler.shuffle;
    if constexpr (requires { bool{sampler.drop_last}; }) order.drop_last = sampler.drop_last;
    return order;
}

/// A model of which this rank has a stage, and that knows the whole model's parameters.
template <class M>
concept part_of_whole = requires(M& model, std::size_t p) {
    model.whole_parameters();
    model.places()[p];
};

/// The index in the whole model of this rank's p-th parameter.
template <class Model>
std::size_t place_of([[maybe_unused]] Model& model, std::size_t p) {
    if constexpr (part_of_whole<Model>) return model.places()[p];
    else return p;
}

/// True if each rank makes updates of its own, with its own optimizer state, and synchronises with
/// the others.
template <class Trainer>
concept goes_alone = requires(Trainer& trainer) { trainer.state().update_run().own(); };

/// An array of the optimizer's state that this rank has. `Values`: std::span, or DeviceSpan.
template <class Values>
struct HeldArray {
    std::size_t index = 0; ///< index in the checkpoint
    Values values = {};
    bool own = false; ///< no other rank has it
};
/// All arrays of this rank: those of the optimizer, and then the common arrays if ranks
/// synchronise.
template <class Trainer>
auto held_arrays(Trainer& trainer) {
    auto&& state = trainer.state().optimizer_state();
    std::vector<HeldArray<decltype(state.array(0))>> held;
    if constexpr (goes_alone<Trainer>) {
        const auto rank = static_cast<std::size_t>(trainer.world().rank());
        const auto ranks = static_cast<std::size_t>(trainer.world().size());
        for (std::size_t a = 0; a < state.size(); ++a) held.push_back({rank * state.size() + a, state.array(a), true});
        auto&& common = trainer.state().update_run().state();
        if constexpr (requires { common.array(0); })
            for (std::size_t a = 0; a < common.size(); ++a)
                held.push_back({ranks * state.size() + a, common.array(a), false});
    } else {
        for (std::size_t a = 0; a < state.size(); ++a) held.push_back({a, state.array(a), false});
    }
    return held;
}
/// The names of all arrays in a checkpoint.
template <class Trainer>
std::vector<std::string> array_names(Trainer& trainer) {
    std::vector<std::string> names;
    const auto& state = trainer.state().optimizer_state();
    if constexpr (goes_alone<Trainer>) {
        for (int rank = 0; rank < trainer.world().size(); ++rank)
            for (std::size_t a = 0; a < state.size(); ++a) names.push_back(concat({"rank_", rank, ".", state.name(a)}));
        const auto& common = trainer.state().update_run().state();
        if constexpr (requires { common.name(0); })
            for (std::size_t a = 0; a < common.size(); ++a) names.push_back(concat({"outer.", common.name(a)}));
    } else {
        for (std::size_t a = 0; a < state.size(); ++a) names.emplace_back(state.name(a));
    }
    return names;
}
/// Checks that ranks that update on their own have just synchronised. Collective. \returns the
/// number of updates of each rank, if the numbers differ (a rank has made fewer if it had no data
/// in a round, or a guard has left its gradient out); else empty
template <class Trainer>
std::vector<std::uint64_t> check_met([[maybe_unused]] Trainer& trainer) {
    std::vector<std::uint64_t> updates;
    if constexpr (goes_alone<Trainer>) {
        auto& world = trainer.world();
        const std::array<std::uint64_t, 2> mine = {trainer.state().update_run().own(), trainer.updates()};
        List<std::uint64_t> all(2 * static_cast<std::size_t>(world.size()));
        gather_words(world, mine, all, Caller::save);
        for (std::size_t i = 0; i < all.size(); i += 2) {
            updates.push_back(all[i + 1]);
            if (all[i] == 0) continue;
            throw agreed_error(world.blame(
                ErrorCode::refused, static_cast<int>(i / 2), "save",
                {"has made ", all[i], " updates of its own since the ranks last synchronised; ",
                 "expected none: save after an update that synchronises them, or call synchronise() before"}));
        }
        if (std::all_of(updates.begin(), updates.end(), [&](std::uint64_t one) { return one == all[1]; }))
            updates.clear();
    }
    return updates;
}
/// The number of updates with which this rank continues.
template <class Trainer>
std::uint64_t updates_of_rank(Trainer& trainer, const Manifest& saved) {
    const auto ranks = static_cast<std::size_t>(trainer.world().size());
    if (saved.own_updates.size() != ranks) return saved.updates;
    return saved.own_updates[static_cast<std::size_t>(trainer.world().rank())];
}

/// The manifest without the files, for a checkpoint by `ranks` ranks. Local.
template <class Trainer>
Manifest manifest_of_trainer(Trainer& trainer, int ranks) {
    auto& model = trainer.trained();
    using Model = std::remove_reference_t<decltype(model)>;
    Manifest m;
    m.library = concat({UNISONO_VERSION_MAJOR, ".", UNISONO_VERSION_MINOR, ".", UNISONO_VERSION_PATCH});
    m.world = ranks;
    const TrainingProgress progress = trainer.progress();
    m.updates = progress.updates;
    m.epoch = progress.position.epoch.number();
    m.samples = progress.position.samples;
    m.step_epoch = progress.epoch.number();
    m.seed = progress.seed;
    m.data_size = progress.data_size;
    m.order = order_of(trainer.policies().sampler);
    m.scales = std::remove_cvref_t<decltype(trainer.policies().scaling)>::scales;
    m.loss_scale = trainer.loss_scale().scale;
    m.good_updates = trainer.loss_scale().good_updates;
    m.grid_exponents.assign(trainer.state().grid_exponents().begin(), trainer.state().grid_exponents().end());
    m.policies = trainer.describe();
    using T = typename std::remove_cvref_t<Trainer>::Element;
    if constexpr (part_of_whole<Model>) {
        for (const auto& [name, count] : model.whole_parameters())
            m.parameters.push_back(
                {.name = name, .type = std::string(tensor_type(element_type_of<T>)), .shape = {count}});
    } else if constexpr (requires { model.parameters(); }) m.parameters = tensors_of(model.parameters(), "parameter");
    else
        for (const ParameterShape& one : trainer.layout().shapes())
            m.parameters.push_back({.name = concat({"parameter_", m.parameters.size()}),
                                    .type = std::string(tensor_type(element_type_of<T>)),
                                    .shape = {one.count}});
    if constexpr (!part_of_whole<Model> && requires { std::begin(model.parameter_names()); })
        give_names(m.parameters, model.parameter_names(), "parameter_names");
    if constexpr (requires { model.parameter_shapes(); }) give_shapes(m.parameters, model.parameter_shapes());
    if constexpr (requires { model.buffers(); }) {
        m.buffers = tensors_of(model.buffers(), "buffer");
        if constexpr (requires { std::begin(model.buffer_names()); })
            give_names(m.buffers, model.buffer_names(), "buffer_names");
    }
    m.optimizer = trainer.policies().optimizer.name;
    m.arrays = array_names(trainer);
    if constexpr (goes_alone<Trainer>) m.synchronisations = trainer.state().update_run().synchronisations();
    return m;
}

/// Returns true if every rank updates all parameters, and so has all of the optimizer's state;
/// false if each element has one owner. Collective. \throws error refused, on all ranks: neither
/// holds
template <class Trainer>
bool all_own_all(Trainer& trainer) {
    auto& world = trainer.world();
    const std::uint64_t count = trainer.layout().count();
    std::uint64_t owned = 0;
    for (const Slice& slice : trainer.state().owned()) owned += slice.count;
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, std::span<const std::uint64_t>(&owned, 1), all, Caller::save);
    if (std::all_of(all.begin(), all.end(), [&](std::uint64_t one) { return one == count; })) return true;
    std::uint64_t sum = 0;
    for (const std::uint64_t one : all) sum += one;
    if (sum == count) return false;
    throw agreed_error(
        Fault{.code = ErrorCode::refused,
              .operation = "save",
              .message = concat({"the ranks together own ", sum, " elements of ", count,
                                 "; expected one owner for each element, or that every rank owns all of them"})});
}

/// The rank that writes a parameter that all ranks hold. It depends on the position of the
/// parameter's middle in the flat order.
inline int writer_of(const Layout& layout, std::size_t parameter, int world) {
    const std::uint64_t middle = layout.start_of(parameter) + layout.shapes()[parameter].count / 2;
    const auto rank = static_cast<std::uint64_t>(static_cast<double>(middle) / static_cast<double>(layout.count()) *
                                                 static_cast<double>(world));
    return static_cast<int>(std::min<std::uint64_t>(rank, static_cast<std::uint64_t>(world) - 1));
}

/// The intersection of `slice` with a parameter, in the flat order.
inline Slice part_of_parameter(const Layout& layout, std::size_t parameter, const Slice& slice) {
    const std::size_t begin = std::max(layout.start_of(parameter), slice.first);
    const std::size_t end = std::min(layout.start_of(parameter) + layout.shapes()[parameter].count, slice.end());
    return {begin, begin < end ? end - begin : 0};
}

/// Calls visit(parameter, elements, at) for the elements of each parameter that this rank updates.
/// `at`: their index among all elements that this rank updates.
template <class Trainer, class Visit>
void visit_owned(Trainer& trainer, Visit&& visit) {
    const Layout& layout = trainer.layout();
    std::size_t at = 0;
    for (const Slice& slice : trainer.state().owned()) {
        std::size_t p = slice.count == 0 ? layout.parameters() : layout.element_at(slice.first).parameter;
        for (; p < layout.parameters() && layout.start_of(p) < slice.end(); ++p) {
            const Slice part = part_of_parameter(layout, p, slice);
            if (part.count != 0) visit(p, part, at + (part.first - slice.first));
        }
        at += slice.count;
    }
}
/// Returns the tensor of a part of a parameter. Its name contains the part's range.
inline Tensor part_of_tensor(Tensor tensor, const Layout& layout, std::size_t p, const Slice& part) {
    if (part.count == layout.shapes()[p].count) return tensor;
    const std::size_t first = part.first - layout.start_of(p);
    tensor.name += concat({"[", first, ":", first + part.count, "]"});
    tensor.shape = {part.count};
    return tensor;
}

/// Checks that all ranks together write each number of a model in stages once. Collective over
/// `everyone`. \throws error refused, on all ranks: a part is missing, or exists twice
template <class Trainer, class World>
void check_parts(Trainer& trainer, World& everyone, const Manifest& whole, bool replicated) {
    const Layout& layout = trainer.layout();
    std::vector<std::int64_t> written(whole.parameters.size());
    for (std::size_t p = 0; p < layout.parameters(); ++p)
        if (replicated && writer_of(layout, p, trainer.world().size()) == trainer.world().rank())
            written[place_of(trainer.trained(), p)] += static_cast<std::int64_t>(layout.shapes()[p].count);
    if (!replicated)
        visit_owned(trainer, [&](std::size_t p, const Slice& part, std::size_t) {
            written[place_of(trainer.trained(), p)] += static_cast<std::int64_t>(part.count);
        });
    all_reduce(everyone, written);
    constexpr std::string_view expected = "; expected each once: by all ranks of the mesh, as save(trainer, "
                                          "mesh.world()), and of no layer that is itself spread over ranks";
    for (std::size_t i = 0; i < written.size(); ++i) {
        if (static_cast<std::uint64_t>(written[i]) == element_count(whole.parameters[i])) continue;
        throw agreed_error(
            Fault{.code = ErrorCode::refused,
                  .operation = "save",
                  .message = concat({"the ranks would write ", written[i], " elements of \"", whole.parameters[i].name,
                                     "\", which has ", element_count(whole.parameters[i]), expected})});
    }
}

/// The tensors that this rank writes: parameters and buffers, or, with `optimizer`, the optimizer's
/// state.
template <class Trainer>
std::vector<StatePart> own_parts(Trainer& trainer, const Manifest& names, bool replicated, bool optimizer) {
    auto& world = trainer.world();
    const Layout& layout = trainer.layout();
    std::vector<StatePart> parts;
    const auto mine = [&](std::size_t p) { return writer_of(layout, p, world.size()) == world.rank(); };
    if (!optimizer) {
        const auto add = [&](StateKind kind, std::size_t i, const Tensor& tensor, StateMemory memory) {
            parts.push_back(
                {{tensor.name, kind, 0, i, 0, element_count(tensor)}, {tensor, memory.data}, std::move(memory.owner)});
        };
        using T = typename std::remove_cvref_t<Trainer>::Element;
        if constexpr (std::remove_cvref_t<Trainer>::shards_parameters) {
            visit_owned(trainer, [&](std::size_t p, const Slice& part, std::size_t) {
                Tensor tensor = part_of_tensor(names.parameters[p], layout, p, part);
                SavedPart saved{tensor.name, StateKind::parameter, 0, p, part.first - layout.start_of(p), part.count};
                trainer.visit_parameters(part, [&](std::size_t, std::span<const T> values) {
                    parts.push_back({std::move(saved), {std::move(tensor), values.data()}});
                });
            });
        } else {
            for (std::size_t p = 0; p < layout.parameters(); ++p) {
                if (!mine(p)) continue;
                StateMemory memory; // stays empty for a part without elements
                trainer.visit_parameters(
                    {layout.start_of(p), layout.shapes()[p].count},
                    [&](std::size_t, std::span<const T> values) { memory = memory_of_visited(trainer, values); });
                const std::size_t place = place_of(trainer.trained(), p);
                add(StateKind::parameter, place, names.parameters[place], std::move(memory));
            }
        }
        if constexpr (requires { trainer.trained().buffers(); }) {
            std::size_t b = 0;
            for_each_span(trainer.trained().buffers(), [&](auto one) {
                if (world.rank() == 0) add(StateKind::buffer, b, names.buffers[b], memory_of(trainer, one));
                ++b;
            });
        }
        return parts;
    }
    const auto arrays = held_arrays(trainer);
    visit_owned(trainer, [&](std::size_t p, const Slice& part, std::size_t at) {
        const std::size_t place = place_of(trainer.trained(), p);
        for (const auto& one : arrays) {
            if (replicated && !one.own && !mine(p)) continue;
            Tensor tensor = names.parameters[place];
            tensor.name += concat({".", names.arrays[one.index]});
            tensor = part_of_tensor(std::move(tensor), layout, p, part);
            SavedPart saved{tensor.name, StateKind::optimizer, one.index, place, part.first - layout.start_of(p),
                            part.count};
            StateMemory memory = memory_of(trainer, one.values.subspan(at, part.count));
            parts.push_back({std::move(saved), {std::move(tensor), memory.data}, std::move(memory.owner)});
        }
    });
    return parts;
}

} // namespace detail
UNISONO_NAMESPACE_END
