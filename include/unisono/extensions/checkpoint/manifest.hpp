#pragma once

/// \file
/// The description of a checkpoint: the training's position, the model, and the file in which each
/// of its numbers is.
///
/// manifest.json is one JSON object whose last member is the checksum of all bytes before it. Its
/// members are exactly those of its version, except two, which exist for updates that do not
/// declare `agrees`: "meetings", and "own_updates" if ranks have made different numbers of updates.
/// A newer version has another number, and is refused for it.

#include "unisono/extensions/checkpoint/json.hpp"
#include "unisono/extensions/checkpoint/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline constexpr std::string_view manifest_name = "manifest.json";
inline constexpr std::string_view manifest_format = "unisono checkpoint";
inline constexpr int manifest_version = 1;
inline constexpr std::uint64_t most_manifest_bytes = 400'000'000;

enum class StateKind : std::uint8_t { parameter, buffer, optimizer };

constexpr std::string_view name_of(StateKind kind) {
    constexpr std::string_view names[] = {"parameter", "buffer", "optimizer"};
    return names[static_cast<std::size_t>(kind)];
}

/// Elements [first, first + count) of a parameter, a buffer, or one array of a parameter's
/// optimizer state.
struct SavedPart {
    std::string tensor = {}; ///< the tensor's name in the file
    StateKind kind = StateKind::parameter;
    std::size_t array = 0; ///< index of the optimizer's state array
    std::size_t index = 0; ///< index of the parameter or buffer
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    friend bool operator==(const SavedPart&, const SavedPart&) = default;
};

