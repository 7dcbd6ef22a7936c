#pragma once

/// \file
/// Finds ranks of a group that are threads of one process and share a model, which each of them
/// would write. It does not find ranks of different groups that do.

#include "unisono/collective/rooted.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/process_mark.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/agreement.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory that a model writes.
struct ModelMemory {
    enum class Of : std::uint8_t { parameter, gradient, buffer, object };

    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint32_t index = 0; ///< of the parameter or buffer
    int rank = 0;            ///< in the group
    Of of = Of::object;
    bool wrapped = false; ///< by the model that is trained
};

/// Collects the memory of this rank's model, and of the models that it wraps.
class MemoryOfModel {
public:
    template <class Model>
    MemoryOfModel(Model& model, int rank) : rank_(rank) {
        add_all_of(model, false);
    }
    [[nodiscard]] List<ModelMemory>& all() { return all_; }

private:
    void add(ModelMemory::Of of, std::size_t index, const void* data, std::size_t bytes, bool wrapped);
    template <class Model>
    void add_all_of(Model& model, bool wrapped) {
        const auto add_all = [&](ModelMemory::Of of, auto&& spans) {
            std::size_t index = 0;
            for_each_span(spans,
                          [&](auto one) { add(of, index++, one.data(), one.size() * sizeof(*one.data()), wrapped); });
        };
        if constexpr (requires { model.buffers(); }) add_all(ModelMemory::Of::buffer, model.buffers());
        if constexpr (unisono::model<Model>) {
            add_all(ModelMemory::Of::parameter, model.parameters());
            add_all(ModelMemory::Of::gradient, model.gradients());
        } else if constexpr (!std::is_empty_v<Model> && !std::is_const_v<Model>) {
            // Of a model with parameters the object says nothing: they may be each thread's.
            add(ModelMemory::Of::object, 0, std::addressof(model), sizeof(Model), wrapped);
        }
        if constexpr (requires { requires std::is_lvalue_reference_v<decltype(model.wrapped())>; }) {
            using Wrapped = std::remove_reference_t<decltype(model.wrapped())>;
            if constexpr (unisono::model<Wrapped> || unit_model<Wrapped>) add_all_of(model.wrapped(), true);
        }
    }

    int rank_;
    List<ModelMemory> all_;
};

/// The memory of this rank's model, where the other ranks of its process read it.
class ShownMemory {
public:
    explicit ShownMemory(List<ModelMemory> memory) : shown_(new Shown{std::move(memory), nullptr}) {}
    ShownMemory(const ShownMemory&) = delete;
    ShownMemory& operator=(const ShownMemory&) = delete;
    /// Other ranks may still read it unless `end` was called. It is then kept for ever.
    ~ShownMemory();

    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(shown_); }
    /// The memory that a rank of this process shows at its address.
    static const List<ModelMemory>& at(std::uint64_t address) {
        return reinterpret_cast<const Shown*>(address)->memory; // NOLINT(performance-no-int-to-ptr): a rank sent it
    }
    /// Called when all ranks have read it.
    void end() { delete std::exchange(shown_, nullptr); }

private:
    struct Shown {
        List<ModelMemory> memory;
        Shown* next;
    };
    Shown* shown_;
};

/// Copies the text of rank `root` to all ranks. Collective.
void broadcast_text(GroupCore& world, std::string& text, int root);

/// Two ranks that are threads of one process and share memory, and the text that says so.
struct SharedMemoryFound {
    std::string text; ///< empty: there are none
    int rank = 0;
    int peer = 0;
};

/// Looks for ranks of one process that share memory. `process`: a mark of each rank's process.
/// Collective if any two are equal.
SharedMemoryFound find_shared_memory(GroupCore& world, const ParameterLabels& labels, ShownMemory& shown,
                                     const List<ProcessMark>& process, const List<std::uint64_t>& addresses);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include <cstdlib>

UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void broadcast_text(GroupCore& world, std::string& text, int root) {
    if (world.size() == 1) return;
    std::array<std::uint64_t, 1> length = {text.size()};
    broadcast_bytes(world, std::as_writable_bytes(std::span(length)), root);
    text.resize(length[0]);
    if (!text.empty()) broadcast_bytes(world, std::as_writable_bytes(std::span(text.data(), text.size())), root);
}

