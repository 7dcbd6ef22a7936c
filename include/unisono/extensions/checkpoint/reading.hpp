#pragma once

/// \file
/// Reads a checkpoint, and checks everything before it uses anything.

#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/checkpoint/file.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"
#include "unisono/extensions/checkpoint/safetensors.hpp"
#include "unisono/extensions/checkpoint/state.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Checks that the saved training belongs to this trainer, and can continue.
void check_fits(const Manifest& saved, const Manifest& here, const std::string& where);

/// Checks that the files contain each number of the state exactly once.
void check_coverage(const Manifest& m, const std::string& where);

/// As `file.find(name)`. Quick if the tensor is the one at `index`, as in the library's own files.
const Tensor* find_near(const TensorFile& file, std::string_view name, std::size_t index);

/// Checks that a file has the manifest's length and checksum, and contains these tensors and no
/// others.
void check_file(const Manifest& m, const SavedFile& saved, const Descriptor& folder);

/// The numbers of this rank's state: read from the files, and then written to the trainer.
template <class Trainer>
class PendingState {
public:
    using T = typename Trainer::Element;

    PendingState(Trainer& trainer, const Manifest& m, const Descriptor& folder)
        : trainer_(&trainer), layout_(&trainer.layout()) {
        std::size_t owned = 0;
        for (const Slice& slice : trainer.state().owned()) {
            if (slice.count != 0) owned_.push_back({slice, owned});
            owned += slice.count;
        }
        here_.assign(m.parameters.size(), Layout::none);
        for (std::size_t p = 0; p < layout_->parameters(); ++p) here_[place_of(trainer.trained(), p)] = p;
        parameters_.resize(by_slices ? owned : layout_->count());
        held_.assign(m.arrays.size(), Layout::none);
        for (const auto& one : held_arrays(trainer)) {
            held_[one.index] = arrays_.size();
            arrays_.emplace_back(owned);
        }
        if constexpr (has_buffers)
            for_each_span(trainer.trained().buffers(), [&](auto one) {
                using E = std::remove_const_t<typename decltype(one)::element_type>;
                buffers_.push_back({element_type_of<E>, std::vector<char>(one.size_bytes())});
            });
        for (const SavedFile& file : m.files) {
            const bool used = std::any_of(file.parts.begin(), file.parts.end(), [&](const SavedPart& part) {
                bool any = part.kind == StateKind::buffer ||
                           (part.kind == StateKind::parameter && !by_slices && here_[part.index] != Layout::none);
                if (!any) each_overlap(part, [&](auto&&...) { any = true; });
                return any;
            });
            if (used) read(TensorFile(OldFile(folder, file.name)), file);
        }
    }

    /// Writes the numbers to the trainer. Cannot fail.
    void apply() {
        std::size_t at = 0;
        const auto write = [&](auto one) {
            write_values(*trainer_, one, parameters_.data() + at);
            at += one.size();
        };
        if constexpr (requires(Model& model) { model.parameters(); })
            for_each_span(trainer_->trained().parameters(), write);
        else trainer_->state().rewrite_parameters([&](std::size_t, auto one) { write(one); });
        std::size_t a = 0;
        for (const auto& one : held_arrays(*trainer_)) write_values(*trainer_, one.values, arrays_[a++].data());
        if constexpr (has_buffers) {
            std::size_t b = 0;
            for_each_span(trainer_->trained().buffers(), [&](auto one) {
                using E = typename decltype(one)::element_type;
                if (!one.empty()) write_values(*trainer_, one, reinterpret_cast<const E*>(buffers_[b].bytes.data()));
                ++b;
            });
        }
    }

private:
    using Model = std::remove_reference_t<decltype(std::declval<Trainer&>().trained())>;
    /// This rank holds only the parameters that it updates.
    static constexpr bool by_slices = Trainer::shards_parameters;
    static constexpr bool has_buffers = requires(Model& model) { model.buffers(); };
    struct OwnedSlice {
        Slice slice = {};
        std::size_t at = 0; ///< the index of its first element in this rank's arrays
    };
    struct Buffer {
        ElementType type = ElementType::opaque;
        std::vector<char> bytes = {};
    };

    /// The index of a part's first element in this rank's flat order.
    [[nodiscard]] std::size_t start_of(const SavedPart& part) const {
        return layout_->start_of(here_[part.index]) + static_cast<std::size_t>(part.first);
    }
    /// Calls visit(flat, count, at) for the elements of a saved part that are in this rank's
    /// slices. `at`: their index in this rank's arrays.
    template <class Visit>
    void each_overlap(const SavedPart& part, Visit&& visit) const {
        if (here_[part.index] == Layout::none) return; // a parameter of another stage of the model
        if (part.kind == StateKind::optimizer && held_[part.array] == Layout::none) return; // another rank's array
        const std::size_t begin = start_of(part);
        const std::size_t end = begin + static_cast<std::size_t>(part.count);
        auto one = std::partition_point(owned_.begin(), owned_.end(),
                                        [&](const OwnedSlice& owned) { return owned.slice.end() <= begin; });
        for (; one != owned_.end() && one->slice.first < end; ++one) {
            const std::size_t from = std::max(begin, one->slice.first), to = std::min(end, one->slice.end());
            if (from < to) visit(from, to - from, one->at + from - one->slice.first);
        }
    }

