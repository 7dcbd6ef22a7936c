#pragma once

/// \file
/// Checks before training that all ranks have the same model.
///
/// Ranks compare one hash for each list of facts, in one collective. Only if a hash differs do they
/// exchange the list, to name the first difference. What a model does not give, such as names,
/// cannot be compared.

#include "unisono/core/element.hpp"
#include "unisono/core/floating_point.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/process_mark.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/shared_model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The facts of a model that are one number.
enum class ModelNumber : std::uint8_t {
    parameters,
    element,       ///< ElementType of the parameters
    pass_element,  ///< of the passes of a model in units
    gradient_kind, ///< GradientKind
    buffers,
    buffer_element,      ///< ElementType of the buffers
    floating_point_mode, ///< FloatingPointMode of this rank
};
/// The facts that a model has for each parameter or buffer.
enum class ModelList : std::uint8_t { names, sizes, shapes, buffer_names, buffer_sizes };

inline constexpr std::size_t model_numbers = 7;
inline constexpr std::size_t model_lists = 5;

/// The facts of this rank's model, without its type.
class ModelFacts {
public:
    /// `flat`: the model's parameters in flat order.
    template <class Model, class Flat>
    ModelFacts(Model& model, const Flat& flat) : model_(&model), text_(&text_of<Model>) {
        using Element = typename Flat::Element;
        number(ModelNumber::element) = static_cast<std::uint64_t>(element_type_of<Element>);
        number(ModelNumber::floating_point_mode) = static_cast<std::uint64_t>(detail::floating_point_mode());
        number(ModelNumber::gradient_kind) = static_cast<std::uint64_t>(gradient_kind_of<Model>);
        if constexpr (unit_model<Model>)
            number(ModelNumber::pass_element) = static_cast<std::uint64_t>(element_type_of<pass_element_t<Model>>);
        for (const ParameterShape& shape : flat.layout().shapes()) list(ModelList::sizes).push_back(shape.count);
        number(ModelNumber::parameters) = list(ModelList::sizes).size();
        each_text(model, ModelList::names, [&](const std::string& text) { add(ModelList::names, text); });
        each_text(model, ModelList::shapes, [&](const std::string& text) { add(ModelList::shapes, text); });
        if constexpr (requires { model.buffers(); }) {
            for_each_span(model.buffers(), [&](auto one) {
                using Kept = std::remove_cv_t<typename decltype(one)::element_type>;
                number(ModelNumber::buffer_element) = static_cast<std::uint64_t>(element_type_of<Kept>);
                list(ModelList::buffer_sizes).push_back(one.size());
            });
            number(ModelNumber::buffers) = list(ModelList::buffer_sizes).size();
            each_text(model, ModelList::buffer_names,
                      [&](const std::string& text) { add(ModelList::buffer_names, text); });
        }
    }

    [[nodiscard]] std::uint64_t number(ModelNumber which) const { return numbers_[static_cast<std::size_t>(which)]; }
    [[nodiscard]] const List<std::uint64_t>& list(ModelList which) const {
        return lists_[static_cast<std::size_t>(which)];
    }
    /// A hash of a list; 0: the model does not give it.
    [[nodiscard]] std::uint64_t hash(ModelList which) const {
        const List<std::uint64_t>& all = list(which);
        return all.empty() ? 0 : hash_bytes(all.data(), all.size() * sizeof(std::uint64_t)) | 1;
    }
    /// An entry of a list as text.
    [[nodiscard]] std::string text(ModelList which, std::size_t index) const { return text_(model_, which, index); }

private:
    std::uint64_t& number(ModelNumber which) { return numbers_[static_cast<std::size_t>(which)]; }
    List<std::uint64_t>& list(ModelList which) { return lists_[static_cast<std::size_t>(which)]; }
    void add(ModelList which, const std::string& text) {
        list(which).push_back(fnv1a(fnv_basis, std::string_view(text)));
    }

    template <class Model, class Visit>
    static void each_text(Model& model, ModelList which, Visit&& visit) {
        const auto each_name = [&](auto&& names) {
            for (auto it = std::begin(names); it != std::end(names); ++it) visit(concat({*it}));
        };
        if constexpr (requires { std::begin(model.parameter_names()); })
            if (which == ModelList::names) each_name(model.parameter_names());
        if constexpr (requires { std::begin(model.buffer_names()); })
            if (which == ModelList::buffer_names) each_name(model.buffer_names());
        if constexpr (requires { std::begin(*std::begin(model.parameter_shapes())); }) {
            if (which != ModelList::shapes) return;
            for (const auto& shape : model.parameter_shapes()) {
                std::string text = "(";
                for (const auto size : shape) text += concat({text.size() == 1 ? "" : ", ", size});
                visit(concat({text, ")"}));
            }
        }
    }
    template <class Model>
    static std::string text_of(void* model, ModelList which, std::size_t index) {
        std::string found;
        std::size_t at = 0;
        each_text(*static_cast<Model*>(model), which, [&](const std::string& text) {
            if (at++ == index) found = text;
        });
        return found;
    }