/// The first overlap in the order of addresses. If a range overlaps one of another rank, it also
/// overlaps the earlier range that ends last: that one is of another rank, or would have been found
/// to overlap.
[[gnu::cold]] UNISONO_DEFINITION std::pair<ModelMemory, ModelMemory> first_overlap(List<ModelMemory>& all) {
    const auto order = [](const void* left, const void* right) { // std::sort takes a tenth of a second to compile
        const auto& a = *static_cast<const ModelMemory*>(left);
        const auto& b = *static_cast<const ModelMemory*>(right);
        return a.begin != b.begin ? (a.begin < b.begin ? -1 : 1) : a.rank - b.rank;
    };
    if (!all.empty()) ::qsort(all.data(), all.size(), sizeof(ModelMemory), order);
    const ModelMemory* last = nullptr;
    for (const ModelMemory& one : all) {
        if (last != nullptr && one.begin < last->end && one.rank != last->rank)
            return last->rank < one.rank ? std::pair(*last, one) : std::pair(one, *last);
        if (last == nullptr || one.end > last->end) last = &one;
    }
    return {};
}

/// Two ranges that overlap and belong to different ranks; two empty ones if none do.
[[gnu::cold]] UNISONO_DEFINITION std::pair<ModelMemory, ModelMemory> shared_between_ranks(List<ModelMemory> all) {
    List<ModelMemory> parameters; // the clearest, so the first
    for (const ModelMemory& one : all)
        if (one.of == ModelMemory::Of::parameter) parameters.push_back(one);
    const auto found = first_overlap(parameters);
    return found.first.end != 0 ? found : first_overlap(all);
}

/// Says that two ranks share memory.
[[gnu::cold]] UNISONO_DEFINITION std::string text_of_shared(const ModelMemory& one, const ModelMemory& other,
                                                            const ParameterLabels& labels, int rank, int peer) {
    const auto text = [&](const ModelMemory& memory) {
        using Of = ModelMemory::Of;
        if (memory.of == Of::object) return std::string(memory.wrapped ? "the wrapped model" : "the model");
        const std::string label = memory.of == Of::buffer ? concat({"buffer ", memory.index})
                                  : memory.wrapped        ? concat({"parameter ", memory.index})
                                                          : labels[memory.index];
        return concat({memory.of == Of::gradient ? "the gradient of " : "", label,
                       memory.wrapped ? " of the wrapped model" : ""});
    };
    return concat({"ranks ", peer, " and ", rank, " are threads of one process and share a model: ", text(one),
                   " of rank ", peer, " and ", text(other), " of rank ", rank,
                   " are in the same memory; expected a model of its own on each rank, for instance one that is made "
                   "within the function that un::run calls"});
}

[[gnu::cold]] UNISONO_DEFINITION SharedMemoryFound find_shared_memory(GroupCore& world, const ParameterLabels& labels,
                                                                      ShownMemory& shown,
                                                                      const List<ProcessMark>& process,
                                                                      const List<std::uint64_t>& addresses) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto me = static_cast<std::size_t>(world.rank());
    const auto first_with = [&](std::size_t rank) { // the first rank of the same process
        std::size_t first = 0;
        while (!(process[first] == process[rank])) ++first;
        return first;
    };
    bool any = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) any = any || first_with(rank) != rank;
    List<ModelMemory> near;
    for (std::size_t rank = 0; rank < ranks && first_with(me) == me; ++rank) { // it looks for all of them
        if (!(process[rank] == process[me])) continue;
        const List<ModelMemory>& there = ShownMemory::at(addresses[rank]);
        near.append(there);
    }
    SharedMemoryFound found;
    if (!any) return shown.end(), found;
    const auto [one, other] = shared_between_ranks(std::move(near));
    const bool here = one.end != 0;
    std::array<std::uint64_t, 3> word = {here ? 1u : 0u, static_cast<std::uint64_t>(one.rank),
                                         static_cast<std::uint64_t>(other.rank)};
    List<std::uint64_t> all(word.size() * ranks);
    gather_words(world, word, all, Caller::trainer);
    shown.end();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (all[rank * word.size()] == 0) continue;
        found.peer = world.world_rank(static_cast<int>(all[rank * word.size() + 1]));
        found.rank = world.world_rank(static_cast<int>(all[rank * word.size() + 2]));
        if (rank == me) found.text = text_of_shared(one, other, labels, found.rank, found.peer);
        broadcast_text(world, found.text, static_cast<int>(rank));
        break;
    }
    return found;
}

[[gnu::cold]] UNISONO_DEFINITION void MemoryOfModel::add(ModelMemory::Of of, std::size_t index, const void* data,
                                                         std::size_t bytes, bool wrapped) {
    if (bytes == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    all_.push_back({begin, begin + bytes, static_cast<std::uint32_t>(index), rank_, of, wrapped});
}

[[gnu::cold]] UNISONO_DEFINITION ShownMemory::~ShownMemory() {
    static std::atomic<Shown*> kept = nullptr;
    if (shown_ == nullptr) return;
    shown_->next = kept.load();
    while (!kept.compare_exchange_weak(shown_->next, shown_)) {
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