    void read(const TensorFile& file, const SavedFile& saved) {
        ReadAhead ahead(file.file());
        const auto copy = [&](const Tensor& tensor, std::span<T> to, std::uint64_t first = 0) {
            ahead.read(file.position_of(tensor, element_type_of<T>, to.size(), first), to.data(), to.size_bytes());
        };
        std::vector<std::pair<const Tensor*, const SavedPart*>> ordered; // as they are in the file
        for (std::size_t i = 0; i < saved.parts.size(); ++i) {
            if (saved.parts[i].count == 0) continue;
            const Tensor* const tensor = find_near(file, saved.parts[i].tensor, i);
            if (tensor == nullptr) refuse_input({"'", file.file().path(), "' has changed while it was read"});
            ordered.emplace_back(tensor, &saved.parts[i]);
        }
        std::sort(ordered.begin(), ordered.end()); // as `file.tensors()`
        for (const auto& one : ordered) {
            const Tensor* const tensor = one.first;
            const SavedPart& part = *one.second;
            if (part.kind == StateKind::parameter && !by_slices) {
                if (here_[part.index] == Layout::none) continue;
                copy(*tensor, std::span(parameters_).subspan(start_of(part), static_cast<std::size_t>(part.count)));
            } else if (part.kind != StateKind::buffer) {
                if (part.kind == StateKind::optimizer && held_[part.array] == Layout::none) continue;
                std::vector<T>& to = part.kind == StateKind::parameter ? parameters_ : arrays_[held_[part.array]];
                each_overlap(part, [&](std::size_t flat, std::size_t count, std::size_t at) {
                    copy(*tensor, std::span(to).subspan(at, count), flat - start_of(part));
                });
            } else if constexpr (has_buffers) {
                Buffer& to = buffers_[part.index];
                const std::uint64_t each = tensor_element_bytes(tensor->type);
                ahead.read(file.position_of(*tensor, to.type, part.count), to.bytes.data() + part.first * each,
                           part.count * each);
            }
        }
    }

    Trainer* trainer_;
    const Layout* layout_;
    std::vector<OwnedSlice> owned_; ///< in flat order, none empty
    std::vector<std::size_t> here_; ///< this rank's parameter for each saved parameter
    std::vector<std::size_t> held_; ///< this rank's array for each saved array
    std::vector<T> parameters_;
    std::vector<std::vector<T>> arrays_;
    std::vector<Buffer> buffers_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/extensions/checkpoint/checksum.hpp"

#include <iterator>
#include <tuple>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void check_tensors(const std::vector<Tensor>& saved, const std::vector<Tensor>& here, std::string_view what,
                          const std::string& where) {
    if (saved.size() != here.size())
        refuse_input({where, ": found ", saved.size(), " ", what, "s; expected ", here.size(), ", as the model has"});
    for (std::size_t i = 0; i < saved.size(); ++i) {
        const Tensor &a = saved[i], &b = here[i];
        const auto text = [](const Tensor& one) {
            return concat({one.type, " ", json_array(one.shape, [](std::uint64_t n) { return std::to_string(n); })});
        };
        const bool flat = a.shape.size() == 1 || b.shape.size() == 1; // the model may have declared shapes since
        if (a.name != b.name)
            refuse_input(
                {where, ": found ", what, " ", i, " with the name \"", a.name, "\"; expected \"", b.name, "\""});
        if (a.type != b.type || element_count(a) != element_count(b) || (!flat && a.shape != b.shape))
            refuse_input({where, ": found ", what, " \"", a.name, "\" of ", text(a), "; expected ", text(b),
                          ", as the model has"});
    }
}

/// True for two samplers that deal out samples in the same order, if both shuffle or both do not. A
/// sampler of the program's own may have another order.
inline bool deal_alike(const SavedOrder& a, const SavedOrder& b) {
    constexpr std::string_view own[] = {"DistributedSampler", "InterleavedSampler", "ScatterSampler",
                                        "SequentialSampler"};
    const auto known = [&](const SavedOrder& one) {
        return std::find(std::begin(own), std::end(own), one.sampler) != std::end(own);
    };
    return a.sampler == b.sampler || (known(a) && known(b));
}