    void* model_;
    std::string (*text_)(void*, ModelList, std::size_t);
    std::array<std::uint64_t, model_numbers> numbers_ = {};
    std::array<List<std::uint64_t>, model_lists> lists_;
};

/// The position of a list's hash among the words that ranks compare.
constexpr std::size_t word_of(ModelList which) { return model_numbers + static_cast<std::size_t>(which); }

/// Checks that all ranks have the same model, in the same order, and that no two of them share its
/// memory. Collective. \throws error, on all ranks: mismatch, which names two ranks and the first
/// difference; bad_input: two ranks are threads that share a model
void agree_on_model(GroupCore& world, const ModelFacts& mine, List<ModelMemory>& memory, const ParameterLabels& labels);
template <class Model, class Flat>
[[gnu::cold]] void agree_on_model(GroupCore& world, Model& model, const Flat& flat) {
    if (world.size() == 1) return;
    agree_on_model(world, ModelFacts(model, flat), MemoryOfModel(model, world.rank()).all(), ParameterLabels(model));
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Says that a number differs.
[[gnu::cold]] UNISONO_DEFINITION std::string text_of_number(ModelNumber which, int rank, std::uint64_t found, int first,
                                                            std::uint64_t expected) {
    const auto element = [](std::uint64_t code) { return name_of(static_cast<ElementType>(code)); };
    const auto kind = [](std::uint64_t code) { return name_of(static_cast<GradientKind>(code)); };
    switch (which) {
    case ModelNumber::parameters:
        return concat({"rank ", rank, "'s model has ", found, " parameters and rank ", first, "'s ", expected});
    case ModelNumber::buffers:
        return concat({"rank ", rank, "'s model has ", found, " buffers and rank ", first, "'s ", expected});
    case ModelNumber::element:
        return concat(
            {"rank ", rank, "'s parameters are ", element(found), " and rank ", first, "'s ", element(expected)});
    case ModelNumber::buffer_element:
        return concat(
            {"rank ", rank, "'s buffers are ", element(found), " and rank ", first, "'s ", element(expected)});
    case ModelNumber::pass_element:
        return concat({"rank ", rank, "'s passes compute with ", element(found), " and rank ", first, "'s with ",
                       element(expected)});
    case ModelNumber::floating_point_mode:
        return different_modes(concat({"rank ", rank}), static_cast<FloatingPointMode>(found), concat({"rank ", first}),
                               static_cast<FloatingPointMode>(expected));
    case ModelNumber::gradient_kind: break;
    }
    return concat({"the gradient_kind of rank ", rank, "'s model is ", kind(found), " and that of rank ", first, "'s ",
                   kind(expected)});
}

/// Says that an entry of a list differs. A text is empty if the rank has no such entry.
[[gnu::cold]] UNISONO_DEFINITION std::string text_of_entry(ModelList which, std::size_t index, const std::string& name,
                                                           int rank, const std::string& found, int first,
                                                           const std::string& expected) {
    const bool buffer = which == ModelList::buffer_names || which == ModelList::buffer_sizes;
    const std::string label = concat({buffer ? "buffer " : "parameter ", index});
    const std::string named = name.empty() ? label : concat({label, " (", name, ")"});
    switch (which) {
    case ModelList::names:
    case ModelList::buffer_names: {
        const std::string none = "without a name";
        return concat({label, " is ", found.empty() ? none : found, " on rank ", rank, " and ",
                       expected.empty() ? none : expected, " on rank ", first, "; expected the same ",
                       buffer ? "buffers" : "parameters", " in the same order on all ranks"});
    }
    case ModelList::shapes:
        return concat({named, " has the shape ", found, " on rank ", rank, " and ", expected, " on rank ", first});
    case ModelList::sizes:
    case ModelList::buffer_sizes: break;
    }
    return concat({named, " has ", found, " elements on rank ", rank, " and ", expected, " on rank ", first});
}

/// The words of `root`'s list, on all ranks. Collective.
[[gnu::cold]] UNISONO_DEFINITION List<std::uint64_t> list_of_rank(GroupCore& world, const List<std::uint64_t>& mine,
                                                                  int root) {
    std::array<std::uint64_t, 1> length = {mine.size()};
    broadcast_bytes(world, std::as_writable_bytes(std::span(length)), root);
    List<std::uint64_t> words = mine;
    words.resize(length[0]);
    if (!words.empty()) broadcast_bytes(world, std::as_writable_bytes(std::span(words.data(), words.size())), root);
    return words;
}

/// Says where the lists of two ranks first differ. Collective, after all ranks found that they do.
[[gnu::cold]] UNISONO_DEFINITION std::string first_difference(GroupCore& world, const ModelFacts& mine, ModelList which,
                                                              int rank, int first) {
    const List<std::uint64_t> found = list_of_rank(world, mine.list(which), rank);
    const List<std::uint64_t> expected = list_of_rank(world, mine.list(which), first);
    std::size_t at = 0;
    while (at < found.size() && at < expected.size() && found[at] == expected[at]) ++at;
    const bool sizes = which == ModelList::sizes || which == ModelList::buffer_sizes;
    const auto text_on = [&](const List<std::uint64_t>& words, int root) {
        std::string text;
        if (sizes && at < words.size()) return concat({words[at]});
        if (world.rank() == root && at < words.size())
            text = which == ModelList::shapes ? mine.text(which, at) : detail::quoted(mine.text(which, at));
        broadcast_text(world, text, root);
        return text;
    };
    std::string name;
    if (world.rank() == first) {
        if (which == ModelList::sizes || which == ModelList::shapes) name = mine.text(ModelList::names, at);
        if (which == ModelList::buffer_sizes) name = mine.text(ModelList::buffer_names, at);
    }
    broadcast_text(world, name, first);
    const std::string his = text_on(found, rank);
    const std::string ours = text_on(expected, first);
    return text_of_entry(which, at, name, world.world_rank(rank), his, world.world_rank(first), ours);
}

[[gnu::cold]] UNISONO_DEFINITION void agree_on_model(GroupCore& world, const ModelFacts& mine,
                                                     List<ModelMemory>& memory, const ParameterLabels& labels) {
    if (world.size() == 1) return;
    constexpr std::size_t mark = model_numbers + model_lists, fields = mark + 3;
    const auto ranks = static_cast<std::size_t>(world.size());
    ShownMemory shown(std::move(memory));
    const ProcessMark process;
    std::array<std::uint64_t, fields> words = {};
    for (std::size_t i = 0; i < model_numbers; ++i) words[i] = mine.number(static_cast<ModelNumber>(i));
    for (std::size_t i = 0; i < model_lists; ++i)
        words[word_of(static_cast<ModelList>(i))] = mine.hash(static_cast<ModelList>(i));
    words[mark] = process.pid;
    words[mark + 1] = process.chance;
    words[mark + 2] = shown.address();
    List<std::uint64_t> all(fields * ranks);
    gather_words(world, words, all, Caller::trainer);
    const auto word = [&](std::size_t rank, std::size_t field) { return all[rank * fields + field]; };

    List<ProcessMark> processes(ranks, process);
    List<std::uint64_t> addresses;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        processes[rank].pid = word(rank, mark);
        processes[rank].chance = word(rank, mark + 1);
        addresses.push_back(word(rank, mark + 2));
    }
    const SharedMemoryFound shares = find_shared_memory(world, labels, shown, processes, addresses);

    for (std::size_t rank = 1; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < model_numbers; ++i) {
            if (word(rank, i) == word(0, i)) continue;
            const auto which = static_cast<ModelNumber>(i);
            const int blame = world.world_rank(static_cast<int>(rank));
            const int first = world.world_rank(0);
            std::string text = text_of_number(which, blame, word(rank, i), first, word(0, i));
            const ModelList names = which == ModelNumber::buffers ? ModelList::buffer_names : ModelList::names;
            const bool counts = which == ModelNumber::parameters || which == ModelNumber::buffers;
            if (counts && word(rank, word_of(names)) != 0 && word(0, word_of(names)) != 0)
                text += concat({"; ", first_difference(world, mine, names, static_cast<int>(rank), 0)});
            throw_mismatch("Trainer", blame, first, text);
        }
    }
    for (std::size_t i = 0; i < model_lists; ++i) {
        const auto which = static_cast<ModelList>(i);
        std::size_t first = 0; // that gives the list
        while (first < ranks && word(first, word_of(which)) == 0) ++first;
        for (std::size_t rank = first + 1; rank < ranks; ++rank)
            if (word(rank, word_of(which)) != 0 && word(rank, word_of(which)) != word(first, word_of(which)))
                throw_mismatch("Trainer", world.world_rank(static_cast<int>(rank)),
                               world.world_rank(static_cast<int>(first)),
                               first_difference(world, mine, which, static_cast<int>(rank), static_cast<int>(first)));
    }
    if (!shares.text.empty())
        throw agreed_error(Fault{.code = ErrorCode::bad_input,
                                 .rank = shares.rank,
                                 .peer = shares.peer,
                                 .operation = "Trainer",
                                 .sequence = 0,
                                 .message = shares.text});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
