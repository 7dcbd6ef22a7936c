// Short, corrupt, foreign, newer or missing files: every rank gets an error that says which file
// and why, and the trainer is unchanged.
#include "support/fails.hpp"
#include "support/folder.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/reading.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>

namespace un = unisono;
namespace fs = std::filesystem;
using namespace unisono_test;

namespace {

void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}
void put_byte(const std::string& path, std::size_t at, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
}

/// A checkpoint of two ranks with slices, which every test damages and repairs.
struct Saved {
    Folder folder;
    std::string path;
    std::vector<std::string> files;

    Saved() {
        const auto all =
            train({.ranks = 2, .sharded = true, .folder = folder.path(), .save_every = 6, .stop_after = 6});
        path = folder / all[0].saved.at(0);
        for (const auto& one : fs::directory_iterator(path)) files.push_back(one.path().filename());
        std::sort(files.begin(), files.end());
        BOOST_TEST_REQUIRE(files.size() == 5u);
    }
    [[nodiscard]] std::string file(const std::string& name) const { return path + "/" + name; }

    /// Expects the same error on every rank, of this file, with these words.
    void refused(const std::string& name, const std::string& words) const {
        const auto all = train({.ranks = 3, .folder = folder.path(), .resume = true});
        for (const Outcome& one : all) {
            BOOST_TEST(one.refused.find(file(name)) != std::string::npos, one.refused << " (expected " << name << ")");
            BOOST_TEST(one.refused.find(words) != std::string::npos, one.refused << " (expected " << words << ")");
            BOOST_TEST(one.refused == all[0].refused);
            BOOST_TEST((one.code == un::ErrorCode::bad_input || one.code == un::ErrorCode::refused));
            BOOST_TEST(one.untouched);
            BOOST_TEST((one.hash == undisturbed(Which::adam)[3]));
        }
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_damage)

BOOST_AUTO_TEST_CASE(a_file_is_cut_short_or_too_long) {
    const Saved saved;
    for (const std::string& name : saved.files) {
        const std::string whole = content(saved.file(name));
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, std::size_t{8}, whole.size() / 2, whole.size() - 1}) {
            put(saved.file(name), whole.substr(0, size));
            saved.refused(name, name == "manifest.json" ? "cut short" : "it is cut short");
        }
        put(saved.file(name), whole + "x");
        saved.refused(name, name == "manifest.json" ? "do not end with a checksum" : "bytes; expected");
        put(saved.file(name), whole);
    }
    BOOST_TEST((train({.folder = saved.folder.path(), .resume = true})[0].hash == undisturbed(Which::adam).back()));
}

BOOST_AUTO_TEST_CASE(a_byte_is_another) {
    const Saved saved;
    const std::string manifest = content(saved.file("manifest.json"));
    const un::detail::Manifest m = un::detail::manifest_of(manifest, "manifest");
    const un::detail::Descriptor opened = un::detail::open_folder(saved.path);
    for (const std::string& name : saved.files) {
        const std::string whole = content(saved.file(name));
        for (std::size_t i = 0; i < 12; ++i) { // as users see it
            std::string other = whole;
            other[i * (whole.size() - 1) / 11] ^= static_cast<char>(1 << i % 8);
            put(saved.file(name), other);
            saved.refused(name, name == "manifest.json" ? "manifest.json" : "it is corrupt, or of another checkpoint");
        }
        const auto of = std::find_if(m.files.begin(), m.files.end(), [&](const auto& one) { return one.name == name; });
        put(saved.file(name), whole);
        for (std::size_t i = 0; i < whole.size(); ++i) { // each byte
            const auto other = static_cast<char>(whole[i] ^ 1 << i % 8);
            if (of == m.files.end()) {
                std::string text = whole;
                text[i] = other;
                BOOST_CHECK_THROW(un::detail::manifest_of(text, "manifest"), un::error);
                continue;
            }
            put_byte(saved.file(name), i, other);
            BOOST_CHECK_THROW(un::detail::check_file(m, *of, opened), un::error);
            put_byte(saved.file(name), i, whole[i]);
        }
        if (of != m.files.end()) BOOST_CHECK_NO_THROW(un::detail::check_file(m, *of, opened));
    }
}