UNISONO_DEFINITION void check_fits(const Manifest& saved, const Manifest& here, const std::string& where) {
    check_tensors(saved.parameters, here.parameters, "parameter", where);
    check_tensors(saved.buffers, here.buffers, "buffer", where);
    if (saved.optimizer != here.optimizer || saved.arrays != here.arrays) {
        const auto text = [](const Manifest& m) {
            return concat({m.optimizer, " ",
                           json_array(
                               m.arrays, [](const std::string& one) { return one; }, ", ")});
        };
        refuse_input({where, ": found the optimizer's state of ", text(saved), "; expected that of ", text(here)});
    }
    if (!saved.grid_exponents.empty() && saved.grid_exponents.size() != saved.parameters.size())
        refuse_input({where, ": found ", saved.grid_exponents.size(), " grid_exponents; expected none or ",
                      saved.parameters.size()});
    const auto text = [](const SavedOrder& one) {
        return concat(
            {"seed ", one.seed, one.shuffle ? ", shuffled" : ", as stored", one.drop_last ? ", without the last" : ""});
    };
    if (saved.samples != 0 && (text(saved.order) != text(here.order) || !deal_alike(saved.order, here.order)))
        refuse_input({where, ": its position is sample ", saved.samples, " of epoch ", saved.epoch, " in the order of ",
                      saved.order.sampler, " (", text(saved.order), "); expected the order of this trainer's ",
                      here.order.sampler, " (", text(here.order), ")"});
}

UNISONO_DEFINITION void check_coverage(const Manifest& m, const std::string& where) {
    using Key = std::tuple<StateKind, std::size_t, std::size_t>;
    std::vector<std::pair<Key, std::pair<std::uint64_t, std::uint64_t>>> parts;
    for (const SavedFile& file : m.files) {
        for (const SavedPart& part : file.parts) {
            if (part.count != 0) parts.push_back({{part.kind, part.array, part.index}, {part.first, part.count}});
            else if (part.index >= (part.kind == StateKind::buffer ? m.buffers : m.parameters).size() ||
                     (part.kind == StateKind::optimizer && part.array >= m.arrays.size()))
                refuse_input({where, ": a file has an empty part of ", name_of(part.kind), " ", part.index, ", array ",
                              part.array, ", which this state does not have"});
        }
    }
    std::sort(parts.begin(), parts.end());
    std::size_t next = 0;
    const auto expect = [&](StateKind kind, std::size_t array, const std::vector<Tensor>& tensors) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const std::uint64_t count = element_count(tensors[i]);
            std::uint64_t at = 0;
            for (; next < parts.size() && parts[next].first == Key{kind, array, i}; ++next) {
                const auto [first, length] = parts[next].second;
                if (first != at || length > count - at) break;
                at += length;
            }
            if (at != count)
                refuse_input({where, ": expected the files to have each element of the ", name_of(kind), " \"",
                              tensors[i].name, "\" once; found a gap or a repetition at element ", at, " of ", count});
        }
    };
    expect(StateKind::parameter, 0, m.parameters);
    expect(StateKind::buffer, 0, m.buffers);
    for (std::size_t a = 0; a < m.arrays.size(); ++a) expect(StateKind::optimizer, a, m.parameters);
    if (next != parts.size())
        refuse_input({where, ": a file has a part of ", name_of(std::get<0>(parts[next].first)), " ",
                      std::get<2>(parts[next].first), " twice, or one that this state does not have"});
    std::vector<std::string_view> names;
    for (const SavedFile& file : m.files) names.push_back(file.name);
    if (find_twice(names) != nullptr) refuse_input({where, ": one of its files is named twice"});
}

UNISONO_DEFINITION const Tensor* find_near(const TensorFile& file, std::string_view name, std::size_t index) {
    const std::vector<Tensor>& all = file.tensors();
    return index < all.size() && all[index].name == name ? &all[index] : file.find(name);
}

UNISONO_DEFINITION void check_file(const Manifest& m, const SavedFile& saved, const Descriptor& folder) {
    const std::string path = concat({folder.path(), "/", saved.name});
    {
        const OldFile file(folder, saved.name);
        if (file.bytes() != saved.bytes)
            refuse_input({"'", path, "' has ", file.bytes(), " bytes; expected ", saved.bytes,
                          file.bytes() < saved.bytes ? ": it is cut short" : ""});
        if (const std::uint64_t sum = file.checksum(); sum != saved.checksum)
            refuse_input({"'", path, "' has the checksum ", hash_text(sum), "; expected ", hash_text(saved.checksum),
                          ": it is corrupt, or of another checkpoint"});
    }
    const TensorFile file(OldFile(folder, saved.name));
    if (file.tensors().size() != saved.parts.size())
        refuse_input({"'", path, "' has ", file.tensors().size(), " tensors; expected ", saved.parts.size()});
    std::vector<std::string_view> names;
    for (const SavedPart& part : saved.parts) names.push_back(part.tensor);
    if (find_twice(names) != nullptr)
        refuse_input({"'", path, "': ", manifest_name, " names one of its tensors twice"});
    for (std::size_t i = 0; i < saved.parts.size(); ++i) {
        const SavedPart& part = saved.parts[i];
        const std::vector<Tensor>& list = part.kind == StateKind::buffer ? m.buffers : m.parameters;
        const Tensor* const found =
            find_near(file, part.tensor, i); // its index was checked with the coverage, unless it is empty
        if (found == nullptr || part.index >= list.size() || found->type != list[part.index].type ||
            element_count(*found) != part.count)
            refuse_input({"'", path, "' has no tensor \"", part.tensor, "\" of the type and size that ", manifest_name,
                          " states"});
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