struct SavedFile {
    std::string name = {};
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
    std::vector<SavedPart> parts = {};
    friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// Limit of epochs and samples, so that a training can count on from the numbers in a file. It is
/// 2^53, beyond which readers of JSON round.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 53;

/// The order of an epoch's samples.
struct SavedOrder {
    std::string sampler = {};
    std::uint64_t seed = 0;
    bool shuffle = false;
    bool drop_last = false;
    friend bool operator==(const SavedOrder&, const SavedOrder&) = default;
};

struct Manifest {
    std::string library = {};
    int world = 1;
    std::uint64_t updates = 0;
    std::int64_t epoch = 0;      ///< where the next `fit` continues
    std::int64_t samples = 0;    ///< samples of that epoch, over all replicas
    std::int64_t step_epoch = 0; ///< the epoch that a loop of the user's own has set
    std::uint64_t seed = 0;      ///< seed of the models' random streams
    std::int64_t data_size = 0;  ///< size of the data of the last `fit`; 0: there was none
    SavedOrder order = {};
    bool scales = false;
    double loss_scale = 1;
    std::int64_t good_updates = 0;
    std::vector<std::int32_t> grid_exponents = {};
    std::optional<std::uint64_t> synchronisations =
        {};                                      ///< number of synchronisations, if ranks make updates of their own
    std::vector<std::uint64_t> own_updates = {}; ///< updates of each of those ranks; empty: `updates`
    std::string policies = {};
    std::string note = {};
    std::vector<Tensor> parameters = {}; ///< names, types and shapes
    std::vector<Tensor> buffers = {};
    std::string optimizer = {};
    std::vector<std::string> arrays = {}; ///< names of the state's arrays, each as long as the parameters
    std::vector<SavedFile> files = {};
    friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string file_text(const SavedFile& file);

SavedFile file_of(const Json& json, const std::string& where);

/// Appends the checksum as the last member. `body` is an object without its last brace.
std::string sealed(std::string body);

/// Refuses text whose last member is not its checksum.
void check_seal(std::string_view text, const std::string& where);

std::string manifest_text(const Manifest& m);

/// \throws error bad_input: names `where`, and the difference from what `manifest_text` writes
Manifest manifest_of(std::string_view text, const std::string& where);

/// The text of a manifest, for writing. \throws error bad_input: `manifest_of` would refuse the
/// manifest
std::string checked_text(const Manifest& m, const std::string& where);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/number.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/checkpoint/checksum.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::string file_text(const SavedFile& file) {
    return concat({"{\"name\":", json_text(file.name), ",\"bytes\":", file.bytes, ",\"xxh64\":\"",
                   hash_text(file.checksum), "\",\"tensors\":",
                   json_array(file.parts,
                              [](const SavedPart& part) {
                                  return concat({"{\"name\":", json_text(part.tensor), ",\"of\":\"", name_of(part.kind),
                                                 "\",\"array\":", part.array, ",\"index\":", part.index,
                                                 ",\"first\":", part.first, ",\"count\":", part.count, "}"});
                              }),
                   "}"});
}

UNISONO_DEFINITION SavedFile file_of(const Json& json, const std::string& where) {
    json.expect_members({"name", "bytes", "xxh64", "tensors"}, where);
    SavedFile file;
    file.name = json.member("name", where).string(where);
    // So no file outside the checkpoint's folder is ever opened.
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (file.name.empty() || file.name.front() == '.' || file.name.find_first_not_of(letters) != std::string::npos ||
        file.name == manifest_name)
        refuse_input({where, ": found the file name \"", file.name, "\"; expected letters, digits, '-', '_' and '.'"});
    file.bytes = json.member("bytes", where).integer<std::uint64_t>({where, ": bytes"});
    const std::string_view sum = json.member("xxh64", where).string({where, ": xxh64"});
    std::from_chars(sum.data(), sum.data() + sum.size(), file.checksum, 16);
    if (sum != hash_text(file.checksum)) refuse_input({where, ": found the xxh64 \"", sum, "\"; expected 16 digits"});
    for (const Json& one : json.member("tensors", where).array({where, ": tensors"})) {
        one.expect_members({"name", "of", "array", "index", "first", "count"}, where);
        SavedPart part;
        part.tensor = one.member("name", where).string(where);
        const std::string_view kind = one.member("of", where).string(where);
        if (kind == "parameter") part.kind = StateKind::parameter;
        else if (kind == "buffer") part.kind = StateKind::buffer;
        else if (kind == "optimizer") part.kind = StateKind::optimizer;
        else refuse_input({where, ": found a tensor of \"", kind, "\"; expected parameter, buffer or optimizer"});
        part.array = one.member("array", where).integer<std::size_t>({where, ": array"});
        part.index = one.member("index", where).integer<std::size_t>({where, ": index"});
        part.first = one.member("first", where).integer<std::uint64_t>({where, ": first"});
        part.count = one.member("count", where).integer<std::uint64_t>({where, ": count"});
        file.parts.push_back(std::move(part));
    }
    return file;
}

inline constexpr std::string_view before_checksum = ",\n\"xxh64\":\"";

UNISONO_DEFINITION std::string sealed(std::string body) {
    const std::string sum = hash_text(xxh64(body.data(), body.size()));
    body += before_checksum;
    body += sum;
    return body += "\"}\n";
}

UNISONO_DEFINITION void check_seal(std::string_view text, const std::string& where) {
    const std::size_t tail = before_checksum.size() + 16 + 3;
    if (text.size() < tail || text.substr(text.size() - tail, before_checksum.size()) != before_checksum ||
        text.substr(text.size() - 3) != "\"}\n")
        refuse_input({where, ": found ", text.size(),
                      " bytes that do not end with a checksum; the file is cut short, or is not a manifest"});
    const std::string sum = hash_text(xxh64(text.data(), text.size() - tail));
    if (const std::string_view found = text.substr(text.size() - 19, 16); found != sum)
        refuse_input({where, ": found the checksum ", found, "; expected ", sum,
                      ", which is that of its text: the file is corrupt"});
}

UNISONO_DEFINITION std::string manifest_text(const Manifest& m) {
    const auto integer = [](auto value) { return std::to_string(value); };
    const auto shape = [&](const Tensor& one) {
        return concat({"{\"name\":", json_text(one.name), ",\"type\":", json_text(one.type),
                       ",\"shape\":", json_array(one.shape, integer), "}"});
    };
    char scale[64]; // the shortest text that reads back as the same number
    const std::string loss_scale(scale, std::to_chars(scale, scale + sizeof scale, m.loss_scale).ptr);
    const auto truth = [](bool value) { return std::string_view(value ? "true" : "false"); };
    std::string text = concat({"{\"format\":", json_text(manifest_format), ",\"version\":", manifest_version});
    text += concat({",\n\"library\":", json_text(m.library), ",\"world\":", m.world, ",\n\"updates\":", m.updates});
    text += concat({",\"epoch\":", m.epoch, ",\"samples\":", m.samples, ",\"step_epoch\":", m.step_epoch});
    text += concat({",\"seed\":", m.seed, ",\"data_size\":", m.data_size});
    text += concat({",\n\"order\":{\"sampler\":", json_text(m.order.sampler), ",\"seed\":", m.order.seed});
    text += concat({",\"shuffle\":", truth(m.order.shuffle), ",\"drop_last\":", truth(m.order.drop_last)});
    text += concat({"},\n\"loss_scaling\":{\"scales\":", truth(m.scales), ",\"scale\":"});
    text += concat({json_text(loss_scale), ",\"good_updates\":", m.good_updates});
    text += concat({"},\n\"grid_exponents\":", json_array(m.grid_exponents, integer)});
    if (m.synchronisations) text += concat({",\n\"meetings\":", *m.synchronisations});
    if (!m.own_updates.empty()) text += concat({",\n\"own_updates\":", json_array(m.own_updates, integer)});
    text += concat({",\n\"policies\":", json_text(m.policies), ",\n\"note\":", json_text(m.note)});
    text += concat({",\n\"parameters\":", json_array(m.parameters, shape, ",\n")});
    text += concat({",\n\"buffers\":", json_array(m.buffers, shape, ",\n")});
    text += concat({",\n\"optimizer\":{\"name\":", json_text(m.optimizer), ",\"arrays\":"});
    text += concat({json_array(m.arrays, [](const std::string& name) { return json_text(name); })});
    return sealed(text + concat({"},\n\"files\":", json_array(m.files, file_text, ",\n")}));
}

inline std::vector<Tensor> shapes_of(const Json& list, const std::string& where) {
    std::vector<Tensor> all;
    for (const Json& one : list.array(where)) {
        one.expect_members({"name", "type", "shape"}, where);
        Tensor tensor;
        tensor.name = one.member("name", where).string(where);
        tensor.type = one.member("type", where).string(where);
        for (const Json& n : one.member("shape", where).array(where))
            tensor.shape.push_back(n.integer<std::uint64_t>({where, ": shape"}));
        if (tensor_element_bytes(tensor.type) == 0 || !tensor_bytes(tensor, tensor.end))
            refuse_input({where, ": \"", tensor.name, "\" has an unknown type or an impossible shape"});
        tensor.end = 0;
        all.push_back(std::move(tensor));
    }
    return all;
}

UNISONO_DEFINITION Manifest manifest_of(std::string_view text, const std::string& where) {
    check_seal(text, where);
    const JsonText parsed(std::string(text), where);
    const Json& json = parsed.root();
    if (json.member("format", where).string({where, ": format"}) != manifest_format)
        refuse_input({where, ": found the format \"", json.member("format", where).text(), "\"; expected \"",
                      manifest_format, "\""});
    const int version = json.member("version", where).integer<int>({where, ": version"});
    if (version != manifest_version)
        refuse_input({where, ": found version ", version, version > manifest_version ? ", which is newer" : "",
                      "; this library reads version ", manifest_version});
    json.expect_members({"format",     "version",      "library",        "world",    "updates",
                         "epoch",      "samples",      "step_epoch",     "seed",     "data_size",
                         "order",      "loss_scaling", "grid_exponents", "policies", "note",
                         "parameters", "buffers",      "optimizer",      "files",    "xxh64"},
                        where, {"meetings", "own_updates"});
    const auto of = [&](const Json& object, std::string_view name) -> const Json& {
        return object.member(name, where);
    };
    const auto at = [&](std::string_view name) { return concat({where, ": ", name}); };
    Manifest m;
    m.library = of(json, "library").string(at("library"));
    m.world = of(json, "world").integer<int>(at("world"));
    m.updates = of(json, "updates").integer<std::uint64_t>(at("updates"));
    m.epoch = of(json, "epoch").integer<std::int64_t>(at("epoch"));
    m.samples = of(json, "samples").integer<std::int64_t>(at("samples"));
    m.step_epoch = of(json, "step_epoch").integer<std::int64_t>(at("step_epoch"));
    m.seed = of(json, "seed").integer<std::uint64_t>(at("seed"));
    m.data_size = of(json, "data_size").integer<std::int64_t>(at("data_size"));
    if (m.world < 1 || m.epoch < 0 || m.samples < 0 || m.step_epoch < 0 || m.data_size < 0)
        refuse_input({where, ": found world ", m.world, ", epoch ", m.epoch, ", samples ", m.samples, ", step_epoch ",
                      m.step_epoch, ", data_size ", m.data_size,
                      "; expected a world of 1 or more, and no number below 0"});
    if (std::max({m.epoch, m.samples, m.step_epoch, m.data_size}) > most_counted)
        refuse_input({where, ": found epoch ", m.epoch, ", samples ", m.samples, ", step_epoch ", m.step_epoch,
                      ", data_size ", m.data_size, "; expected no number above ", most_counted});
    const Json& order = of(json, "order");
    order.expect_members({"sampler", "seed", "shuffle", "drop_last"}, at("order"));
    m.order.sampler = of(order, "sampler").string(at("order"));
    m.order.seed = of(order, "seed").integer<std::uint64_t>(at("order"));
    m.order.shuffle = of(order, "shuffle").boolean(at("order"));
    m.order.drop_last = of(order, "drop_last").boolean(at("order"));
    const Json& scaling = of(json, "loss_scaling");
    scaling.expect_members({"scales", "scale", "good_updates"}, at("loss_scaling"));
    m.scales = of(scaling, "scales").boolean(at("loss_scaling"));
    m.good_updates = of(scaling, "good_updates").integer<std::int64_t>(at("loss_scaling"));
    const std::string_view scale = of(scaling, "scale").string(at("loss_scaling"));
    constexpr double least = std::numeric_limits<double>::denorm_min(), most = std::numeric_limits<double>::max();
    // The second test is for a thread that takes `least` as zero.
    if (!parse_number(scale, least, most, m.loss_scale) || !(m.loss_scale > 0) || m.good_updates < 0)
        refuse_input({where, ": found the loss scale \"", scale, "\" after ", m.good_updates,
                      " good updates; expected a finite scale above 0, and at least 0 good updates"});
    for (const Json& one : of(json, "grid_exponents").array(at("grid_exponents")))
        m.grid_exponents.push_back(one.integer<std::int32_t>(at("grid_exponents")));
    if (json.has("meetings")) m.synchronisations = of(json, "meetings").integer<std::uint64_t>(at("meetings"));
    if (json.has("own_updates"))
        for (const Json& one : of(json, "own_updates").array(at("own_updates")))
            m.own_updates.push_back(one.integer<std::uint64_t>(at("own_updates")));
    m.policies = of(json, "policies").string(at("policies"));
    m.note = of(json, "note").string(at("note"));
    m.parameters = shapes_of(of(json, "parameters"), at("parameters"));
    m.buffers = shapes_of(of(json, "buffers"), at("buffers"));
    const Json& optimizer = of(json, "optimizer");
    optimizer.expect_members({"name", "arrays"}, at("optimizer"));
    m.optimizer = of(optimizer, "name").string(at("optimizer"));
    for (const Json& one : of(optimizer, "arrays").array(at("optimizer")))
        m.arrays.emplace_back(one.string(at("optimizer")));
    for (const Json& one : of(json, "files").array(at("files"))) m.files.push_back(file_of(one, at("files")));
    return m;
}

UNISONO_DEFINITION std::string checked_text(const Manifest& m, const std::string& where) {
    std::string text = manifest_text(m);
    if (text.size() > most_manifest_bytes)
        refuse_input({where, ": the manifest has ", text.size(), " bytes; expected at most ", most_manifest_bytes});
    static_cast<void>(manifest_of(text, where));
    return text;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
