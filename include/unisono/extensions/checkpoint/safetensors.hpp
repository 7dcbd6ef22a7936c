#pragma once

/// \file
/// Tensors in files of Hugging Face's safetensors format, so that Python and other programs can
/// read these files, and the library can read theirs. A file has 8 bytes with the header's length,
/// the header in JSON, and the tensors' numbers without gaps.
///
///     const un::TensorFile file("model.safetensors");
///     for (const un::Tensor& one : file.tensors()) ...
///
/// The reader is as strict as the format demands: a header of at most 100 MB; an object of known
/// members, none twice; known element types; each tensor's bytes match its shape; the tensors, in
/// the order of their positions, cover the rest of the file without gap or overlap.
/// Source: the format's description, github.com/huggingface/safetensors.

#include "unisono/core/element.hpp"
#include "unisono/extensions/checkpoint/file.hpp"
#include "unisono/extensions/checkpoint/json.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A tensor's name, element type in the format's spelling ("F32", "BF16", ...) and shape; the
/// elements of the last dimension are contiguous.
struct Tensor {
    std::string name = {};
    std::string type = {};
    std::vector<std::uint64_t> shape = {};
    std::uint64_t begin = 0; ///< offset in bytes after the header
    std::uint64_t end = 0;

    [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
    friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A tensor for writing: `data` has the number of bytes that type and shape require.
struct TensorData {
    Tensor tensor = {}; ///< its offsets are computed
    const void* data = nullptr;
};

/// The format's name of an element type.
constexpr std::string_view tensor_type(ElementType type) {
    switch (type) {
    case ElementType::float32: return "F32";
    case ElementType::float64: return "F64";
    case ElementType::bfloat16: return "BF16";
    case ElementType::float16: return "F16";
    case ElementType::int32: return "I32";
    case ElementType::int64: return "I64";
    case ElementType::uint8: return "U8";
    case ElementType::uint32: return "U32";
    case ElementType::uint64: return "U64";
    case ElementType::opaque: break;
    }
    return {};
}

namespace detail {

inline constexpr std::uint64_t most_header_bytes = 100'000'000;

/// Bytes per element of this type of the format; 0: unknown type.
constexpr std::uint64_t tensor_element_bytes(std::string_view type) {
    constexpr std::pair<std::string_view, std::uint64_t> known[] = {
        {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"BOOL", 1},    {"U8", 1},      {"I8", 1}, {"I16", 2},
        {"U16", 2}, {"I32", 4},  {"U32", 4}, {"I64", 8}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U64", 8}};
    for (const auto& [name, bytes] : known)
        if (name == type) return bytes;
    return 0;
}

/// Returns false if the number of bytes does not fit in 64 bits.
bool tensor_bytes(const Tensor& tensor, std::uint64_t& bytes);

} // namespace detail

/// A safetensors file for reading.
class TensorFile {
public:
    /// Reads and checks the header; numbers are read on demand.
    /// \throws error bad_input: the violation of the format; refused: the file cannot be read
    explicit TensorFile(const std::string& path);
    explicit TensorFile(detail::OldFile file);

    /// The tensors in the order of their offsets.
    [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
    /// The names and texts of the header's metadata.
    [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
    /// Returns the tensor of that name; null: there is none.
    [[nodiscard]] const Tensor* find(std::string_view name) const;
    /// Reads numbers of one of `tensors()` into `out`, from the `first`-th on, in the tensor's
    /// element type. \throws error bad_input: another type, or more numbers than it has; refused:
    /// the file cannot be read
    template <element T>
    void read(const Tensor& tensor, std::span<T> out, std::uint64_t first = 0) const {
        file_.read(position_of(tensor, element_type_of<T>, out.size(), first), out.data(), out.size_bytes());
    }
    /// The position in the file of `count` numbers of one of `tensors()`, from the `first`-th on.
    /// \throws error bad_input: as `read`
    [[nodiscard]] std::uint64_t position_of(const Tensor& tensor, ElementType type, std::uint64_t count,
                                            std::uint64_t first = 0) const;
    [[nodiscard]] const detail::OldFile& file() const { return file_; }

private:
    void read_header(const detail::Json& header, const std::string& where);

    detail::OldFile file_;
    std::uint64_t start_ = 0;
    std::vector<Tensor> tensors_;
    std::vector<std::pair<std::uint64_t, std::size_t>> by_name_; ///< hashes and indices, by hash and name
    std::vector<std::pair<std::string, std::string>> metadata_;
};

/// Writes a safetensors file. \throws error bad_input: names and types that the format does not
/// allow; refused: a file of that name exists, or it cannot be written. No partial file remains
void write_tensors(const std::string& path, std::vector<TensorData> tensors);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/hash.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN

namespace detail {

UNISONO_DEFINITION bool tensor_bytes(const Tensor& tensor, std::uint64_t& bytes) {
    bytes = tensor_element_bytes(tensor.type);
    for (const std::uint64_t dimension : tensor.shape)
        if (__builtin_mul_overflow(bytes, dimension, &bytes)) return false;
    return true;
}

/// The bytes of a file before the tensors' numbers. The numbers follow in the order of `tensors`.
/// \throws error bad_input: names that are not UTF-8, are reserved or occur twice; a header larger
/// than `TensorFile` reads
inline std::string tensor_header(std::span<const TensorData> tensors) {
    std::vector<std::string_view> names;
    std::string text = "{\"__metadata__\":{\"format\":\"pt\"}"; // as Python's writers do; other readers ignore it
    for (const auto& [one, data] : tensors) {
        names.push_back(one.name);
        text += concat({",", json_text(one.name), ":{\"dtype\":", json_text(one.type),
                        ",\"shape\":", json_array(one.shape, [](std::uint64_t n) { return std::to_string(n); }),
                        ",\"data_offsets\":[", one.begin, ",", one.end, "]}"});
    }
    names.emplace_back("__metadata__");
    if (const std::string_view* const twice = find_twice(names); twice != nullptr)
        refuse_input({"two tensors of one file would have the name \"", *twice, "\"; expected different names"});
    text += '}';
    text.append((8 - text.size() % 8) % 8, ' '); // numbers begin at a multiple of 8
    if (text.size() > most_header_bytes)
        refuse_input({"the tensors' names and shapes take ", text.size(), " bytes; expected at most ",
                      most_header_bytes, " in one file"});
    const JsonText check(text, "the header of tensors"); // refuses to write what the reader would refuse
    std::uint64_t length = text.size();
    std::string all(8, '\0');
    std::memcpy(all.data(), &length, 8);
    return all + text;
}

/// Reads one member of a header.
inline Tensor tensor_of(std::string_view name, const Json& facts, const std::string& where) {
    facts.expect_members({"dtype", "shape", "data_offsets"}, where);
    Tensor one;
    one.name = name;
    one.type = facts.member("dtype", where).string({where, ": dtype"});
    for (const Json& dimension : facts.member("shape", where).array({where, ": shape"}))
        one.shape.push_back(dimension.integer<std::uint64_t>({where, ": shape"}));
    const auto offsets = facts.member("data_offsets", where).array({where, ": data_offsets"});
    if (offsets.size() != 2) refuse_input({where, ": found ", offsets.size(), " data_offsets; expected 2"});
    auto offset = offsets.begin();
    one.begin = offset->integer<std::uint64_t>({where, ": data_offsets"});
    one.end = (++offset)->integer<std::uint64_t>({where, ": data_offsets"});
    if (tensor_element_bytes(one.type) == 0)
        refuse_input({where, ": found the unknown element type \"", one.type, "\""});
    std::uint64_t bytes = 0;
    if (!tensor_bytes(one, bytes)) refuse_input({where, ": its shape has more elements than 64 bits count"});
    if (one.end < one.begin || one.bytes() != bytes)
        refuse_input(
            {where, ": found bytes ", one.begin, " to ", one.end, "; expected ", bytes, ", as its shape and type say"});
    return one;
}

/// Writes a new file; its contents are durable, its name is not. Sets the tensors' offsets. `open`
/// makes the NewFile. \returns its length and checksum
template <class Open>
std::pair<std::uint64_t, std::uint64_t> write_tensor_file(std::span<TensorData> all, const Open& open) {
    std::vector<std::pair<std::uint64_t, std::size_t>> order; // the largest elements first, so that all are aligned
    for (std::size_t i = 0; i < all.size(); ++i) order.emplace_back(~tensor_element_bytes(all[i].tensor.type), i);
    std::sort(order.begin(), order.end());
    std::vector<TensorData> sorted;
    sorted.reserve(all.size());
    for (const auto& [bytes, i] : order) sorted.push_back(std::move(all[i]));
    std::move(sorted.begin(), sorted.end(), all.begin());
    std::uint64_t at = 0;
    for (TensorData& one : all) {
        std::uint64_t bytes = 0;
        if (tensor_element_bytes(one.tensor.type) == 0 || !tensor_bytes(one.tensor, bytes))
            refuse_input({"tensor \"", one.tensor.name, "\" of type \"", one.tensor.type, "\" cannot be written"});
        one.tensor.begin = at;
        one.tensor.end = at += bytes;
    }
    const std::string header = tensor_header(all);
    NewFile file = open();
    file.add(header.data(), header.size());
    for (const TensorData& one : all) file.add(one.data, one.tensor.bytes());
    file.finish();
    return {file.bytes(), file.checksum()};
}

} // namespace detail

UNISONO_DEFINITION TensorFile::TensorFile(const std::string& path) : TensorFile(detail::OldFile(path)) {}

UNISONO_DEFINITION TensorFile::TensorFile(detail::OldFile file) : file_(std::move(file)) {
    const std::string where = concat({"'", file_.path(), "'"});
    std::uint64_t length = 0;
    if (file_.bytes() < 8) refuse_input({where, " has ", file_.bytes(), " bytes; expected at least 8"});
    file_.read(0, &length, 8);
    if (length > detail::most_header_bytes)
        refuse_input({where, ": found a header of ", length, " bytes; expected at most ", detail::most_header_bytes});
    if (length > file_.bytes() - 8)
        refuse_input({where, ": found a header of ", length, " bytes; expected at most ", file_.bytes() - 8,
                      ", which is the rest of the file"});
    std::string text(length, '\0');
    file_.read(8, text.data(), text.size());
    start_ = 8 + length;
    if (text.empty() || text.front() != '{') refuse_input({where, ": expected a header that begins with '{'"});
    read_header(detail::JsonText(std::move(text), where).root(), where);
}

UNISONO_DEFINITION const Tensor* TensorFile::find(std::string_view name) const {
    const std::uint64_t hash = detail::fnv1a(detail::fnv_basis, name);
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](const auto& one, std::string_view) {
        return one.first != hash ? one.first < hash : tensors_[one.second].name < name;
    });
    return at != by_name_.end() && tensors_[at->second].name == name ? &tensors_[at->second] : nullptr;
}

UNISONO_DEFINITION std::uint64_t TensorFile::position_of(const Tensor& tensor, ElementType type, std::uint64_t count,
                                                         std::uint64_t first) const {
    if (tensor.type != tensor_type(type))
        refuse_input({"'", file_.path(), "': tensor \"", tensor.name, "\" is of type ", tensor.type, "; expected ",
                      tensor_type(type)});
    const std::uint64_t each = detail::tensor_element_bytes(tensor.type), has = tensor.bytes() / each;
    if (first > has || count > has - first)
        refuse_input({"'", file_.path(), "': tensor \"", tensor.name, "\" has ", has, " elements; expected ", count,
                      " from element ", first, " on"});
    return start_ + tensor.begin + first * each;
}

UNISONO_DEFINITION void TensorFile::read_header(const detail::Json& header, const std::string& where) {
    for (const detail::Json& facts : header.items()) {
        if (facts.name() != "__metadata__") {
            tensors_.push_back(
                detail::tensor_of(facts.name(), facts, concat({where, ": tensor \"", facts.name(), "\""})));
            continue;
        }
        if (facts.kind != detail::Json::Kind::object)
            refuse_input({where, ": found a __metadata__ that is no object; expected an object of strings"});
        for (const detail::Json& one : facts.items())
            metadata_.emplace_back(one.name(), one.string({where, ": __metadata__"}));
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
        // Empty tensors before those that begin at the same offset.
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::uint64_t at = 0;
    for (const Tensor& one : tensors_) {
        if (one.begin != at)
            refuse_input({where, ": tensor \"", one.name, "\" begins at byte ", one.begin, "; expected ", at,
                          ", where the one before it ends"});
        at = one.end;
    }
    if (at != file_.bytes() - start_)
        refuse_input({where, ": its tensors have ", at, " bytes, and the file has ", file_.bytes() - start_,
                      " behind its header; expected the same number"});
    for (std::size_t i = 0; i < tensors_.size(); ++i)
        by_name_.emplace_back(detail::fnv1a(detail::fnv_basis, tensors_[i].name), i);
    std::sort(by_name_.begin(), by_name_.end(), [&](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : tensors_[a.second].name < tensors_[b.second].name;
    });
}

UNISONO_DEFINITION void write_tensors(const std::string& path, std::vector<TensorData> tensors) {
    bool made = false;
    try {
        static_cast<void>(detail::write_tensor_file(tensors, [&] {
            detail::NewFile file(path);
            made = true;
            return file;
        }));
    } catch (...) {
        if (made) static_cast<void>(::unlink(path.c_str())); // an incomplete file
        throw;
    }
}

UNISONO_NAMESPACE_END
#endif