BOOST_AUTO_TEST_CASE(a_file_is_missing_or_another) {
    const Saved saved;
    for (const std::string& name : saved.files) {
        fs::rename(saved.file(name), saved.file("away"));
        saved.refused(name, "No such file");
        fs::create_directory(saved.file(name));
        saved.refused(name, "is not a regular file");
        fs::remove(saved.file(name));
        fs::rename(saved.file("away"), saved.file(name));
    }
    const std::string a = "optimizer-00001-of-00002.safetensors", b = "optimizer-00002-of-00002.safetensors";
    fs::rename(saved.file(a), saved.file("away"));
    fs::rename(saved.file(b), saved.file(a));
    fs::rename(saved.file("away"), saved.file(b));
    saved.refused(b, "has 888 bytes; expected 328"); // it is read first
    // A file of another run that was saved at the same update: of the same length, with other
    // numbers.
    const Folder elsewhere;
    const auto other = train(
        {.ranks = 2, .sharded = true, .folder = elsewhere.path(), .save_every = 6, .stop_after = 6, .sampler_seed = 4});
    for (const std::string& name : {a, b})
        fs::copy_file(elsewhere / other[0].saved[0] + "/" + name, saved.file(name),
                      fs::copy_options::overwrite_existing);
    saved.refused(b, "it is corrupt, or of another checkpoint");
}

BOOST_AUTO_TEST_CASE(a_manifest_says_something_else) {
    const Saved saved;
    const std::string whole = content(saved.file("manifest.json"));
    const std::string body = whole.substr(0, whole.rfind(",\n\"xxh64\""));
    const auto with = [&](const std::string& from, const std::string& to, const std::string& words,
                          const std::string& file = "manifest.json") {
        const std::size_t at = body.find(from);
        BOOST_TEST_REQUIRE(at != std::string::npos, from << " in " << body);
        std::string other = body;
        put(saved.file("manifest.json"), un::detail::sealed(other.replace(at, from.size(), to)));
        saved.refused(file, words);
    };
    with("\"version\":1", "\"version\":2", "found version 2, which is newer");
    with("unisono checkpoint", "sometool checkpoint", "found the format \"sometool checkpoint\"");
    with("\"type\":\"F32\"", "\"type\":\"F64\"", "found parameter \"hidden.weight\" of F64 [5,6]; expected F32 [5,6]");
    with("\"exp_avg\"", "\"exp_awg\"", "found the optimizer's state of any of them [exp_awg, exp_avg_sq]");
    with("\"buffers\":[{", "\"buffers\":[{\"name\":\"x\",\"type\":\"F32\",\"shape\":[1]},\n{",
         "found 2 buffers; expected 1");
    with("\"grid_exponents\":[", "\"grid_exponents\":[1,", "found 6 grid_exponents; expected none or 5");
    const std::string grids = body.substr(body.find("\"grid_exponents\":["),
                                          body.find(",\n\"policies\"") - body.find("\"grid_exponents\":["));
    // The trainer itself refuses some input before anything has changed. It knows no file.
    std::string other = body;
    put(saved.file("manifest.json"),
        un::detail::sealed(other.replace(other.find(grids), grids.size(), "\"grid_exponents\":[1,1,1,1,99999]")));
    for (const Outcome& one : train({.ranks = 3, .folder = saved.folder.path(), .resume = true})) {
        test::says(one.refused, "the grid of parameter 4 has exponent 99999");
        BOOST_TEST(one.untouched);
    }
    // Ranges that leave gaps, overlap, or have no owner.
    with("\"of\":\"parameter\",\"array\":0,\"index\":0", "\"of\":\"parameter\",\"array\":0,\"index\":1",
         "to have each element of the parameter \"hidden.weight\" once");
    with("\"of\":\"optimizer\",\"array\":0", "\"of\":\"optimizer\",\"array\":1",
         "once; found a gap or a repetition at element");
    with("\"of\":\"optimizer\",\"array\":0", "\"of\":\"optimizer\",\"array\":3",
         "once; found a gap or a repetition at element");
    with("\"of\":\"buffer\"", "\"of\":\"parameter\"", "expected the files to have each element of the");
    for (const std::string nobodys : {"optimizer\",\"array\":7,\"index\":0", "buffer\",\"array\":0,\"index\":99"})
        with("\"tensors\":[", "\"tensors\":[{\"name\":\"x\",\"of\":\"" + nobodys + ",\"first\":0,\"count\":0},",
             "which this state does not have");
    with("\"name\":\"hidden.weight.exp_avg[", "\"name\":\"hidden.weight.exp_avg(", "has no tensor",
         "optimizer-00001-of-00002.safetensors");
}

BOOST_AUTO_TEST_SUITE_END()
